"""Arithmetic on values gathered from a constant table."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter, Value

_ARITHMETIC = {"Add": np.add, "Div": np.divide, "Mul": np.multiply, "Sub": np.subtract}

_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE})
"""Not float16: the runtime computes it in float32, without rounding or overflow between consecutive operators."""


class FuseArithmeticIntoGather(OpRule):
    """Fold arithmetic with a constant on the result of a `Gather` into its constant table.

    Embeddings are scaled by the square root of their size like this. The constant is one number, or varies only along
    the axes after the gathered one. Nothing else may read the table.
    """

    # No pattern: the constant may stand on either side of four operators.
    ops = tuple(_ARITHMETIC)
    sources = ("Gather",)
    opsets = "7-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        at = 0 if node.operand(0).made_by("Gather") else 1
        gather = node.operand(at).sole_source("Gather", reader=node)
        table, other = gather.operand(0), node.operand(1 - at)
        if not table.is_const or not other.is_const:
            raise Decline
        table.check_one_use()
        if table.dtype not in _FLOATS:
            raise Decline("{} is not float32 or float64", table.name)
        behind = table.sizes()[table.axis(gather.attr("axis", 0)) + 1 :]
        operands = [table.array(), _of_each_position(other, behind, gather.result)]
        with np.errstate(all="ignore"):
            changed = _ARITHMETIC[node.op](*(operands if at == 0 else operands[::-1]))
        return rw.replace(node, [rw.again(gather, rw.constant(changed, like=table), gather.operand(1))])


def _of_each_position(constant: Value, behind: tuple[int, ...], gathered: Value) -> np.ndarray:
    """A constant that is the same at all gathered positions and broadcasts into the axes `behind` them."""
    sizes = constant.sizes()
    if len(sizes) > len(gathered.dims()):
        raise Decline("{} has more axes than {}", constant.name, gathered.name)
    while sizes and sizes[0] == 1:
        sizes = sizes[1:]
    if len(sizes) > len(behind) or any(a not in (1, b) for a, b in zip(sizes[::-1], behind[::-1], strict=False)):
        raise Decline("{} of shape {} varies along the gathered positions", constant.name, constant.sizes())
    return constant.array().reshape(sizes)
