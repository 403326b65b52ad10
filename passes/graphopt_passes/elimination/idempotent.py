"""Operators that change nothing when applied to their own result."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import int_list

_ROUNDING = frozenset({"Ceil", "Floor", "Round"})
"""Each of them leaves the result of any of them as it is."""


class EliminateConsecutiveIdempotentOps(OpRule):
    """Remove the second of two equal operators where it changes nothing, and the first of two `Reshape`.

    `Abs`, `Ceil`, `Floor`, `Relu`, `Round` and `Sign` leave their own results as they are; so do the three rounding
    operators among each other. A `Reshape` of a `Reshape` reads the input of the first: where its shape has a 0,
    which copies a dimension of the first result, that dimension is filled in or must be the same in both.
    """

    name = "eliminate_consecutive_idempotent_ops"
    ops = ("Abs", "Ceil", "Floor", "Relu", "Round", "Sign", "Reshape")
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "eliminate_consecutive_idempotent_ops",
        "onnxsim": "eliminate_consecutive_idempotent_ops",
        "onnxscript": "ReshapeReshape",
        "onnxslim": "EliminationReshape",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look one step up."""
        middle = node.inputs[0]
        first = middle.producer if middle is not None else None
        if middle is None or first is None:
            return None
        if first.op != node.op and not (first.op in _ROUNDING and node.op in _ROUNDING):
            return None
        if node.op == "Reshape":
            if first.graph is not node.graph:
                return Mismatch("{} is computed in an outer graph", middle.name)
            return _join(first, middle, node, rw)
        return rw.replace(node, [middle])


def _join(first: Node, middle: Value, node: Node, rw: Rewriter) -> Outcome:
    """Let the second Reshape read what the first reads."""
    x = first.inputs[0]
    shape = int_list(node, "shape", 1, 5)
    if x is None or shape is None or isinstance(shape, Mismatch):
        return shape if isinstance(shape, Mismatch) else None
    new = list(shape)
    for axis in (axis for axis, size in enumerate(shape) if size == 0 and not node.attr("allowzero", 0)):
        dim = middle.shape[axis] if middle.shape is not None else None
        if x.shape is not None and axis < len(x.shape) and dim is not None and x.shape[axis] == dim:
            continue
        if not isinstance(dim, int) or dim == 0:
            return Mismatch("dimension {} is copied from {}, where it is not fixed", axis, middle.name)
        new[axis] = dim
    if node.graph.opset() < 5:
        return rw.replace(node, [rw.op("Reshape", x, shape=tuple(new))])
    if tuple(new) != shape and node.graph.opset() < 9:
        return Mismatch("before opset 9 an old model cannot hold a new constant of integers")
    sizes = node.inputs[1] if tuple(new) == shape else np.array(new, np.int64)
    return rw.replace(node, [rw.op("Reshape", x, sizes, allowzero=node.attrs.get("allowzero"))])
