"""Biases that add nothing."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Node
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import all_equal

_POSITION = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2, "QLinearConv": 8}


class EliminateZeroBias(OpRule):
    """Leave out a bias of `Conv`, `ConvTranspose`, `Gemm` or `QLinearConv` that is all zero.

    The sign of a zero result may change, hence the level `rounding`.
    """

    name = "eliminate_zero_bias"
    ops = tuple(_POSITION)
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxscript": "RemoveOptionalBiasFromConv"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look at the bias."""
        at = _POSITION[node.op]
        bias = node.input(at)
        if bias is None or not all_equal(bias, 0):
            return None
        if node.op == "Gemm" and node.graph.opset() < 11:
            return Mismatch("Gemm needs its third input before opset 11")
        inputs = node.inputs[:at]
        return rw.replace(node, [rw.op(node.op_type, *inputs, **node.attrs)])
