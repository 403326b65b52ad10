"""Bitwise operators, which exist from opset 18 on: bits are computed as remainders of quotients by powers of two."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.ir.types import element_bits
from graphopt.opsets import automatic
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.registry import Step, down, number_like
from graphopt.rewrite import Rewriter

_MOST_BITS = 32
"""64-bit integers leave no room for the powers of two; they are split in two halves."""


@down(18, "BitwiseNot")
def all_others(node: Node, change: Change, rw: Rewriter) -> None:
    """~x = ones - x, where all bits of `ones` are set: -1 - x for signed integers."""
    x = node.operand(0)
    kind = number_like(x, 0).dtype
    ones = np.asarray(-1 if kind.kind == "i" else np.iinfo(kind).max, kind)
    rw.replace(node, [rw.op("Sub", ones, x)])


@down(18, "BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bit_by_bit(node: Node, change: Change, rw: Rewriter) -> None:
    """Compute a & b = a * b, a | b = a + b - a * b, a ^ b = (a + b) mod 2 for bits along a new axis."""
    x, y = node.operand(0), node.operand(1)
    bits = element_bits(x.dtype or 0) or 0
    if not bits:
        raise Decline("the element type of {} is not known", x.name)
    if bits <= _MOST_BITS:
        rw.replace(node, [rw.op("Cast", _combined(rw, node.op_type, x, y, bits), to=x.dtype)])
        return
    half, unsigned = np.asarray(1 << _MOST_BITS, np.uint64), TensorProto.UINT64
    wide = [rw.op("Cast", each, to=unsigned) for each in (x, y)]
    high = [rw.op("Div", each, half) for each in wide]
    low = [rw.op("Sub", each, rw.op("Mul", upper, half)) for each, upper in zip(wide, high, strict=True)]
    upper, lower = (
        rw.op("Cast", _combined(rw, node.op_type, pair[0], pair[1], _MOST_BITS), to=unsigned) for pair in (high, low)
    )
    rw.replace(node, [rw.op("Cast", rw.op("Add", rw.op("Mul", upper, half), lower), to=x.dtype)])


def _combined(rw: Rewriter, op_type: str, x: Value, y: Value, bits: int) -> Value:
    """`bits` bits of two values, combined, as a 64-bit integer."""
    powers = 2 ** np.arange(bits, dtype=np.int64)
    a, b = (_bits(rw, each, powers) for each in (x, y))
    both = rw.op("Mul", a, b)
    if op_type == "BitwiseOr":
        both = rw.op("Sub", rw.op("Add", a, b), both)
    elif op_type == "BitwiseXor":
        both = rw.op("Mod", rw.op("Add", a, b), np.asarray(2, np.int64))
    return rw.op("ReduceSum", rw.op("Mul", both, powers), axes=[-1], keepdims=0)


def _bits(rw: Rewriter, x: Value, powers: np.ndarray) -> Value:
    """The bits of a value along a new last axis; negative numbers are in two's complement."""
    wide = rw.op("Mod", rw.op("Cast", x, to=TensorProto.INT64), np.asarray(2 * powers[-1], np.int64))
    shifted = rw.op("Div", rw.op("Unsqueeze", wide, axes=[-1]), powers)
    return rw.op("Mod", shifted, np.asarray(2, np.int64))


_UNSIGNED = {8: TensorProto.UINT8, 16: TensorProto.UINT16, 32: TensorProto.UINT32, 64: TensorProto.UINT64}


@down(28, "BitShift")
def shifts_of_signed(node: Node, change: Change, rw: Rewriter) -> Step:
    """Shift to the left as unsigned integers; to the right x if x >= 0, otherwise -1 - ((-1 - x) >> y)."""
    x, y = node.operand(0), node.operand(1)
    kind = number_like(x, 0).dtype
    if kind.kind != "i":
        return automatic.down(node, change, rw)
    unsigned, direction = _UNSIGNED[8 * kind.itemsize], node.attr("direction")
    by = rw.op("Cast", y, to=unsigned)
    if direction == "LEFT":
        shifted = rw.op("BitShift", rw.op("Cast", x, to=unsigned), by, direction=direction)
        rw.replace(node, [rw.op("Cast", shifted, to=x.dtype)])
        return None
    wide, minus_one = rw.op("Cast", x, to=TensorProto.INT64), np.asarray(-1, np.int64)
    negative = rw.op("Less", wide, np.asarray(0, np.int64))
    positive = rw.op("Where", negative, rw.op("Sub", minus_one, wide), wide)
    shifted = rw.op("BitShift", rw.op("Cast", positive, to=unsigned), by, direction=direction)
    result = rw.op("Cast", shifted, to=TensorProto.INT64)
    rw.replace(node, [rw.op("Cast", rw.op("Where", negative, rw.op("Sub", minus_one, result), result), to=x.dtype)])
    return None


@down(11, "BitShift")
def by_powers_of_two(node: Node, change: Change, rw: Rewriter) -> None:
    """Shift to the right by dividing by 2^y, to the left by multiplying; the cast drops the upper bits.

    A shift by at least the width of the type gives 0.
    """
    x, y = node.operand(0), node.operand(1)
    kind = number_like(x, 0).dtype
    bits = 8 * kind.itemsize
    far = rw.op("Greater", rw.op("Cast", y, to=TensorProto.DOUBLE), np.asarray(bits - 0.5, np.float64))
    near = rw.op("Where", far, np.asarray(0.0, np.float64), rw.op("Cast", y, to=TensorProto.DOUBLE))
    wide = TensorProto.UINT64 if bits > _MOST_BITS else TensorProto.INT64
    power = rw.op("Cast", rw.op("Pow", np.asarray(2.0, np.float64), near), to=wide)
    number = x if x.dtype == wide else rw.op("Cast", x, to=wide)
    shifted = rw.op("Mul" if node.attr("direction") == "LEFT" else "Div", number, power)
    kept = rw.op("Cast", rw.op("Not", far), to=wide)
    result = rw.op("Mul", shifted, kept)
    rw.replace(node, [result if x.dtype == wide else rw.op("Cast", result, to=x.dtype)])
