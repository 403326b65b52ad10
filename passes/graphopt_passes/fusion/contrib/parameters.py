"""Quantized tensors: scales and zero points in all forms found in models, and as operators take them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from onnx import TensorProto

from graphopt.analysis.budget import SMALL
from graphopt.operators.quantizing import is_in_singles
from graphopt.records import dataclass
from graphopt.rewrite import Decline, Node, Rewriter, Value
from graphopt_passes.fusion.contrib.operands import DOMAIN

BYTES: dict[int, type[np.uint8] | type[np.int8]] = {TensorProto.UINT8: np.uint8, TensorProto.INT8: np.int8}
WORDS = frozenset({TensorProto.UINT16, TensorProto.INT16})
_ORDINARY = (1e-12, 1e12)

_MOST_STEPS = 2.0**14
"""The most steps of the result that one step of an operand may be worth in sums and products to be exact."""

NARROW = frozenset(
    getattr(TensorProto, name) for name in ("INT2", "INT4", "UINT2", "UINT4") if hasattr(TensorProto, name)
)
"""Integer types of less than 8 bits, which fit into signed bytes; old versions of ONNX have none of 2 bits."""

_STORED: dict[int, type[np.generic]] = {
    **BYTES, **dict.fromkeys(NARROW, np.int8),
    TensorProto.INT32: np.int32, TensorProto.UINT16: np.uint16, TensorProto.INT16: np.int16,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Quantized:
    """A tensor of integers that stands for floats: `scale * (value - zero)`.

    Attributes:
        value: the integers.
        scale: the scale, finite and not zero: one number, or one for each position of `axis`.
        zero: the zero points, as many as there are scales.
        dtype: element type of `value`.
        axis: the axis along which `scale` varies, counted from the front; None when it is one number.
        given: the values that hold `scale` and `zero` in the model; the second is None where it is left out.
    """

    value: Value
    scale: np.ndarray
    zero: np.ndarray
    dtype: int
    axis: int | None
    given: tuple[Value, Value | None]

    def read(self, rw: Rewriter) -> tuple[Value, Value, Value]:
        """The three inputs of an operand of an operator on quantized values: integers, scale and zero point."""
        return self.value, *self.written(rw)

    def written(self, rw: Rewriter) -> tuple[Value, Value]:
        """Scale and zero point as all operators on quantized values take them.

        Neither is left out, and both have one shape: scalars per tensor, which some operators insist on, or vectors
        along an axis. The values of the model are used where they have that form.
        """
        return _formed(self.scale, self.given[0], self.axis, rw), _formed(self.zero, self.given[1], self.axis, rw)

    @property
    def is_whole(self) -> bool:
        """Whether it is quantized per tensor, not per position of an axis."""
        return self.axis is None

    def same_scale(self, other: Quantized) -> bool:
        """Whether both are quantized per tensor, and equal integers stand for equal floats in both."""
        alike = self.is_whole and other.is_whole and self.dtype == other.dtype
        return alike and bool(self.scale.item() == other.scale.item() and self.zero.item() == other.zero.item())

    @property
    def ordered(self) -> bool:
        """Whether larger integers stand for larger floats."""
        return bool(np.all(self.scale > 0))


def _formed(array: np.ndarray, given: Value | None, axis: int | None, rw: Rewriter) -> Value:
    shape = () if axis is None else (array.size,)
    if given is not None and given.shape == shape:
        return given
    return rw.constant(array.reshape(shape), like=given)


def quantization(node: Node, value: Value, dtype: int | None) -> Quantized:
    """Read the scale and zero point of a quantize or dequantize operator; the zero point may state the integer type.

    Declines if these are computed, or quantize in blocks, or if a scale is an extreme float32 number.
    """
    scale, zero = node.operand(1), node.input(2)
    scales = scale.array()
    if scales.dtype != np.float32 or node.attr("block_size", 0) or not is_in_singles(node):
        raise Decline("{} is not quantized with float32 scales per tensor or per axis", value.name)
    kind = zero.dtype if zero is not None else dtype
    stored = _STORED.get(kind) if kind is not None and value.dtype in (None, kind) else None
    if kind is None or stored is None or (kind in NARROW and not value.is_const):
        raise Decline("the element type of {} is not known, or not an integer of 8, 16 or 32 bits", value.name)
    zeros = node.array(2, np.zeros(scales.shape, stored))
    if zeros.size != scales.size or not scales.size or max(scales.ndim, zeros.ndim) > 1:
        raise Decline("the scale and zero point of {} have different shapes", value.name)
    if not are_ordinary(np.abs(scales)):
        raise Decline("a scale of {} is zero, not finite, too small or too large", value.name)
    found = Quantized(value, scales.reshape(-1), zeros.reshape(-1), kind, None, (scale, zero))
    if scales.size == 1:
        return found
    axis = int(node.attr("axis", 1))
    if value.is_const and value.size(axis) != scales.size:
        raise Decline("{} has {} scales for {} positions of axis {}", value.name, scales.size, value.size(axis), axis)
    return replace(found, axis=value.axis(axis) if axis < 0 else axis)


def are_ordinary(*scales: np.ndarray | float) -> bool:
    """Whether scales are positive, and products and quotients of a few neither overflow nor underflow in float32."""
    return all(np.all((scale >= _ORDINARY[0]) & (scale <= _ORDINARY[1])) for scale in scales)


def quantized(node: Node) -> Quantized:
    """The result of a `QuantizeLinear`; unsigned bytes where it states no type."""
    return quantization(node, node.result, int(node.attr("output_dtype", 0)) or TensorProto.UINT8)


def other_bytes(array: np.ndarray) -> np.ndarray:
    """Signed bytes as unsigned ones, or vice versa, moved by 128; their zero point is moved likewise."""
    wide = array.astype(np.int16)
    return (wide - 128).astype(np.int8) if array.dtype == np.uint8 else (wide + 128).astype(np.uint8)


def dequantized(value: Value) -> Quantized:
    """The operand of the `DequantizeLinear` that gives a value; declines without a reason if there is none."""
    node = value.made_by("DequantizeLinear", f"{DOMAIN}::DequantizeLinear")
    if node is None:
        raise Decline
    integers = node.operand(0)
    return quantization(node, integers, integers.dtype)


def with_other_sign(weight: Quantized, rw: Rewriter) -> Quantized:
    """A constant weight of signed bytes as unsigned ones, or the reverse, which represent the same floats."""
    value = rw.constant(other_bytes(weight.value.array()), like=weight.value)
    dtype = TensorProto.UINT8 if weight.dtype == TensorProto.INT8 else TensorProto.INT8
    return replace(weight, value=value, zero=other_bytes(weight.zero), dtype=dtype, given=(weight.given[0], None))


def floats_of(integers: Quantized) -> np.ndarray:
    """The floats that constant integers stand for, computed as the kernel does."""
    array = integers.value.array()
    behind = array.ndim - 1 - integers.axis if integers.axis is not None else 0
    wide = (-1, *(1,) * behind) if integers.axis is not None else ()
    distance = array.astype(np.int32) - integers.zero.reshape(wide).astype(np.int32)
    return np.asarray(distance.astype(np.float32) * integers.scale.reshape(wide), np.float32)


def check_not_tied(stored: Value, node: Node) -> None:
    """Decline if others, such as an embedding, read a large constant, which would be stored a second time."""
    tensor = stored.constant_tensor
    if tensor is None or tensor.nbytes <= SMALL:
        return
    read = [stored, *(user.result for user in stored.users if user.op == "DequantizeLinear")]
    others = {user.op for value in read for user in value.users} - {"DequantizeLinear", node.op}
    if others or any(value.output_count for value in read):
        raise Decline("{} has other readers, so that it would be stored twice", stored.name)


def check_per_tensor(operands: list[Quantized]) -> None:
    """Decline unless all operands are quantized per tensor, to one type."""
    for operand in operands:
        if not operand.is_whole or operand.dtype != operands[0].dtype:
            raise Decline("{} is not quantized per tensor, or has another type", operand.value.name)


def check_steps(op_type: str, scales: Sequence[float], step: float, result: Value) -> None:
    """Decline if a step of an operand of `QLinearAdd` or `QLinearMul` is worth too many steps of the result.

    Their kernels apply zero points in float32, which loses digits of large numbers, and convert results to 32-bit
    integers before these saturate to bytes: what does not fit becomes the smallest byte. The kernels of sums of
    products, and the tables of functions and of `QLinearConcat`, saturate floats.
    """
    worth = [math.prod(scales)] if op_type == "QLinearMul" else scales
    most = max(abs(size / step) for size in worth) if step else math.inf
    if most > _MOST_STEPS:
        raise Decline(
            "the scale of an operand is {:.4g} times that of {}, where the kernel is not exact", most, result.name
        )
