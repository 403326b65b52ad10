"""Why a pattern or a rule declined a node, kept as cheaply as possible until somebody asks."""

from __future__ import annotations


class Mismatch:
    """The reason of a near miss: the operators fitted and something else did not.

    It is falsy, so that `if not found` reads naturally, and it formats its text only when asked, since almost no
    reason is ever read. Give it plain names and numbers, not values or nodes: it may be read after the graph changed.

    Args:
        reason: text in lower case, a `str.format` template when there are arguments.
        *args: what fills the template.

    Examples:
        >>> str(Mismatch("{} output channels but {} scales", 8, 4))
        '8 output channels but 4 scales'
        >>> bool(Mismatch("the permutations do not cancel"))
        False
    """

    __slots__ = ("args", "reason")

    def __init__(self, reason: str, *args: object) -> None:
        self.reason = reason
        self.args = args

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return self.reason.format(*self.args) if self.args else self.reason

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Mismatch) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __repr__(self) -> str:
        return f"Mismatch({str(self)!r})"
