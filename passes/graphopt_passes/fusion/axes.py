"""Axes of operators, which are an attribute at old opsets and an input at new ones."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, Rewriter


def read_axes(node: Node) -> tuple[int, ...] | Mismatch | None:
    """The axes of a `Squeeze`, `Unsqueeze` or reduction, as written.

    Returns:
        The axes; None when they are left out; a `Mismatch` when they are not constant.
    """
    given = node.attrs.get("axes")
    if given is not None:
        return tuple(given)
    value = node.input(1)
    if value is None:
        return None
    array = value.const()
    if array is None:
        return Mismatch("the axes {} are not constant", value.name)
    return tuple(int(axis) for axis in array.reshape(-1))


def write_with_axes(rw: Rewriter, op: str, x: Value, axes: Iterable[int], since: int) -> Value:
    """An operator with axes in the form of the graph's opset; `since` is the first one with axes as an input."""
    ordered = sorted(axes)
    if rw.graph.opset() < since:
        result: Value = rw.op(op, x, axes=tuple(ordered))
    else:
        result = rw.op(op, x, np.array(ordered, dtype=np.int64))
    return result


def absolute(axes: Iterable[int], rank: int | None) -> tuple[int, ...] | None:
    """The axes counted from the front; None when that needs a rank that is not known, or one does not exist."""
    found = tuple(axes)
    if rank is not None:
        found = tuple(axis + rank if axis < 0 else axis for axis in found)
        if any(axis >= rank for axis in found):
            return None
    return None if any(axis < 0 for axis in found) or len(set(found)) < len(found) else found
