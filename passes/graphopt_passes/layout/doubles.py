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
"""A smaller epsilon under the root may underflow in float32, so that zero is divided by zero."""


def of_normalizations(graph: Graph) -> set[Value]:
    """Values in float64 that may be float32: the tails of written-out `LayerNormalization`, between casts.

    `d / sqrt(mean(d ** 2) + e)` of a float16 `d`, cast back afterwards: PyTorch's TorchScript exporter writes that
    below opset 17. No square of a float16 number overflows, and the cast back rounds the extra digits away.
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
