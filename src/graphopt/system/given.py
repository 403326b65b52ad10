"""What a caller gives as names and numbers: one or several where several may be, refused where it is something else."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from os import PathLike
from typing import TypeVar

from graphopt.errors import UsageError

Name = TypeVar("Name", bound=str | int | PathLike[str])

MOST_THREADS = 1024
"""More than any machine runs at once; a session of the runtime makes as many as it is told to."""


def several(what: str, given: Name | Iterable[Name]) -> tuple[Name, ...]:
    """A text, a number or a path by itself is a list of one.

    Args:
        what: the argument's name.
        given: one, or several.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(given, str | int | PathLike):
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


def check_threads(*counts: object) -> None:
    """Refuse numbers of threads that no session can have.

    Args:
        *counts: the numbers.

    Raises:
        UsageError: there are none, or one of them is not.
    """
    if not counts:
        raise UsageError("threads: one or more counts expected, found none")
    for threads in counts:
        check_numbers(1, whole=True, threads=threads)
        if isinstance(threads, Integral) and int(threads) > MOST_THREADS:
            raise UsageError(f"threads: at most {MOST_THREADS} expected, found {threads}")


def check_text(what: str, given: str) -> None:
    """Refuse a name that is not UTF-8, where it is kept as text.

    Args:
        what: what it is.
        given: the name, as Python decodes those of files and of the command line.

    Raises:
        UsageError: it is not.
    """
    if not is_text(given):
        raise UsageError(f"{what} {given!r}: a name in UTF-8 expected, as it is kept as text")


def is_text(name: str) -> bool:
    """Whether a name is UTF-8: as Python decodes those of files, it may hold any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
