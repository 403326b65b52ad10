"""Quantized values as unsigned bytes, for which x86 has the faster kernels."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.ir import Node, Value
from graphopt.rewrite import Level, Mismatch, OpRule, Outcome, Rewriter
from graphopt.system.machine import host
from graphopt_passes.fusion.contrib.operands import NEWEST, X86

_SHARED = ("Add", "Mul", "Concat", "Gather")
"""Operators that take constants as quantized as their other operand; products take signed weights with either type."""


class ConvertInt8ToUint8(OpRule):
    """Quantize to unsigned bytes instead of signed ones, by moving the zero point by 128.

    For values between quantize and dequantize operators, and for constants that are dequantized for an `Add`, `Mul`,
    `Concat` or `Gather`. The floats stay the same. On x86, where the kernels for signed activations are slow.
    """

    name = "convert_int8_to_uint8"
    ops = ("QuantizeLinear", "DequantizeLinear")
    level = Level.EXTENDED
    opsets = f"10-{NEWEST}"
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "QDQS8ToU8Transformer"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Move the zero points of a value's writer and readers."""
        constant = node.op == "DequantizeLinear"
        value = node.input(0) if constant else node.output(0)
        zero = _zero_point(node)
        if value is None or zero is None or (constant and value.const() is None):
            return None
        if (rw.options.target or host()).name not in X86:
            return Mismatch("other machines have kernels for signed bytes")
        if zero.size != 1 or node.attr("block_size", 0):
            return Mismatch("{} is not quantized as a whole", value.name)
        return _constant(node, value, zero, rw) if constant else _computed(node, value, zero, rw)


def _constant(node: Node, value: Value, zero: np.ndarray, rw: Rewriter) -> Outcome:
    floats = node.output(0)
    if floats is None or not floats.users or any(user.op not in _SHARED for user in floats.users):
        return None
    array = value.const()
    assert array is not None
    moved = rw.constant(_moved(array), like=value)
    inputs = (moved, node.inputs[1], rw.constant(_moved(zero), like=node.inputs[2]))
    return rw.replace(node, [rw.op("DequantizeLinear", *inputs, **node.attrs)])


def _computed(node: Node, value: Value, zero: np.ndarray, rw: Rewriter) -> Outcome:
    readers = list(value.users)
    if value.output_count or not readers:
        return Mismatch("{} is read as it is", value.name)
    zeros = []
    for reader in readers:
        own = _zero_point(reader) if reader.op == "DequantizeLinear" and reader.graph is node.graph else None
        if own is None or own.size != 1 or reader.inputs[0] is not value:
            return Mismatch("{} is read as it is", value.name)
        zeros.append(own)
    attrs = {name: attr for name, attr in node.attrs.items() if name != "output_dtype"}
    point = rw.constant(_moved(zero), like=node.inputs[2])
    integers = rw.op("QuantizeLinear", node.inputs[0], node.inputs[1], point, **attrs)
    pairs: list[tuple[Node, list[Value]]] = []
    for reader, own in zip(readers, zeros, strict=True):
        start = point if np.array_equal(own, zero) and own.shape == zero.shape else rw.constant(_moved(own))
        pairs.append((reader, [rw.op("DequantizeLinear", integers, reader.inputs[1], start, **reader.attrs)]))
    return rw.replace_all(pairs, anchor=node)


def _zero_point(node: Node) -> np.ndarray | None:
    """The constant zero point of signed bytes."""
    zero = node.input(2)
    return zero.const() if zero is not None and zero.dtype == TensorProto.INT8 else None


def _moved(array: np.ndarray) -> np.ndarray:
    return (array.astype(np.int16) + 128).astype(np.uint8)
