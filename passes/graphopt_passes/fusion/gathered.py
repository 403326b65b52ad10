"""Arithmetic on values gathered from a constant table."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graphopt.rewrite import Decline, Dim, Node, OpRule, Outcome, Rewriter, Value

_ARITHMETIC = {"Add": np.add, "Div": np.divide, "Mul": np.multiply, "Sub": np.subtract}

_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE})
"""Not float16: the runtime computes it in float32, without rounding or overflow between consecutive operators."""


class FuseArithmeticIntoGather(OpRule):
    """Fold arithmetic with a constant on the result of a `Gather` into its constant table.

    Embeddings are scaled by the square root of their size like this, and BERT adds the row of a token type to each. The
    constant is one number, or varies only along the axes after the gathered one. Nothing else may read the table.
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
    sizes, dims = constant.sizes(), gathered.dims()
    if len(sizes) > len(dims):
        raise Decline("{} has more axes than {}", constant.name, gathered.name)
    array = constant.array()
    while array.ndim and _is_repeated(array, dims[-array.ndim]) and (array.ndim > len(behind) or len(array) == 1):
        array = array[0]
    fits = all(a in (1, b) for a, b in zip(array.shape[::-1], behind[::-1], strict=False))
    if array.ndim > len(behind) or not fits:
        raise Decline("{} of shape {} varies along the gathered positions", constant.name, sizes)
    return array


def _is_repeated(array: np.ndarray, size: Dim) -> bool:
    """Whether an array repeats its first element along its first axis, and does not broadcast a value of `size`."""
    first = array[:1].tobytes()
    return len(array) == 1 or (0 < len(array) == size and all(each.tobytes() == first for each in array))
