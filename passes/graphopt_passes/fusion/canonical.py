"""Opt-in passes of onnxoptimizer that bring operands into a fixed order or operators into a plainer form."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.ir import Node
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import int_list, made_by, normal_axes, only_reader


class AdjustAdd(OpRule):
    """Put the constant operand of an `Add` second.

    Some runtimes only recognize a bias there. Not part of any level; runs when it is named.
    """

    name = "adjust_add"
    ops = ("Add",)
    default = False
    peers: ClassVar[dict[str, str]] = {"onnxoptimizer": "adjust_add"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Swap the operands."""
        left, right = node.input(0), node.input(1)
        if left is None or right is None or not left.is_const or right.is_const:
            return None
        if node.graph.opset() < 7:
            # The second operand was broadcast to the first, never the other way round.
            return Mismatch("before opset 7 the operands of Add are not alike")
        return rw.set_inputs(node, {0: right, 1: left})


class AdjustSliceAndMatmul(OpRule):
    """Take a part of a product of constants instead of multiplying a part of one, so that the product can be folded.

    The right factor is a matrix or a vector, and the part does not cut the axis that the product sums over. Not part of
    any level, which folds the part itself; runs when it is named.
    """

    name = "adjust_slice_and_matmul"
    ops = ("MatMul",)
    opsets = "10-"
    default = False
    peers: ClassVar[dict[str, str]] = {"onnxoptimizer": "adjust_slice_and_matmul"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for a `Slice` of a constant on the left."""
        left, right = node.input(0), node.input(1)
        cut = made_by(left, "Slice")
        if left is None or right is None or cut is None:
            return None
        data = cut.input(0)
        if data is None or not data.is_const or not right.is_const:
            return Mismatch("the factors are not constant")
        problem = only_reader(left, node)
        if problem is not None:
            return problem
        if right.rank is None or right.rank > 2 or data.rank is None:
            return Mismatch("the right factor is not known to be a matrix or a vector")
        axes = int_list(cut, "axes", 3, 10)
        if isinstance(axes, Mismatch):
            return axes
        if axes is None:
            return Mismatch("the part does not say which axes it cuts")
        found = normal_axes(axes, data.rank)
        if found is None or data.rank - 1 in found:
            return Mismatch("it cuts the axis that the product sums over")
        front = np.array([axis % data.rank for axis in axes], np.int64)
        product = rw.op("MatMul", data, right)
        return rw.replace(node, [rw.op("Slice", product, cut.input(1), cut.input(2), front, cut.input(4))])
