"""Chains of operators that only change the shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from graphopt.ir import Dim, Node, Value
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter

RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


class FuseConsecutiveReshapes(OpRule):
    """Join two of `Reshape`, `Flatten`, `Squeeze` and `Unsqueeze` into one `Reshape` with a constant shape.

    The shape is that of the second `Reshape` where it copies no dimension, and otherwise follows from the known shape
    of the result. The first one stays for its other readers, where it has any.
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
        first = value.producer if value is not None else None
        if value is None or first is None or first.op not in RESHAPES:
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
            return shape
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
