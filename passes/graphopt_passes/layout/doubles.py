"""Normalizations of half precision that an exporter wrote in float64."""

from __future__ import annotations

from onnx import TensorProto

from graphopt.ir import Graph, Node, Value
from graphopt.match.factors import number

_NARROW = (TensorProto.FLOAT16, TensorProto.FLOAT)
_SQUARE = 2.0
_LEAST = 1e-30
"""A smaller number under the root may vanish in float32, and zeros be divided by zero."""


def of_normalizations(graph: Graph) -> set[Value]:
    """Values in float64 that may be float32: the tails of `LayerNormalization` written out, between casts.

    `d / sqrt(mean(d ** 2) + e)` of a `d` that was float16 and is cast back: the TorchScript exporter of PyTorch writes
    it so below opset 17. No square of what float16 holds overflows, and its digits are rounded away behind it.
    """
    return {value for node in graph if node.op == "Div" for value in _tail(node)}


def _tail(division: Node) -> tuple[Value, ...]:
    wide, root = division.operands
    cast, sqrt = wide.made_by("Cast"), root.made_by("Sqrt")
    add = sqrt.operand(0).made_by("Add") if sqrt is not None else None
    if sqrt is None or add is None or cast is None or cast.operand(0).dtype != TensorProto.FLOAT16:
        return ()
    mean, least = add.operands if add.operand(0).made_by("ReduceMean") else add.operands[::-1]
    reduction = mean.made_by("ReduceMean")
    square = reduction.operand(0).made_by("Mul", "Pow") if reduction is not None else None
    if reduction is None or square is None or not _is_square(square, wide) or (number(least) or 0.0) < _LEAST:
        return ()
    inner = (wide, square.result, mean, add.result, root)
    nodes = {square, reduction, add, sqrt, division}
    casts_back = all(user.op == "Cast" and user.result.dtype in _NARROW for user in division.result.users)
    if not casts_back or any(x.output_count or not nodes.issuperset(x.users) for x in inner):
        return ()
    return () if division.result.output_count else (*inner, least, division.result)


def _is_square(node: Node, x: Value) -> bool:
    other = node.operand(1)
    return node.operand(0) is x and (other is x if node.op == "Mul" else number(other, "fiu") == _SQUARE)
