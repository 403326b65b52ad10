"""Checks of names and numbers that a caller gives, one or several of them."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from os import PathLike
from typing import TypeVar

from graphopt.errors import UsageError

Name = TypeVar("Name", bound=str | int | PathLike[str])

MOST_THREADS = 1024
"""More than any machine can run at once; a session of the runtime would start any number."""


def several(what: str, given: Name | Iterable[Name]) -> tuple[Name, ...]:
    """An argument as a tuple; a single text, number or path becomes a tuple of one.

    Args:
        what: the argument's name.
        given: one value, or several.

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
    """Refuse arguments that are not numbers, or too small; None stands for a default.

    Args:
        least: the lower bound of each.
        whole: whether each must be an integer.
        **given: the arguments, by name.

    Raises:
        UsageError: an argument is not such a number.
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
        UsageError: no number is given, or one is not a possible number of threads.
    """
    if not counts:
        raise UsageError("threads: one or more counts expected, found none")
    for threads in counts:
        check_numbers(1, whole=True, threads=threads)
        if isinstance(threads, Integral) and int(threads) > MOST_THREADS:
            raise UsageError(f"threads: at most {MOST_THREADS} expected, found {threads}")


def check_text(what: str, given: str) -> None:
    """Refuse a name that is not UTF-8, if it is stored as text.

    Args:
        what: the kind of name, for the message.
        given: the name, as Python decodes names of files and the command line.

    Raises:
        UsageError: it is not UTF-8.
    """
    if not is_text(given):
        raise UsageError(f"{what} {given!r}: a name in UTF-8 expected, as it is kept as text")


def is_text(name: str) -> bool:
    """Whether a name is UTF-8: names of files may contain any bytes, which Python decodes as surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
