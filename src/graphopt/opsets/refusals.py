"""What stands in the way of a conversion, and the one error that it ends with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from graphopt.errors import GraphoptError, ModelError


@dataclass(frozen=True, slots=True)
class Refusal:
    """A node that cannot be brought over a version.

    Attributes:
        op: its operator.
        node: its name, or that of its first output.
        graph: the graph it is in. What stands in the way may be one of those that it was written out by.
        reason: why not.
        nearest: the nearest version of the domain that the model can be brought to.
    """

    op: str
    node: str
    graph: str
    reason: str
    nearest: int

    def __str__(self) -> str:
        return f"{self.op} {self.node!r}: {self.reason or 'there is no form of it'} (nearest opset: {self.nearest})"


class ConversionError(ModelError):
    """A model cannot be brought to an opset; nothing was changed.

    Where graphopt itself failed, that error is the `__cause__`.

    Attributes:
        refusals: the nodes that stand in the way at the first version that cannot be reached; none where what failed
            is about no node.
    """

    def __init__(self, target: int, refusals: list[Refusal], reason: str = "", domain: str = "") -> None:
        super().__init__(target, refusals, reason, domain)  # what it takes to make it again in another process
        self.refusals = refusals

    def __str__(self) -> str:
        target, refusals, reason, domain = self.args
        more = f"; and {len(refusals) - 3} more" if len(refusals) > 3 else ""
        shown = "; ".join(map(str, refusals[:3])) or reason
        return f"cannot convert to {domain and f'{domain} '}opset {target}: {shown}{more}"


@contextmanager
def failing_alike(target: int) -> Iterator[None]:
    """Let no error out but those of graphopt."""
    try:
        yield
    except GraphoptError:
        raise
    except Exception as error:
        raise ConversionError(target, [], internal(error)) from error


def internal(error: Exception) -> str:
    """An error of graphopt's own as the reason of a refusal."""
    return f"graphopt failed: {type(error).__name__}: {error}"
