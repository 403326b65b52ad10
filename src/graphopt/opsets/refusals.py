"""Nodes that prevent a conversion, and the error that is raised for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from graphopt.errors import GraphoptError, ModelError


@dataclass(frozen=True, slots=True)
class Refusal:
    """A node that cannot be converted beyond a version.

    Attributes:
        op: its operator.
        node: its name, or that of its first output.
        graph: the graph it is in.
        reason: why not; it may concern a node that this one was expanded into.
        nearest: the nearest version of the domain that the model can be converted to.
    """

    op: str
    node: str
    graph: str
    reason: str
    nearest: int

    def __str__(self) -> str:
        return f"{self.op} {self.node!r}: {self.reason or 'there is no form of it'} (nearest opset: {self.nearest})"


class ConversionError(ModelError):
    """A model cannot be converted to an opset; nothing was changed.

    If graphopt itself failed, that error is the `__cause__`.

    Attributes:
        refusals: the nodes that prevent the step to the first version that cannot be reached; none if the failure
            concerns no node.
    """

    def __init__(self, target: int, refusals: list[Refusal], reason: str = "", domain: str = "") -> None:
        super().__init__(target, refusals, reason, domain)  # all arguments, so that it can be pickled
        self.refusals = refusals

    def __str__(self) -> str:
        target, refusals, reason, domain = self.args
        more = f"; and {len(refusals) - 3} more" if len(refusals) > 3 else ""
        shown = "; ".join(map(str, refusals[:3])) or reason
        return f"cannot convert to {domain and f'{domain} '}opset {target}: {shown}{more}"


@contextmanager
def failing_alike(target: int) -> Iterator[None]:
    """Turn errors other than graphopt's own into a `ConversionError`."""
    try:
        yield
    except GraphoptError:
        raise
    except Exception as error:
        raise ConversionError(target, [], internal(error)) from error


def internal(error: Exception) -> str:
    """An internal error of graphopt as the reason of a refusal."""
    return f"graphopt failed: {type(error).__name__}: {error}"
