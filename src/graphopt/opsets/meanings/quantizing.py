"""Quantization: scales per axis and per block, and other integer types, written out in arithmetic if not supported."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from graphopt.errors import Decline
from graphopt.ir import HALF_TYPES, Node, Value
from graphopt.opsets import automatic
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.elementary import rounded
from graphopt.opsets.meanings.registry import Step, down, of_kind, up
from graphopt.opsets.types import lacking
from graphopt.rewrite import Rewriter

_BOTH = ("DequantizeLinear", "QuantizeLinear")


@down(10, *_BOTH)
@down(13, *_BOTH)
def scales_along_an_axis(node: Node, change: Change, rw: Rewriter) -> Step:
    """Keep a single scale from opset 10 on; write out scales along an axis, as operands that broadcast."""
    x, scale = node.operand(0), node.operand(1)
    dims = scale.dims()
    single = not dims or dims == (1,)
    if single and change.before is not None:
        if "axis" in node.attrs:
            rw.set_attr(node, axis=None)
        return automatic.down(node, change, rw)
    axis = x.axis(node.attr("axis", 1)) if not single else 0
    behind = len(x.dims()) - axis - 1 if not single else 0
    shaped = [None if each is None else _behind(rw, each, behind) for each in (scale, node.input(2))]
    _by_arithmetic(node, rw, shaped[0] or scale, shaped[1])
    return None


def _behind(rw: Rewriter, value: Value, axes: int) -> Value:
    """A value of rank 1 with axes of size 1 appended."""
    if not axes or not value.dims():
        return value
    return rw.op("Reshape", value, np.asarray([-1] + [1] * axes, np.int64))


def _by_arithmetic(node: Node, rw: Rewriter, scale: Value, zero: Value | None) -> None:
    """Write out (q - zero) * scale, or clip(round(x / scale) + zero) with ties to even; scale and zero broadcast."""
    x = node.operand(0)
    stated, dtype = node.operand(1).element_type(), node.result.dtype
    kind = stated if stated == TensorProto.DOUBLE else TensorProto.FLOAT  # half precision is too short for int16
    scale = scale if stated == kind else rw.op("Cast", scale, to=kind)
    if node.op_type == "DequantizeLinear":
        wide = rw.op("Cast", x, to=kind)
        if zero is not None:
            wide = rw.op("Sub", wide, rw.op("Cast", zero, to=kind))
        result = rw.op("Mul", wide, scale)
        rw.replace(node, [result if stated == kind else rw.op("Cast", result, to=stated)])
        return
    if dtype is None or np.dtype(tensor_dtype_to_np_dtype(dtype)).kind not in "iu" or x.dtype != stated:
        raise Decline("it does not quantize to an integer type of whole bytes")
    limits = np.iinfo(tensor_dtype_to_np_dtype(dtype))
    number = tensor_dtype_to_np_dtype(kind)
    wide = x if stated == kind else rw.op("Cast", x, to=kind)
    steps = rounded(rw.op("Div", wide, scale), of_kind(rw, number), kind)
    if zero is not None:
        steps = rw.op("Add", steps, rw.op("Cast", zero, to=kind))
    low, high = (np.asarray(each, number) for each in (limits.min, limits.max))
    rw.replace(node, [rw.op("Cast", rw.op("Clip", steps, min=low, max=high), to=dtype)])


@down(21, *_BOTH)
def scales_of_blocks(node: Node, change: Change, rw: Rewriter) -> Step:
    """Expand scales of blocks to all elements; turn output_dtype into a zero point of that type."""
    block, x, scale, zero = node.attr("block_size", 0), node.operand(0), node.operand(1), node.input(2)
    if block:
        axis = x.axis(node.attr("axis", 1))
        blocks = np.arange(x.size(axis), dtype=np.int64) // block
        number = x.const()
        if number is not None and any(True for _ in lacking(node, change.before)):  # type: ignore[arg-type]  # the standard had it
            wide = np.int8 if number.dtype.name[0] == "i" else np.uint8
            rw.set_inputs(node, {0: number.astype(wide)} | ({} if zero is None else {2: zero.array().astype(wide)}))
        zero = node.input(2)
        of_elements = [None if each is None else _taken(rw, each, blocks, axis) for each in (scale, zero)]
        _by_arithmetic(node, rw, of_elements[0] or scale, of_elements[1])
        return None
    # Between casts `DequantizeLinear` would take int32, for which the standard allows no zero point.
    read = node.op_type == "DequantizeLinear"
    narrow = (x if read else node.result).dtype in (TensorProto.INT16, TensorProto.UINT16)
    narrow = narrow and not (read and (zero is None or zero.holds(0)))
    if narrow and any(True for _ in lacking(node, change.before)):  # type: ignore[arg-type]  # the standard had it
        behind = len(x.dims()) - x.axis(node.attr("axis", 1)) - 1 if scale.dims() not in ((), (1,)) else 0
        _by_arithmetic(node, rw, _behind(rw, scale, behind), None if zero is None else _behind(rw, zero, behind))
        return None
    stated = node.attr("output_dtype", 0)
    if stated and node.op_type == "QuantizeLinear":
        if node.input(2) is None:
            rw.set_inputs(node, {2: _zeros_like(rw, scale, stated)}, output_dtype=None)
        else:
            rw.set_attr(node, output_dtype=None)
    return automatic.down(node, change, rw)


def _zeros_like(rw: Rewriter, x: Value, dtype: int) -> Value | np.ndarray:
    """Zeros in the shape of a value, of another type."""
    kind, sizes = tensor_dtype_to_np_dtype(dtype), x.dims()
    if all(isinstance(size, int) for size in sizes):
        return np.zeros([size for size in sizes if isinstance(size, int)], kind)
    return rw.op("ConstantOfShape", rw.op("Shape", x), value=np.zeros(1, kind))


def _taken(rw: Rewriter, value: Value, places: np.ndarray, axis: int) -> Value:
    """Expand values per block to elements, given the block number of each."""
    known = value.const()
    return rw.op("Gather", value, places, axis=axis) if known is None else rw.constant(known.take(places, axis))


@up(23, "QuantizeLinear")
def divided_in_single_floats(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """State float precision for half-precision scales: before the runtime divided in float, now by default in half."""
    scale = node.operand(1)
    dtype = scale.element_type()
    yield
    if dtype in HALF_TYPES:
        rw.set_attr(node, precision=TensorProto.FLOAT)


@down(23, *_BOTH)
def result_of_the_scale(node: Node, change: Change, rw: Rewriter) -> Step:
    """Convert output types and precisions other than the type of the scale."""
    stated, scale = node.attr("output_dtype", 0), node.operand(1)
    if node.op_type == "DequantizeLinear" and stated:
        if stated != scale.dtype:
            # Computed in float, the result is rounded once, to the stated type.
            wide = scale if scale.dtype == TensorProto.FLOAT else rw.op("Cast", scale, to=TensorProto.FLOAT)
            result = rw.again(node, node.operand(0), wide, *node.inputs[2:], output_dtype=None)
            rw.replace(node, [result if stated == TensorProto.FLOAT else rw.op("Cast", result, to=stated)])
            return None
        rw.set_attr(node, output_dtype=None)
    in_halves = scale.dtype in HALF_TYPES and node.operand(0).dtype == scale.dtype
    if node.op_type == "QuantizeLinear" and in_halves and node.attr("precision", 0) in (0, scale.dtype):
        _by_quotient(node, scale, rw)
        return None
    in_singles = scale.dtype in HALF_TYPES and node.attr("precision", 0) == TensorProto.FLOAT
    if node.attr("precision", 0) == scale.dtype or in_singles:
        rw.set_attr(node, precision=None)
    return automatic.down(node, change, rw)


def _by_quotient(node: Node, scale: Value, rw: Rewriter) -> None:
    """Divide in half precision first, and quantize the quotient with scale 1: older opsets would divide in float."""
    x, sizes = node.operand(0), scale.sizes()
    if node.attr("block_size", 0):
        raise Decline("{} is quantized per block in float16", x.name)
    single = sizes in ((), (1,))
    behind = 0 if single else len(x.dims()) - x.axis(node.attr("axis", 1)) - 1
    steps = np.ones(sizes, tensor_dtype_to_np_dtype(scale.dtype or 0))
    # The next step drops the precision, which does not matter for a division by 1.
    attrs = {**node.attrs, "precision": TensorProto.FLOAT}
    quotient = rw.op("Div", x, _behind(rw, scale, behind))
    rw.replace(node, [rw.op("QuantizeLinear", quotient, steps, *node.inputs[2:], **attrs)])


@down(10, "MatMulInteger")
def of_wider_integers(node: Node, change: Change, rw: Rewriter) -> None:
    """Compute the product in double, which represents every sum of 8-bit products exactly."""
    operands = []
    for index in (0, 1):
        wide = rw.op("Cast", node.operand(index), to=TensorProto.INT32)
        zero = node.input(index + 2)
        if zero is not None:
            if len(zero.dims()) == 1 and zero.dims() != (1,) and index == 0:
                zero = rw.op("Unsqueeze", zero, axes=[1])
            wide = rw.op("Sub", wide, rw.op("Cast", zero, to=TensorProto.INT32))
        operands.append(rw.op("Cast", wide, to=TensorProto.DOUBLE))
    rw.replace(node, [rw.op("Cast", rw.op("MatMul", *operands), to=TensorProto.INT32)])


@down(10, "QLinearMatMul")
def of_dequantized(node: Node, change: Change, rw: Rewriter) -> None:
    """Dequantize the operands, multiply, and quantize the result."""
    a, b = (
        rw.op("DequantizeLinear", node.operand(at), node.operand(at + 1), node.operand(at + 2)) for at in (0, 3)
    )  # fmt: skip
    scales = [node.operand(at) for at in (1, 4, 6)]
    if any(each.dims() not in ((), (1,)) for each in scales):
        raise Decline("its scales are not per tensor")
    rw.replace(node, [rw.op("QuantizeLinear", rw.op("MatMul", a, b), scales[2], node.operand(7))])


_EXACT, _BYTE = 1 << 24, 255
"""The bound up to which float represents all integers, and the largest difference of two bytes."""


@down(10, "ConvInteger")
def of_single_floats(node: Node, change: Change, rw: Rewriter) -> None:
    """Compute the convolution in float if all sums are exact; if not, split bytes in upper and lower 4 bits."""
    x, weight = (_less_zero_point(rw, node, index) for index in (0, 1))
    taps = math.prod(node.operand(1).sizes()[1:])
    if taps * _BYTE * 15 > _EXACT:
        raise Decline("there is no ConvInteger before opset 10, and sums of {} products are not exact in float32", taps)
    parts: list[tuple[int, Value]] = [(1, x)]
    if taps * _BYTE * _BYTE > _EXACT:
        sixteen = np.asarray(16, np.int32)
        high = rw.op("Div", x, sixteen)
        parts = [(16, high), (1, rw.op("Sub", x, rw.op("Mul", high, sixteen)))]
    total: Value | None = None
    for times, part in parts:
        wide = [rw.op("Cast", each, to=TensorProto.FLOAT) for each in (part, weight)]
        found = rw.op("Cast", rw.op("Conv", *wide, **node.attrs), to=TensorProto.INT32)
        found = rw.op("Mul", found, np.asarray(times, np.int32)) if times > 1 else found
        total = found if total is None else rw.op("Add", total, found)
    assert total is not None
    rw.replace(node, [total])


def _less_zero_point(rw: Rewriter, node: Node, index: int) -> Value:
    """Bytes minus their zero point as int32; weights may have a zero point per channel."""
    wide, zero = rw.op("Cast", node.operand(index), to=TensorProto.INT32), node.input(index + 2)
    if zero is None:
        return wide
    shaped = _behind(rw, zero, len(node.operand(index).dims()) - 1)
    return rw.op("Sub", wide, rw.op("Cast", shaped, to=TensorProto.INT32))


@down(10, "QLinearConv")
def of_integers(node: Node, change: Change, rw: Rewriter) -> None:
    """Compute `ConvInteger`, multiply by both scales, and quantize."""
    x, x_scale, x_zero, weight, scale, zero, y_scale, y_zero = (node.operand(i) for i in range(8))
    behind, bias = len(x.dims()) - 2, node.input(8)
    sums = rw.op("ConvInteger", x, weight, x_zero, zero, **node.attrs)
    if bias is not None:
        sums = rw.op("Add", sums, _behind(rw, bias, behind))
    factor = rw.op("Mul", x_scale, _behind(rw, scale, behind))
    result = rw.op("Mul", rw.op("Cast", sums, to=scale.dtype), factor)
    rw.replace(node, [rw.op("QuantizeLinear", result, y_scale, y_zero)])
