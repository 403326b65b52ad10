"""Normalizations of half precision that an exporter wrote in float64."""

from __future__ import annotations

from functools import lru_cache

from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import Graph, Node, Value
from graphopt.match import CompiledPattern, OpBuilder, Pattern, Var, compile_pattern
from graphopt_passes.fusion.normalization import mean_of_squares

_NARROW = (TensorProto.FLOAT16, TensorProto.FLOAT)
_LEAST = 1e-30
"""A smaller number under the root may vanish in float32, and zeros be divided by zero."""


def of_normalizations(graph: Graph) -> set[Value]:
    """Values in float64 that may be float32: the tails of `LayerNormalization` written out, between casts.

    `d / sqrt(mean(d ** 2) + e)` of a `d` that was float16 and is cast back: the TorchScript exporter of PyTorch writes
    it so below opset 17. No square of what float16 holds overflows, and its digits are rounded away behind it.
    """
    return {value for node in graph if node.op == "Div" and node.operand(0).made_by("Cast") for value in _tail(node)}


@lru_cache(maxsize=1)
def _written_out() -> CompiledPattern:
    def pattern(op: OpBuilder) -> Pattern:
        wide = op.Cast(Var("x", dtype=TensorProto.FLOAT16), _other_attrs=True)
        return op.Div(wide, op.Sqrt(mean_of_squares(op, wide)))

    return compile_pattern(pattern, "normalization in float64")


def _tail(division: Node) -> list[Value]:
    try:
        m = _written_out().match(division, silent=True)
    except Decline:
        return []
    result = division.result
    casts_back = all(user.op == "Cast" and user.result.dtype in _NARROW for user in result.users)
    if m.epsilon < _LEAST or result.output_count or not casts_back:
        return []
    least = [value for node in m.owners if node.op == "Add" for value in node.operands if value.is_const]
    return [*(node.result for node in m.owners), *least]
