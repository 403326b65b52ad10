"""Sizes and counts on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.errors import UsageError


def parse_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Shapes from texts like `input=1,3,224,224`.

    Raises:
        UsageError: a text is malformed.
    """
    found = dict[str, tuple[int, ...]]()
    for text in texts:
        name, equals, sizes = text.rpartition("=")
        try:
            shape = tuple(int(size) for size in sizes.split(","))
        except ValueError:
            equals = ""
        if not equals or not name:
            raise UsageError(f"shape {text!r}: expected something like input=1,3,224,224")
        if found.setdefault(name, shape) != shape:
            raise UsageError(f"shape {text!r}: input {name!r} was given another shape before")
    return found


def parse_threads(text: str) -> tuple[int, ...]:
    """Thread counts from text like `1,2`.

    Raises:
        UsageError: it is malformed.
    """
    try:
        counts = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1:
        raise UsageError(f"threads {text!r}: expected counts like 1,2")
    return counts


def parse_dims(texts: Sequence[str]) -> dict[str, int]:
    """Sizes of dimensions from texts like `batch=1`.

    Raises:
        UsageError: a text is malformed.
    """
    found = dict[str, int]()
    for text in texts:
        name, equals, size = text.rpartition("=")
        if not equals or not name or not size.isdecimal() or int(size) < 1:
            raise UsageError(f"dimension {text!r}: expected something like batch=1")
        if found.setdefault(name, int(size)) != int(size):
            raise UsageError(f"dimension {text!r}: {name!r} was given another size before, {found[name]}")
    return found
