"""Bits of integers, which have operators from opset 18 on: computed with, they are quotients by powers of two."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.ir.types import element_bits
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.registry import down, number_like
from graphopt.rewrite import Rewriter

_MOST_BITS = 32
"""Integers of 64 bits leave no room for the powers of two."""


@down(18, "BitwiseNot")
def all_others(node: Node, change: Change, rw: Rewriter) -> None:
    """All ones less the number: -1 - x of signed integers."""
    x = node.operand(0)
    kind = number_like(x, 0).dtype
    ones = np.asarray(-1 if kind.kind == "i" else np.iinfo(kind).max, kind)
    rw.replace(node, [rw.op("Sub", ones, x)])


@down(18, "BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bit_by_bit(node: Node, change: Change, rw: Rewriter) -> None:
    """Along a new axis the bits of both, which are numbers 0 and 1, are multiplied or added, and put together."""
    x, y = node.operand(0), node.operand(1)
    bits = element_bits(x.dtype or 0) or 0
    if not 0 < bits <= _MOST_BITS:
        raise Decline("there is no {} before opset 18, and integers of {} bits leave no room", node.op_type, bits)
    powers = 2 ** np.arange(bits, dtype=np.int64)
    a, b = (_bits(rw, each, powers) for each in (x, y))
    both = rw.op("Mul", a, b)
    if node.op_type == "BitwiseOr":
        both = rw.op("Sub", rw.op("Add", a, b), both)
    elif node.op_type == "BitwiseXor":
        both = rw.op("Mod", rw.op("Add", a, b), np.asarray(2, np.int64))
    whole = rw.op("ReduceSum", rw.op("Mul", both, powers), axes=[-1], keepdims=0)
    rw.replace(node, [rw.op("Cast", whole, to=x.dtype)])


def _bits(rw: Rewriter, x: Value, powers: np.ndarray) -> Value:
    """The bits of a value along a new last axis; of negative numbers those of the complement."""
    wide = rw.op("Mod", rw.op("Cast", x, to=TensorProto.INT64), np.asarray(2 * powers[-1], np.int64))
    shifted = rw.op("Div", rw.op("Unsqueeze", wide, axes=[-1]), powers)
    return rw.op("Mod", shifted, np.asarray(2, np.int64))


@down(11, "BitShift")
def by_powers_of_two(node: Node, change: Change, rw: Rewriter) -> None:
    """Shifts to the right divide by a power of two; what is shifted out to the left is lost in the cast."""
    x, y = node.operand(0), node.operand(1).array()
    bits = element_bits(x.dtype or 0) or 0
    if not 0 < bits <= _MOST_BITS or y.size == 0 or int(y.max()) >= bits:
        raise Decline("there is no BitShift before opset 11")
    powers = 2 ** y.astype(np.int64)
    wide = rw.op("Cast", x, to=TensorProto.INT64)
    shifted = rw.op("Mul" if node.attr("direction") == "LEFT" else "Div", wide, powers)
    rw.replace(node, [rw.op("Cast", shifted, to=x.dtype)])
