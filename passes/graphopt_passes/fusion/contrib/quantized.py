"""Operators between dequantize and quantize, replaced with operators on the quantized values."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from onnx import TensorProto

from graphopt.ir.types import element_count
from graphopt.operators.window import Window, settings_of
from graphopt.rewrite import Decline, Node, Numerics, Outcome, Rewriter, Value
from graphopt_passes.fusion.contrib.averages import AVERAGES
from graphopt_passes.fusion.contrib.limits import LIMITS, bounded, check_gathered, limit
from graphopt_passes.fusion.contrib.moves import DATA, MOVES, Maker, moved
from graphopt_passes.fusion.contrib.operands import DOMAIN, OnIntegers, may_sum_nothing
from graphopt_passes.fusion.contrib.parameters import (
    BYTES,
    NARROW,
    Quantized,
    are_ordinary,
    check_per_tensor,
    check_steps,
    dequantized,
    floats_of,
    quantized,
    with_other_sign,
)
from graphopt_passes.fusion.contrib.requantize import hard_sigmoid, scaled
from graphopt_passes.fusion.contrib.sums import is_depthwise, rows_of, sums_bytes_exactly

_DEQUANTIZE = ("DequantizeLinear", f"{DOMAIN}::DequantizeLinear")
_LARGEST = 2**31 - 1
_NOTHING = 1 / 64
"""A difference of this many quantization steps cannot be told from rounding."""
_SHORTEST_PIECE = 32
"""If pieces of a transposed convolution's result are shorter, moving them side by side takes longer than the kernel for
floats; from here on that and the product took 0.2 to 0.8 of its time, on a Zen 5."""
_OF_ANY_TYPE = frozenset(
    {"Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)
"""Moves whose kernels take 16-bit integers, too."""


class FuseQdqIntoOp(OnIntegers):
    """Replace an operator between dequantize and quantize with the operator on quantized values.

    Convolutions, `Gemm`, `MatMul`, `Add`, `Mul`, means of images, `Sigmoid`, `HardSigmoid`, `LeakyRelu` and `Concat`
    have such operators; those that only move data, and `MaxPool`, take the integers if both sides have the same scale.
    An average pool becomes a depthwise convolution, a transposed convolution whose windows lie side by side a product
    per position. Integer sums are exact, so that a value between two integers may be rounded to the other one.
    `Relu` and `Clip` that limit more than the integer range does, as where the zero point is in its middle, become a
    `Clip` of integers, after the operator that they limit or on their own.
    `Softmax` is left alone, since its kernel for integers does not round to the nearest. Signed weights become unsigned
    where the processor would add pairs of their products in 16 bits and one of these might not fit, and are left alone
    if they are not constant. Weights of 7 bits always fit.
    """

    # No pattern: the operators between have any number of operands, and a table states their replacements.
    ops = ("QuantizeLinear", "com.microsoft::QuantizeLinear")
    numerics = Numerics.ROUNDING
    peers = {"onnxruntime": "QDQSelectorActionTransformer"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        return rw.replace(node, [_quantized(node.operand(0), node, quantized(node), rw)])


def _quantized(value: Value, reader: Node, output: Quantized, rw: Rewriter) -> Value:
    """The integers of a value with only one reader."""
    op = value.made_by(*_MAKERS)
    if op is None:
        raise Decline
    limited = op.op in LIMITS and not op.operand(0).made_by(*_DEQUANTIZE, *LIMITS)
    operands = [] if limited else _operands(op)
    value.sole_source(op.op, reader=reader)
    if limited:
        return limit(_quantized(op.operand(0), op, output, rw), op, output, rw)
    fits = output.dtype in BYTES or (output.dtype is not None and op.op in _OF_ANY_TYPE)
    if not output.is_whole or not fits or operands[0].dtype != output.dtype:
        raise Decline(
            "{} is not quantized per tensor to the 8-bit type of {}", output.value.name, operands[0].value.name
        )
    return _MAKERS[op.op](op, operands, output, rw)


def _operands(op: Node) -> list[Quantized]:
    """The quantized forms of the data operands of an operator; declines without a reason if none is dequantized."""
    values = [value for value in op.inputs[_OPERANDS.get(op.op, slice(None))] if value is not None]
    there = [value for value in values if value.made_by(*_DEQUANTIZE)]
    if not there:
        raise Decline
    operands = [dequantized(value) for value in there]
    if len(there) < len(values):
        raise Decline("not all inputs of {} are dequantized", op.op)
    return operands


def taken(op: Node, x: Quantized, weight: Quantized, axis: int, rw: Rewriter) -> Quantized:
    """A weight as kernels take it: bytes with scales along one axis at most and one zero point, summed exactly."""
    if not x.is_whole:
        raise Decline("{} is not quantized per tensor", x.value.name)
    weight = _widened(weight, rw)
    if weight.dtype not in BYTES or (x.dtype == TensorProto.INT8 and weight.dtype != TensorProto.INT8):
        raise Decline("the kernel does not support the element type of {}", weight.value.name)
    if weight.axis is not None and (weight.axis != axis or not weight.value.is_const):
        raise Decline("{} is quantized along another axis", weight.value.name)
    if np.any(weight.zero != weight.zero[0]):
        raise Decline("{} does not hold a single zero point", weight.value.name)
    if x.dtype == weight.dtype or (op.op == "Conv" and is_depthwise(int(op.attr("group", 1)), weight.value.shape)):
        return weight
    array = weight.value.const()
    if sums_bytes_exactly(array, rw.target, partial(rows_of, op)):
        return weight
    if array is None:
        raise Decline("the processor accumulates products with {} in 16 bits, which may overflow", weight.value.name)
    return with_other_sign(weight, rw)


def _widened(weight: Quantized, rw: Rewriter) -> Quantized:
    """A constant weight of less than 8 bits as signed bytes, which stand for the same floats."""
    if weight.dtype not in NARROW:
        return weight
    value = rw.constant(weight.value.array().astype(np.int8), like=weight.value)
    zero = weight.zero.astype(np.int8)
    return replace(weight, value=value, zero=zero, dtype=TensorProto.INT8, given=(weight.given[0], None))


def _bias(op: Node, x: Quantized, weight: Quantized, output: Quantized, rw: Rewriter) -> Value | None:
    """The bias of a sum of products, as integers in units of these, up to a negligible error; None if there is none."""
    given = op.input(2)
    if given is None:
        return None
    units = x.scale.astype(np.float64) * weight.scale
    if not given.made_by(*_DEQUANTIZE):
        return _in_units(given, given.array(), units, output, rw)
    bias = dequantized(given)
    array = bias.value.array()
    if array.ndim != 1 or bias.axis not in (None, 0):
        raise Decline("{} is not a constant vector", bias.value.name)
    alike = np.allclose(bias.scale, units, rtol=1e-4, atol=0.0)
    if bias.dtype != TensorProto.INT32 or bias.zero.any() or not alike:
        return _in_units(bias.value, floats_of(bias), units, output, rw)
    off = np.abs(array) * np.abs(bias.scale - units) / np.abs(output.scale)
    if off.max(initial=0.0) > _NOTHING:
        raise Decline("the scale of {} is not the product of the scales of the operands", bias.value.name)
    return bias.value


def _in_units(bias: Value, array: np.ndarray, units: np.ndarray, output: Quantized, rw: Rewriter) -> Value:
    """A constant bias of floats as integers in `units`; declines if the error is not negligible."""
    if array.dtype != np.float32 or array.ndim != 1 or units.size not in (1, array.size):
        raise Decline("{} is not float32 with one number per channel", bias.name)
    with np.errstate(all="ignore"):
        steps = np.rint(array / units)
        off = np.abs(steps * units - array) / np.abs(output.scale)
    if not np.all((np.abs(steps) <= _LARGEST) & (off <= _NOTHING)):
        raise Decline("{} is not an int32 multiple of the product of the operand scales", bias.name)
    return rw.constant(steps.astype(np.int32), like=bias)


def _product(
    op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter, *, scales: int, added: tuple[int, ...],
    inner: int | None = None,
) -> tuple[Quantized, Value | None]:  # fmt: skip
    """The weight of a sum of products of integers, and its bias, None if it has none.

    The scales of the weight may vary along its axis `scales`; its axes `added` are summed over, and so is the axis
    `inner` of the left operand, None for convolutions, whose weights determine it.
    """
    x = operands[0]
    weight = taken(op, x, operands[1], scales, rw)
    bias = _bias(op, x, weight, output, rw)
    check_range(x, weight, bias, added)
    sizes = [[weight.value.dim(axis)] for axis in added] or [[None]]
    if inner is not None:
        sizes[0].append(x.value.dim(inner))
    if any(may_sum_nothing(size, op.outputs[0]) for size in sizes):
        raise Decline("{} may sum over no elements", output.value.name)
    return weight, bias


def check_range(x: Quantized, weight: Quantized, bias: Value | None, added: tuple[int, ...]) -> None:
    """Decline unless sums of products along the axes `added` of the weight, plus a bias, fit into 32 bits."""
    start = np.int64(0) if bias is None else np.abs(np.asarray(bias.const(), np.int64))
    most = int(_farthest(x)) * int(_farthest(weight))
    terms = element_count(map(weight.value.dim, added))
    if terms * most + int(np.max(start, initial=0)) <= _LARGEST:
        return
    array = weight.value.const()
    if array is not None:
        distances = np.abs(array.astype(np.int16) - weight.zero[0].astype(np.int16))
        sums = distances.sum(axis=added, dtype=np.int64) * _farthest(x)
        if int(np.max(sums + start, initial=0)) <= _LARGEST:
            return
    raise Decline("a sum of products with {} may overflow int32", weight.value.name)


def _farthest(operand: Quantized) -> np.int64:
    """The largest distance of a byte of an operand from its zero point."""
    ends = np.iinfo(BYTES[operand.dtype])
    zero = int(operand.zero[0])
    return np.int64(max(ends.max - zero, zero - ends.min))


def _conv(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    x = operands[0]
    check_gathered(op, operands[1].value)
    inner = tuple(range(1, operands[1].value.rank or 1))
    weight, bias = _product(op, operands, output, rw, scales=0, added=inner)
    attrs = {"group": op.attrs.get("group"), **settings_of(op)}
    return rw.op("QLinearConv", *x.read(rw), *weight.read(rw), *output.written(rw), bias, **attrs)


def _conv_transpose(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    """A transposed convolution whose windows lie side by side: a product per position, with the results rearranged.

    The channels are last, so that the pieces that are moved are as long as possible, and the product is fastest.
    """
    x, weight = operands
    (inputs, outputs), size = weight.value.array().shape[:2], side_by_side(op, weight.value)
    weight, bias = _product(op, operands, output, rw, scales=1, added=(0,))
    laid = _laid(x.value, size, outputs)
    flat = weight.value.array().transpose(2, 3, 1, 0).reshape(-1, inputs, 1, 1)
    repeated = [row if weight.is_whole else np.tile(row, size * size) for row in (weight.scale, weight.zero)]
    wide = replace(
        weight, value=rw.constant(flat, like=weight.value), scale=repeated[0], zero=repeated[1],
        axis=None if weight.is_whole else 0,
    )  # fmt: skip
    added = None if bias is None else rw.constant(np.tile(bias.array(), size * size), like=bias)
    last = rw.op("Transpose", x.value, perm=(0, 2, 3, 1))
    made = rw.op(
        "QLinearConv", last, *x.written(rw), *wide.read(rw), *output.written(rw), added, domain=DOMAIN, channels_last=1
    )
    apart = rw.op("Transpose", _reshape(made, (0, 0, 0, size, size, outputs), rw), perm=(0, 1, 3, 2, 4, 5))
    return rw.op("Transpose", _reshape(apart, laid, rw), perm=(0, 3, 1, 2))


def _laid(x: Value, size: int, outputs: int) -> tuple[int, ...]:
    """The shape of the enlarged image, channels last; a size is -1 only if no other may be 0."""
    shape = x.shape
    batch, height, width = (shape[0], shape[2], shape[3]) if shape is not None and len(shape) == 4 else (None,) * 3
    if isinstance(width, int) and isinstance(height, int):
        return 0, height * size, width * size, outputs
    if not isinstance(width, int) and not isinstance(height, int):
        raise Decline("neither the height nor the width of {} is known", x.name)
    if not isinstance(batch, int) or 0 in (batch, height, width):
        raise Decline("{} may be empty", x.name)
    if isinstance(width, int):
        return batch, -1, width * size, outputs
    assert isinstance(height, int)
    return batch, height * size, -1, outputs


def _reshape(value: Value, sizes: tuple[int, ...], rw: Rewriter) -> Value:
    return rw.op("Reshape", value, rw.constant(np.array(sizes, np.int64)))


def side_by_side(op: Node, weight: Value) -> int:
    """The size of the square windows of a transposed convolution of images, which lie side by side.

    Declines if windows overlap or leave gaps, or if a row of their results is too short.
    """
    kernel = weight.sizes()[2:]
    window = Window.of(op, kernel)
    padded = window.same or any((*window.before, *window.after, *(op.attr("output_padding") or ())))
    apart = any(step != 1 for step in window.dilations)
    if padded or apart or op.attr("output_shape") or kernel != window.strides or len(set(kernel)) != 1:
        raise Decline("the windows of {} are not adjacent squares", op.result.name)
    if len(kernel) != 2 or op.attr("group", 1) != 1 or 0 in weight.sizes():
        raise Decline("{} is not an ungrouped two-dimensional convolution", op.result.name)
    size, outputs = int(window.strides[0]), weight.size(1)
    if size * outputs < _SHORTEST_PIECE:
        raise Decline("the contiguous pieces of {} bytes are too short to move", size * outputs)
    return size


def _gemm(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    x = operands[0]
    trans = int(op.attr("transB", 0))
    if op.attr("alpha", 1.0) != 1.0 or (op.input(2) is not None and op.attr("beta", 1.0) != 1.0):
        raise Decline("alpha or beta is not 1")
    inner = 0 if op.attr("transA", 0) else 1
    weight, bias = _product(op, operands, output, rw, scales=1 - trans, added=(trans,), inner=inner)
    return rw.op(
        "QGemm", *x.read(rw), *weight.read(rw), bias, *output.written(rw), domain=DOMAIN,
        transA=int(op.attr("transA", 0)), transB=trans, alpha=1.0,
    )  # fmt: skip


def _matmul(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    x, weight = operands
    rank = weight.value.rank
    if not weight.is_whole and rank != 2:
        raise Decline("{} is not a matrix", weight.value.name)
    rows = () if rank is None else (max(rank - 2, 0),)
    weight, _ = _product(op, operands, output, rw, scales=1, added=rows, inner=-1)
    return rw.op("QLinearMatMul", *x.read(rw), *weight.read(rw), *output.written(rw))


def _plain(attributes: dict[str, Any] | None = None) -> Maker:
    """The maker of the operator with the prefix `QLinear`, on tensors of one type."""

    def make(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
        check_per_tensor(operands)
        if op.op_type in ("Add", "Mul"):
            scales = [float(x.scale.item()) for x in operands]
            check_steps(f"QLinear{op.op_type}", scales, float(output.scale.item()), output.value)
        attrs = {name: op.attr(name, default) for name, default in (attributes or {}).items()}
        reads = [part for operand in operands for part in operand.read(rw)]
        return rw.op(f"QLinear{op.op_type}", *reads, *output.written(rw), domain=DOMAIN, **attrs)

    return make


def _mul(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    """`Mul`; a product with one number is a scale."""
    check_per_tensor(operands)
    for x, number in (operands, operands[::-1]):
        array, rank = number.value.const(), x.value.rank
        if array is None or array.size != 1 or rank is None or array.ndim > rank or not output.ordered:
            continue
        slope = (int(array.item()) - int(number.zero.item())) * float(number.scale.item())
        if slope > 0 and x.ordered and are_ordinary(slope * float(x.scale.item())):
            return scaled(x, slope, 0.0, output, rw)
    return _plain()(op, operands, output, rw)


def _concat(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    check_per_tensor(operands)
    if all(operand.same_scale(output) for operand in operands):
        return moved(op, operands, output, rw)
    if output.dtype not in BYTES:
        raise Decline("the scales before and after Concat differ, where its kernel takes 8-bit integers only")
    if op.graph.in_function:
        raise Decline("ONNX Runtime infers a wrong type for QLinearConcat in a function")
    reads = [part for operand in operands for part in operand.read(rw)]
    return rw.op("QLinearConcat", *output.written(rw), *reads, domain=DOMAIN, axis=op.attr("axis"))


_OPERANDS = {
    **DATA, **dict.fromkeys(LIMITS, slice(1)),
    "Conv": slice(2), "ConvTranspose": slice(2), "Gemm": slice(2), "ReduceMean": slice(1),
}  # fmt: skip
"""The inputs of an operator that must be dequantized, by default all. A bias is handled separately."""

_MAKERS: dict[str, Maker] = {
    "Conv": _conv, "ConvTranspose": _conv_transpose, "Gemm": _gemm, "MatMul": _matmul,
    "Add": _plain(), "Mul": _mul, "Sigmoid": _plain(),
    "LeakyRelu": _plain({"alpha": 0.01}), "Concat": _concat, "HardSigmoid": hard_sigmoid,
    **dict.fromkeys(LIMITS, bounded), **AVERAGES, **MOVES,
}  # fmt: skip
