"""Operators between dequantize and quantize, as operators on the quantized values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.ir import Node, Value
from graphopt.rewrite import Level, Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt.rewrite.target import host
from graphopt_passes.elimination.facts import only_reader
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST, first, sums_bytes_exactly

_BYTES: dict[int, type[np.generic]] = {TensorProto.UINT8: np.uint8, TensorProto.INT8: np.int8}
_WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_SAFE = 64
"""Two products of an unsigned byte with a signed one up to this fit into 16 bits."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """A tensor of integers that stands for one of floats.

    Attributes:
        value: the integers.
        scale: what one of them is worth.
        zero: the integer that stands for 0; None where 0 does.
        dtype: element type of `value`.
        axis: the axis along which `scale` varies; None when it is one number.
    """

    value: Value
    scale: Value
    zero: Value | None
    dtype: int
    axis: int | None = None

    def read(self, rw: Rewriter) -> tuple[Value, Value, Value]:
        """The three inputs that operators on quantized values take for each of theirs."""
        return self.value, self.scale, self.origin(rw)

    def origin(self, rw: Rewriter) -> Value:
        """The zero point, as an input that has to be there."""
        return self.zero or rw.constant(np.zeros((), _BYTES[self.dtype]))

    def same_scale(self, other: Quantized) -> bool:
        """Whether equal integers stand for equal floats in both."""
        one, two = _numbers(self.scale), _numbers(other.scale)
        zeros = [0 if q.zero is None else _numbers(q.zero).item() for q in (self, other)]
        return self.dtype == other.dtype and bool(one == two) and zeros[0] == zeros[1]


def _numbers(value: Value) -> Any:
    array = value.const()
    assert array is not None
    return array.reshape(-1)


def quantization(node: Node, value: Value, dtype: int | None) -> Quantized | Mismatch:
    """How a quantize or dequantize operator reads or writes the integers `value` of type `dtype`."""
    scale, zero = node.input(1), node.input(2)
    if scale is None or not scale.is_const or (zero is not None and not zero.is_const):
        return Mismatch("scale and zero point of {} are not constant", value.name)
    if scale.dtype != TensorProto.FLOAT or node.attr("block_size", 0):
        return Mismatch("{} is not quantized by float32 scales of a tensor or an axis", value.name)
    kind = zero.dtype if zero is not None else dtype
    if kind is None:
        return Mismatch("the element type of {} is not known", value.name)
    sizes = [_numbers(v).size for v in (scale, zero) if v is not None]
    ranks = [v.rank or 0 for v in (scale, zero) if v is not None]
    if max(ranks) > 1 or len(set(sizes)) > 1:
        return Mismatch("scale and zero point of {} are not alike", value.name)
    return Quantized(value, scale, zero, kind, None if sizes[0] == 1 else int(node.attr("axis", 1)))


def dequantized(value: Value | None) -> Quantized | Mismatch | None:
    """What a float value was dequantized from; None when it was not."""
    node = value.producer if value is not None else None
    if node is None or node.op_type != "DequantizeLinear" or node.domain not in ("", DOMAIN) or node.inputs[0] is None:
        return None
    return quantization(node, node.inputs[0], node.inputs[0].dtype)


Made = Value | Mismatch | None
Maker = Callable[[Node, list[Quantized], Quantized, Rewriter], Made]


class FuseQdqIntoOp(OpRule):
    """Replace an operator between dequantize and quantize by the one on quantized values.

    Convolutions, `Gemm`, `MatMul`, `Add`, `Mul`, average pools, `Sigmoid`, `LeakyRelu` and `Concat` have such
    operators; those that only move data, and `MaxPool`, take the integers where both sides have one scale. The sums
    are exact then, so that a value between two integers may be rounded to the other one. `Softmax` is left alone, since
    the kernel for integers does not round to the nearest; so are weights whose products the processor cannot add.
    """

    name = "fuse_qdq_into_op"
    ops = ("QuantizeLinear", "com.microsoft::QuantizeLinear")
    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = f"10-{NEWEST}"
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "QDQSelectorActionTransformer"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for an operator whose inputs are dequantized."""
        value, result = node.input(0), node.output(0)
        op = value.producer if value is not None else None
        maker = _MAKERS.get(op.op) if op is not None else None
        if value is None or result is None or op is None or maker is None:
            return None
        count = _DATA.get(op.op, len(op.inputs))
        inputs = [dequantized(v) for v in op.inputs[:count] if v is not None]
        for found in inputs:
            if isinstance(found, Mismatch):
                return found
        operands = [found for found in inputs if isinstance(found, Quantized)]
        if not operands:
            return None
        if len(operands) < len(inputs):
            return Mismatch("not all inputs of {} are dequantized", op.op)
        problem = only_reader(value, node)
        if problem is not None:
            return problem
        output = quantization(node, result, int(node.attr("output_dtype", 0)) or TensorProto.UINT8)
        if isinstance(output, Mismatch):
            return output
        if output.axis is not None or output.dtype not in _BYTES or operands[0].dtype != output.dtype:
            return Mismatch("{} is not quantized to bytes like {}", result.name, operands[0].value.name)
        made = maker(op, operands, output, rw)
        return rw.replace(node, [made]) if isinstance(made, Value) else made


def _per_tensor(operands: list[Quantized]) -> Mismatch | None:
    for operand in operands:
        if operand.axis is not None or operand.dtype != operands[0].dtype:
            return Mismatch("{} is not quantized as a whole, or to another type", operand.value.name)
    return None


def _weight_problem(x: Quantized, weight: Quantized, axis: int, rw: Rewriter) -> Mismatch | None:
    """Weights are constant bytes, and vary along one axis at most, around one zero point."""
    if x.axis is not None:
        return Mismatch("{} is not quantized as a whole", x.value.name)
    if weight.dtype not in _BYTES or (x.dtype == TensorProto.INT8 and weight.dtype != TensorProto.INT8):
        return Mismatch("{} has a type that the kernel does not take", weight.value.name)
    if weight.axis is not None and (weight.axis != axis or not weight.value.is_const):
        return Mismatch("{} is quantized along another axis", weight.value.name)
    if weight.zero is not None and len(set(_numbers(weight.zero).tolist())) > 1:
        return Mismatch("{} has several zero points", weight.value.name)
    if x.dtype == TensorProto.UINT8 and weight.dtype == TensorProto.INT8:
        array = weight.value.const()
        small = array is not None and bool(np.abs(array.astype(np.int16)).max(initial=0) <= _SAFE)
        if not small and not sums_bytes_exactly(rw.options.target or host()):
            return Mismatch("the processor adds products with {} in 16 bits, which may overflow", weight.value.name)
    return None


def _bias_problem(bias: Quantized, x: Quantized, weight: Quantized) -> Mismatch | None:
    """A bias is in units of the products."""
    if bias.dtype != TensorProto.INT32 or not bias.value.is_const or bias.value.rank != 1:
        return Mismatch("{} is not a constant vector of int32", bias.value.name)
    units = _numbers(x.scale) * _numbers(weight.scale)
    own = _numbers(bias.scale)
    if (bias.zero is not None and _numbers(bias.zero).any()) or not np.allclose(own, units, rtol=1e-4, atol=0.0):
        return Mismatch("{} is not in units of the products", bias.value.name)
    return None


def _conv(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Made:
    x, weight, *rest = operands
    problem = _weight_problem(x, weight, 0, rw)
    for bias in rest:
        problem = first(problem, _bias_problem(bias, x, weight))
    if problem is not None:
        return problem
    scales = (output.scale, output.origin(rw), *(bias.value for bias in rest))
    attrs: dict[str, Any] = {name: op.attrs.get(name) for name in _WINDOW}
    conv: Value = rw.op("QLinearConv", *x.read(rw), *weight.read(rw), *scales, **attrs)
    return conv


def _gemm(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Made:
    x, weight, *rest = operands
    trans = int(op.attr("transB", 0))
    if op.attr("alpha", 1.0) != 1.0 or (rest and op.attr("beta", 1.0) != 1.0):
        return Mismatch("the product is scaled")
    problem = _weight_problem(x, weight, 0 if trans else 1, rw)
    for bias in rest:
        problem = first(problem, _bias_problem(bias, x, weight))
    if problem is not None:
        return problem
    bias_value = rest[0].value if rest else None
    product: Value = rw.op(
        "QGemm", *x.read(rw), *weight.read(rw), bias_value, output.scale, output.origin(rw), domain=DOMAIN,
        transA=int(op.attr("transA", 0)), transB=trans, alpha=1.0,
    )  # fmt: skip
    return product


def _matmul(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Made:
    x, weight = operands
    problem = _weight_problem(x, weight, 1, rw)
    if problem is None and weight.axis is not None and weight.value.rank != 2:
        problem = Mismatch("{} is not a matrix", weight.value.name)
    if problem is not None:
        return problem
    product: Value = rw.op("QLinearMatMul", *x.read(rw), *weight.read(rw), output.scale, output.origin(rw))
    return product


def _plain(attributes: dict[str, Any] | None = None) -> Maker:
    """The operator of the same name with `QLinear` before it, on tensors of one type."""

    def make(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Made:
        problem = _per_tensor(operands)
        if problem is not None:
            return problem
        attrs = {name: op.attr(name, default) for name, default in (attributes or {}).items()}
        reads = [part for operand in operands for part in operand.read(rw)]
        made: Value = rw.op(f"QLinear{op.op_type}", *reads, output.scale, output.origin(rw), domain=DOMAIN, **attrs)
        return made

    return make


def _average_pool(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Made:
    if any(step != 1 for step in op.attr("dilations", ())):
        return Mismatch("the kernel knows no dilations")
    names = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    return _plain(dict.fromkeys(names))(op, operands, output, rw)


def _concat(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Made:
    problem = _per_tensor(operands)
    if problem is not None:
        return problem
    if all(operand.same_scale(output) for operand in operands):
        return _moved(op, operands, output, rw)
    if op.graph.in_function:
        return Mismatch("ONNX Runtime infers a wrong type for QLinearConcat in a function")
    reads = [part for operand in operands for part in operand.read(rw)]
    made: Value = rw.op("QLinearConcat", output.scale, output.origin(rw), *reads, domain=DOMAIN, axis=op.attr("axis"))
    return made


def _moved(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Made:
    """The operator itself on the integers, where they stand for the same floats before and after."""
    problem = _per_tensor(operands)
    if problem is not None:
        return problem
    if not all(operand.same_scale(output) for operand in operands):
        return Mismatch("the scales before and after {} differ", op.op)
    inputs: list[Value | None] = [operand.value for operand in operands]
    made: Value = rw.op(op.op_type, *inputs, *op.inputs[len(inputs) :], **op.attrs)
    return made


def _max_pool(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Made:
    if op.graph.opset() < 12 or len(op.outputs) > 1:
        return Mismatch("MaxPool takes no bytes before opset 12, and its indices are not kept")
    return _moved(op, operands, output, rw)


_DATA = dict.fromkeys(
    ("Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"), 1
)
"""Operators that move data, and how many of their inputs are that."""

_MAKERS: dict[str, Maker] = {
    "Conv": _conv, "Gemm": _gemm, "MatMul": _matmul, "Add": _plain(), "Mul": _plain(), "Sigmoid": _plain(),
    "LeakyRelu": _plain({"alpha": 0.01}), "GlobalAveragePool": _plain({"channels_last": 0}),
    "AveragePool": _average_pool, "Concat": _concat, "MaxPool": _max_pool,
    **dict.fromkeys(_DATA, _moved),
}  # fmt: skip
