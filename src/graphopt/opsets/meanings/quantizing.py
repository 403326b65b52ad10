"""Quantization: scales along an axis, blocks of scales, and integers of other widths, by plain arithmetic before."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.opsets import automatic
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.elementary import number_type, rounded
from graphopt.opsets.meanings.registry import Step, down, number_like, typed
from graphopt.opsets.types import lacking
from graphopt.rewrite import Rewriter

_BOTH = ("DequantizeLinear", "QuantizeLinear")


@down(10, *_BOTH)
@down(13, *_BOTH)
def scales_along_an_axis(node: Node, change: Change, rw: Rewriter) -> Step:
    """One scale goes as it is, from opset 10 on; several along an axis are operands that broadcast."""
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
    assert shaped[0] is not None
    if node.op_type == "DequantizeLinear":
        rw.replace(node, [_dequantized(rw, x, shaped[0], shaped[1])])
        return None
    dtype = node.result.dtype
    if dtype is None or np.dtype(tensor_dtype_to_np_dtype(dtype)).kind not in "iu":
        raise Decline("it quantizes to no integers")
    rw.replace(node, [_quantized(rw, x, shaped[0], shaped[1], dtype)])
    return None


def _behind(rw: Rewriter, value: Value, axes: int) -> Value:
    """A value of one axis, with axes of size 1 behind."""
    if not axes or not value.dims():
        return value
    return rw.op("Reshape", value, np.asarray([-1] + [1] * axes, np.int64))


def _dequantized(rw: Rewriter, x: Value, scale: Value, zero: Value | None) -> Value:
    wide = rw.op("Cast", x, to=scale.dtype)
    if zero is not None:
        wide = rw.op("Sub", wide, rw.op("Cast", zero, to=scale.dtype))
    return rw.op("Mul", wide, scale)


def _quantized(rw: Rewriter, x: Value, scale: Value, zero: Value | None, dtype: int) -> Value:
    """Rounded to the nearest even, shifted, and kept within the integers of the type."""
    limits = np.iinfo(tensor_dtype_to_np_dtype(dtype))
    steps = rounded(rw.op("Div", x, scale), typed(rw, scale), number_type(scale))
    if zero is not None:
        steps = rw.op("Add", steps, rw.op("Cast", zero, to=scale.dtype))
    low, high = (number_like(scale, float(each)) for each in (limits.min, limits.max))
    return rw.op("Cast", rw.op("Clip", steps, min=low, max=high), to=dtype)


@down(21, *_BOTH)
def scales_of_blocks(node: Node, change: Change, rw: Rewriter) -> Step:
    """Scales of blocks are those of all their elements; the type of the result is that of a zero point."""
    block = node.attr("block_size", 0)
    if block:
        x, scale, zero = node.operand(0), node.operand(1), node.input(2)
        axis = x.axis(node.attr("axis", 1))
        size = x.size(axis)
        if node.op_type == "QuantizeLinear":
            raise Decline("block_size={} came with opset 21", block)
        whole = [
            None if each is None else rw.constant(np.repeat(each.array(), block, axis).take(range(size), axis))
            for each in (scale, zero)
        ]
        assert whole[0] is not None
        number = x.const()
        if number is not None and any(True for _ in lacking(node, change.before)):  # type: ignore[arg-type]  # the standard had it
            x = rw.constant(number.astype(np.int8 if number.dtype.name[0] == "i" else np.uint8))
            whole[1] = None if whole[1] is None else rw.constant(whole[1].array().astype(x.array().dtype))
        rw.replace(node, [_dequantized(rw, x, whole[0], whole[1])])
        return None
    stated = node.attr("output_dtype", 0)
    if stated and node.op_type == "QuantizeLinear":
        if node.input(2) is None:
            scale = node.operand(1)
            zeros = np.zeros([d if isinstance(d, int) else 0 for d in scale.dims()], tensor_dtype_to_np_dtype(stated))
            rw.set_inputs(node, {2: zeros}, output_dtype=None)
        else:
            rw.set_attr(node, output_dtype=None)
    return automatic.down(node, change, rw)


@down(23, *_BOTH)
def result_of_the_scale(node: Node, change: Change, rw: Rewriter) -> Step:
    """The result has the type of the scale, unless another is stated."""
    stated, scale = node.attr("output_dtype", 0), node.operand(1)
    if node.op_type == "DequantizeLinear" and stated:
        if stated != scale.dtype:
            attrs = {name: value for name, value in node.attrs.items() if name != "output_dtype"}
            rw.replace(node, [rw.op("Cast", rw.op(node.op_type, *node.inputs, **attrs), to=stated)])
            return None
        rw.set_attr(node, output_dtype=None)
    if node.attr("precision", 0) == scale.dtype:
        rw.set_attr(node, precision=None)
    return automatic.down(node, change, rw)


@down(10, "MatMulInteger")
def of_wider_integers(node: Node, change: Change, rw: Rewriter) -> None:
    """A product of double floats, which hold every sum of products of eight bits."""
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
    """The product of what the integers mean, quantized."""
    a, b = (
        rw.op("DequantizeLinear", node.operand(at), node.operand(at + 1), node.operand(at + 2)) for at in (0, 3)
    )  # fmt: skip
    scales = [node.operand(at) for at in (1, 4, 6)]
    if any(each.dims() not in ((), (1,)) for each in scales):
        raise Decline("it has scales of rows or columns")
    rw.replace(node, [rw.op("QuantizeLinear", rw.op("MatMul", a, b), scales[2], node.operand(7))])
