"""Concatenations that meet."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by


class FuseConcatIntoReshape(OpRule):
    """Make the shape of a `Reshape` constant where all but one of its dimensions are.

    The one that is computed follows from the number of elements, so it becomes -1. A constant 0 copies a dimension,
    which must be known not to be empty.
    """

    name = "fuse_concat_into_reshape"
    ops = ("Reshape",)
    opsets = "5-"
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "fuse_concat_into_reshape",
        "onnxslim": "FusionConcatReshape",
        "onnxruntime": "ReshapeFusion",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Write the shape as a constant."""
        x, shape = node.input(0), node.input(1)
        concat = made_by(shape, "Concat")
        if x is None or shape is None or concat is None:
            return None
        if concat.graph is not node.graph:
            return Mismatch("{} is computed in an outer graph", shape.name)
        dims: list[int] = []
        for part in concat.inputs:
            array = part.const() if part is not None else None
            if array is not None:
                dims.extend(int(d) for d in array)
            elif part is None or part.shape != (1,):
                return Mismatch("{} is not known to be one number", part.name if part is not None else "a part")
            else:
                dims.append(-1)
        if dims.count(-1) > 1:
            return Mismatch("{} dimensions are not constant", dims.count(-1))
        for axis, dim in enumerate(dims):
            if dim == 0 and -1 in dims and (node.attr("allowzero", 0) or not _is_positive(x, axis)):
                return Mismatch("dimension {} may be empty", axis)
        constant = rw.constant(np.array(dims, dtype=np.int64), like=shape)
        return rw.replace(node, [rw.op("Reshape", x, constant, **node.attrs)])


def _is_positive(x: Value, axis: int) -> bool:
    dim = x.shape[axis] if x.shape is not None and axis < len(x.shape) else None
    return isinstance(dim, int) and dim > 0
