"""Operators between dequantize and quantize, as operators on the quantized values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.rewrite import Level, Numerics, OpRule, Outcome, Rewriter
from graphopt.system.machine import host
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST, may_sum_nothing, sums_bytes_exactly
from graphopt_passes.fusion.contrib.parameters import BYTES, Quantized, dequantized, quantization

_DEQUANTIZE = ("DequantizeLinear", f"{DOMAIN}::DequantizeLinear")
_WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_SAFE = 64
"""Two products of an unsigned byte with a signed one up to this fit into 16 bits."""
_LARGEST = 2**31 - 1
_NOTHING = 1 / 64
"""A difference of so many quantization steps is none that could be told from rounding."""
_MOST_SUMMED = 2**24
_RATIOS = (2.0**-32, 2.0**8)
"""The kernel of QLinearGlobalAveragePool takes so many elements, and such quotients of scales by their number."""


Maker: TypeAlias = Callable[[Node, list[Quantized], Quantized, Rewriter], Value]


class FuseQdqIntoOp(OpRule):
    """Replace an operator between dequantize and quantize by the one on quantized values.

    Convolutions, `Gemm`, `MatMul`, `Add`, `Mul`, average pools, `Sigmoid`, `LeakyRelu` and `Concat` have such
    operators; those that only move data, and `MaxPool`, take the integers where both sides have one scale. The sums
    are exact then, so that a value between two integers may be rounded to the other one. `Softmax` is left alone, since
    the kernel for integers does not round to the nearest; so are weights whose products the processor cannot add.
    """

    # No pattern: the operators between have any number of operands, and what becomes of each is in a table.
    name = "fuse_qdq_into_op"
    ops = ("QuantizeLinear", "com.microsoft::QuantizeLinear")
    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = f"10-{NEWEST}"
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "QDQSelectorActionTransformer"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for an operator whose inputs are dequantized."""
        value = node.operand(0)
        op = value.made_by(*_MAKERS)
        if op is None:
            raise Decline
        operands = _operands(op)
        value.sole_source(op.op, reader=node)
        output = quantization(node, node.result, int(node.attr("output_dtype", 0)) or TensorProto.UINT8)
        if output.axis is not None or output.dtype not in BYTES or operands[0].dtype != output.dtype:
            raise Decline("{} is not quantized to bytes like {}", node.result.name, operands[0].value.name)
        return rw.replace(node, [_MAKERS[op.op](op, operands, output, rw)])


def _operands(op: Node) -> list[Quantized]:
    """What the operands of an operator are dequantized from, those that are data.

    Raises:
        Decline: without a reason where none is; not all of them are.
    """
    values = [value for value in op.inputs[: _DATA.get(op.op, len(op.inputs))] if value is not None]
    there = [value for value in values if value.made_by(*_DEQUANTIZE)]
    if not there:
        raise Decline
    operands = [dequantized(value) for value in there]
    if len(there) < len(values):
        raise Decline("not all inputs of {} are dequantized", op.op)
    return operands


def _check_per_tensor(operands: list[Quantized]) -> None:
    """See whether all operands are quantized as a whole, to one type.

    Raises:
        Decline: one is not.
    """
    for operand in operands:
        if operand.axis is not None or operand.dtype != operands[0].dtype:
            raise Decline("{} is not quantized as a whole, or to another type", operand.value.name)


def _check_weight(x: Quantized, weight: Quantized, axis: int, rw: Rewriter) -> None:
    """See whether kernels take a weight: bytes that vary along one axis at most, around one zero point.

    Raises:
        Decline: they do not.
    """
    if x.axis is not None:
        raise Decline("{} is not quantized as a whole", x.value.name)
    if weight.dtype not in BYTES or (x.dtype == TensorProto.INT8 and weight.dtype != TensorProto.INT8):
        raise Decline("{} has a type that the kernel does not take", weight.value.name)
    if weight.axis is not None and (weight.axis != axis or not weight.value.is_const):
        raise Decline("{} is quantized along another axis", weight.value.name)
    if np.any(weight.zero != weight.zero[0]):
        raise Decline("{} has several zero points", weight.value.name)
    if x.dtype == TensorProto.UINT8 and weight.dtype == TensorProto.INT8:
        array = weight.value.const()
        small = array is not None and bool(np.abs(array.astype(np.int16)).max(initial=0) <= _SAFE)
        if not small and not sums_bytes_exactly(rw.options.target or host()):
            raise Decline("the processor adds products with {} in 16 bits, which may overflow", weight.value.name)


def _check_bias(bias: Quantized, x: Quantized, weight: Quantized, output: Quantized) -> None:
    """See whether a bias is in units of the products, up to what does not show in the result.

    Raises:
        Decline: it is not.
    """
    array = bias.value.const()
    if bias.dtype != TensorProto.INT32 or array is None or array.ndim != 1 or bias.axis not in (None, 0):
        raise Decline("{} is not a constant vector of int32", bias.value.name)
    units = x.scale.astype(np.float64) * weight.scale
    off = np.abs(array) * np.abs(bias.scale - units) / np.abs(output.scale)
    alike = np.allclose(bias.scale, units, rtol=1e-4, atol=0.0)
    if bias.zero.any() or not alike or off.max(initial=0.0) > _NOTHING:
        raise Decline("{} is not in units of the products", bias.value.name)


@dataclass(frozen=True, slots=True)
class _Axes:
    """Along which axes a product adds up: those of its weight, and that of its left operand where there is one.

    Attributes:
        scales: the axis of the weight along which its scales may vary.
        added: axes of the weight.
        inner: the axis of the left operand; None for convolutions, whose weights tell.
    """

    scales: int
    added: tuple[int, ...]
    inner: int | None = None


def _check_product(op: Node, operands: list[Quantized], output: Quantized, axes: _Axes, rw: Rewriter) -> None:
    """See whether a sum of products, with a bias as third operand or without, is one of integers.

    Raises:
        Decline: it is not.
    """
    x, weight, *rest = operands
    _check_weight(x, weight, axes.scales, rw)
    for bias in rest:
        _check_bias(bias, x, weight, output)
    _check_range(x, weight, rest[0] if rest else None, axes.added)
    own, left = weight.value.shape, x.value.shape
    sizes = [[own[axis] if own is not None else None] for axis in axes.added] or [[None]]
    if axes.inner is not None:
        sizes[0].append(left[axes.inner] if left is not None else None)
    if any(may_sum_nothing(size, op.outputs[0]) for size in sizes):
        raise Decline("nothing may be left to add up in {}", output.value.name)


def _check_range(x: Quantized, weight: Quantized, bias: Quantized | None, added: tuple[int, ...]) -> None:
    """See whether sums of products along some axes of the weight, and a bias, fit into 32 bits.

    Raises:
        Decline: they may not.
    """
    start = np.int64(0) if bias is None else np.abs(np.asarray(bias.value.const(), np.int64))
    most = int(_farthest(x)) * int(_farthest(weight))
    shape = weight.value.shape
    sizes = [shape[axis] for axis in added] if shape is not None else []
    terms = math.prod(size for size in sizes if isinstance(size, int))
    if terms * most + int(np.max(start, initial=0)) <= _LARGEST:
        return
    array = weight.value.const()
    if array is not None:
        distances = np.abs(array.astype(np.int16) - weight.zero[0].astype(np.int16))
        sums = distances.sum(axis=added, dtype=np.int64) * _farthest(x)
        if int(np.max(sums + start, initial=0)) <= _LARGEST:
            return
    raise Decline("a sum of products with {} may not fit into 32 bits", weight.value.name)


def _farthest(operand: Quantized) -> np.int64:
    """How far from 0 the bytes of an operand may be."""
    ends = np.iinfo(BYTES[operand.dtype])
    zero = int(operand.zero[0])
    return np.int64(max(ends.max - zero, zero - ends.min))


def _conv(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    x, weight, *rest = operands
    _check_product(op, operands, output, _Axes(0, tuple(range(1, weight.value.rank or 1))), rw)
    attrs: dict[str, Any] = {name: op.attrs.get(name) for name in _WINDOW}
    inputs = (*x.read(rw), *weight.read(rw), *output.written(rw), *(bias.value for bias in rest))
    conv: Value = rw.op("QLinearConv", *inputs, **attrs)
    return conv


def _gemm(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    x, weight, *rest = operands
    trans = int(op.attr("transB", 0))
    if op.attr("alpha", 1.0) != 1.0 or (rest and op.attr("beta", 1.0) != 1.0):
        raise Decline("the product is scaled")
    axes = _Axes(0 if trans else 1, (trans,), 0 if op.attr("transA", 0) else 1)
    _check_product(op, operands, output, axes, rw)
    bias_value = rest[0].value if rest else None
    return rw.op(
        "QGemm", *x.read(rw), *weight.read(rw), bias_value, *output.written(rw), domain=DOMAIN,
        transA=int(op.attr("transA", 0)), transB=trans, alpha=1.0,
    )  # fmt: skip


def _matmul(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    x, weight = operands
    rank = weight.value.rank
    if weight.axis is not None and rank != 2:
        raise Decline("{} is not a matrix", weight.value.name)
    axes = _Axes(1, () if rank is None else (max(rank - 2, 0),), -1)
    _check_product(op, operands, output, axes, rw)
    return rw.op("QLinearMatMul", *x.read(rw), *weight.read(rw), *output.written(rw))


def _plain(attributes: dict[str, Any] | None = None) -> Maker:
    """The operator of the same name with `QLinear` before it, on tensors of one type."""

    def make(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
        _check_per_tensor(operands)
        attrs = {name: op.attr(name, default) for name, default in (attributes or {}).items()}
        reads = [part for operand in operands for part in operand.read(rw)]
        made: Value = rw.op(f"QLinear{op.op_type}", *reads, *output.written(rw), domain=DOMAIN, **attrs)
        return made

    return make


def _average_pool(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    if any(step != 1 for step in op.attr("dilations", ())):
        raise Decline("the kernel knows no dilations")
    if op.attr("ceil_mode", 0) and op.attr("count_include_pad", 0):
        raise Decline("what the last windows count is not what the kernel counts")
    names = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    return _plain(dict.fromkeys(names))(op, operands, output, rw)


def _global_average_pool(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    (x,) = operands
    shape = x.value.shape
    if x.axis is None:
        known = [size for size in (shape or ())[2:] if isinstance(size, int)]
        ratio = x.scale.item() / output.scale.item()
        # Sizes that are not known are taken for what an image may have.
        sizes = [math.prod(known)] if shape is not None and len(known) == len(shape) - 2 else [1, 2**20]
        if any(not _RATIOS[0] <= ratio / max(size, 1) < _RATIOS[1] or size >= _MOST_SUMMED for size in sizes):
            raise Decline("the kernel does not take the scales of {} and its mean", x.value.name)
    return _plain({"channels_last": 0})(op, operands, output, rw)


def _concat(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    _check_per_tensor(operands)
    if all(operand.same_scale(output) for operand in operands):
        return _moved(op, operands, output, rw)
    if op.graph.in_function:
        raise Decline("ONNX Runtime infers a wrong type for QLinearConcat in a function")
    reads = [part for operand in operands for part in operand.read(rw)]
    return rw.op("QLinearConcat", *output.written(rw), *reads, domain=DOMAIN, axis=op.attr("axis"))


def _moved(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    """The operator itself on the integers, where they stand for the same floats before and after."""
    _check_per_tensor(operands)
    if not all(operand.same_scale(output) for operand in operands):
        raise Decline("the scales before and after {} differ", op.op)
    inputs: list[Value | None] = [operand.value for operand in operands]
    made: Value = rw.op(op.op_type, *inputs, *op.inputs[len(inputs) :], **op.attrs)
    return made


def _max_pool(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    if op.graph.opset() < 12 or len(op.outputs) > 1:
        raise Decline("MaxPool takes no bytes before opset 12, and its indices are not kept")
    if not output.ordered:
        raise Decline("the scale of {} is negative: its largest integer is the smallest float", output.value.name)
    return _moved(op, operands, output, rw)


_DATA = dict.fromkeys(
    ("Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"), 1
)
"""Operators that move data, and how many of their inputs are that."""

_MAKERS: dict[str, Maker] = {
    "Conv": _conv, "Gemm": _gemm, "MatMul": _matmul, "Add": _plain(), "Mul": _plain(), "Sigmoid": _plain(),
    "LeakyRelu": _plain({"alpha": 0.01}), "GlobalAveragePool": _global_average_pool,
    "AveragePool": _average_pool, "Concat": _concat, "MaxPool": _max_pool,
    **dict.fromkeys(_DATA, _moved),
}  # fmt: skip
