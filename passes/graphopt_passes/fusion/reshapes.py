"""Chains of operators that only change the shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from graphopt.ir import Dim, Node, Value
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by

RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")

AXES_BY_INPUT = 13
"""From this opset on `Squeeze` and `Unsqueeze` read their axes."""


class FuseConsecutiveReshapes(OpRule):
    """Join two of `Reshape`, `Flatten`, `Squeeze` and `Unsqueeze` into one `Reshape` with a constant shape.

    The shape is that of the second `Reshape` where it copies no dimension, and otherwise follows from the known shape
    of the result. Where that has more than one dynamic dimension, one `Squeeze` or `Unsqueeze` will do if the two
    together only remove or insert dimensions of size 1. The first one stays for its other readers, where it has any.
    """

    name = "fuse_consecutive_reshapes"
    ops = RESHAPES
    opsets = "5-"
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "eliminate_consecutive_idempotent_ops",
        "onnxsim": "fuse_consecutive_reshapes",
        "onnxscript": "ReshapeReshape",
        "onnxruntime": "ReshapeFusion",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Find a shape that leads to the same result in one step."""
        value = node.input(0)
        first = made_by(value, *RESHAPES)
        if value is None or first is None:
            return None
        if first.op == node.op and node.op in ("Squeeze", "Unsqueeze"):
            return None
        if first.graph is not node.graph:
            return Mismatch("{} is computed in an outer graph", value.name)
        x, result = first.input(0), node.output(0)
        if x is None or result is None:
            return None
        written = _written_shape(node, x.shape, value.shape)
        shape = written if written is not None else _known_shape(x, result)
        if isinstance(shape, Mismatch):
            simple = _only_ones(x, result, rw)
            return shape if simple is None else rw.replace(node, [simple])
        allow = node.attrs.get("allowzero") if written is not None else None
        return rw.replace(node, [rw.op("Reshape", x, np.array(shape, dtype=np.int64), allowzero=allow)])


def _written_shape(node: Node, before: Sequence[Dim] | None, between: Sequence[Dim] | None) -> list[int] | None:
    """The constant shape of a `Reshape` when it means the same for what the first operator reads."""
    given = node.input(1) if node.op == "Reshape" else None
    array = given.const() if given is not None else None
    if array is None:
        return None
    shape = [int(dim) for dim in array]
    for axis, dim in enumerate(shape):
        if dim != 0 or node.attr("allowzero", 0):
            continue
        if before is None or between is None or axis >= min(len(before), len(between)):
            return None
        if before[axis] is None or before[axis] != between[axis]:
            return None
    return shape


def _known_shape(x: Value, result: Value) -> list[int] | Mismatch:
    """A shape to write that gives the inferred shape of the result for every size of the symbols."""
    if result.shape is None:
        return Mismatch("the shape of {} is not known", result.name)
    if 0 in result.shape:
        return Mismatch("{} is empty", result.name)
    target = constant_target(x, result.shape)
    return Mismatch("more than one dimension of {} is not known", result.name) if target is None else target


def constant_target(x: Value, wanted: Sequence[Dim]) -> list[int] | None:
    """A constant to reshape a value with: 0 copies a dimension of a name, one -1 is what is not known.

    Args:
        x: the value.
        wanted: the shape to come to, with no dimension of size 0.

    Returns:
        The constant, or None when no constant says that for every size of the names.
    """
    before = x.shape or ()
    shape = []
    for axis, dim in enumerate(wanted):
        if isinstance(dim, int):
            shape.append(dim)
        else:
            shape.append(0 if dim is not None and axis < len(before) and before[axis] == dim else -1)
    if 0 in wanted or shape.count(-1) > 1 or (-1 in shape and 0 in shape):
        return None
    return shape


def _only_ones(x: Value, result: Value, rw: Rewriter) -> Value | None:
    """The result as `Squeeze` or `Unsqueeze` of a value, where all other dimensions are known to be the same."""
    if x.shape is None or result.shape is None or None in x.shape or None in result.shape:
        return None
    if [dim for dim in x.shape if dim != 1] != [dim for dim in result.shape if dim != 1]:
        return None
    return insert_or_remove_ones(x, x.shape, result.shape, rw)


def insert_or_remove_ones(x: Value, before: Sequence[object], after: Sequence[object], rw: Rewriter) -> Value | None:
    """A value with dimensions of size 1 inserted or removed; None where it takes both, or neither.

    Args:
        x: the value.
        before: its shape.
        after: the shape to come to, which has the same dimensions otherwise.
        rw: the gate.
    """
    op, longer = ("Unsqueeze", after) if len(after) > len(before) else ("Squeeze", before)
    axes = _ones_beside(longer, before if longer is after else after)
    if axes is None or not axes:
        return None
    if rw.graph.opset() < AXES_BY_INPUT:
        made: Value = rw.op(op, x, axes=tuple(axes))
    else:
        made = rw.op(op, x, np.array(axes, np.int64))
    return made


def _ones_beside(longer: Sequence[object], shorter: Sequence[object]) -> list[int] | None:
    """The axes of size 1 without which a shape is another one."""
    axes: list[int] = []
    at = 0
    for axis, dim in enumerate(longer):
        if at < len(shorter) and dim == shorter[at]:
            at += 1
        elif dim == 1:
            axes.append(axis)
        else:
            return None
    return axes if at == len(shorter) else None
