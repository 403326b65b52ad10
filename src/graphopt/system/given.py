"""What a caller gives as names and numbers: one or several where several may be, refused where it is something else."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import TypeVar

from graphopt.errors import UsageError

Name = TypeVar("Name", bound=str | int)


def several(what: str, given: Name | Iterable[Name]) -> tuple[Name, ...]:
    """A text or a number by itself is a list of one.

    Args:
        what: the argument's name.
        given: one, or several.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(given, str | int):
        return (given,)
    try:
        return tuple(given)
    except TypeError:
        raise UsageError(f"{what}: expected one or several, found {type(given).__name__}") from None


def check_numbers(least: float = 0, *, whole: bool = False, **given: object) -> None:
    """Refuse what is no number, or too small a one; None stands for a default.

    Args:
        least: the least that each may be.
        whole: whether each has to be whole.
        **given: the arguments, by name.

    Raises:
        UsageError: one of them is not.
    """
    kind = Integral if whole else Real
    for name, value in given.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, kind) or not float(value) >= least):
            expected = "a whole number" if whole else "a number"
            raise UsageError(f"{name}: expected {expected} of at least {least:g}, found {value!r}")
