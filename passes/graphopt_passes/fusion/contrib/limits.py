"""`Clip` and `Relu` of quantized values, as `Clip` of their integers."""

from __future__ import annotations

import numpy as np

from graphopt.operators import Bounds
from graphopt.rewrite import Decline, Node, Rewriter, Value
from graphopt_passes.fusion.contrib.parameters import BYTES, Quantized, check_per_tensor
from graphopt_passes.fusion.contrib.requantize import scaled

LIMITS = ("Clip", "Relu")
MONOTONIC = ("Flatten", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that `QuantizeLinear` moves before, if a product of bytes is before them."""
_MOST_BEHIND = 4
_PRODUCTS = ("Conv", "Gemm")
"""Products that have kernels on bytes."""
_SINCE = 12
"""The first opset in which `Clip` takes bytes."""


def limit(integers: Value, op: Node, output: Quantized, rw: Rewriter) -> Value:
    """Limit the integers of the operand of `op` as `op` limits its floats.

    Quantization is monotonic, so limiting integers and limiting floats give the same result.
    """
    if output.dtype not in BYTES or not output.is_whole or not output.ordered:
        raise Decline("{} is not quantized to 8 bits per tensor, or its scale is negative", output.value.name)
    bounds, kind = Bounds.of(op), BYTES[output.dtype]
    ends, step = np.iinfo(kind), np.float32(output.scale.item())
    with np.errstate(over="ignore"):
        steps = [np.rint(np.float32(bound) / step) + int(output.zero.item()) for bound in (bounds.low, bounds.high)]
    low, high = (int(np.clip(each, ends.min, ends.max)) for each in steps)
    if (low, high) == (ends.min, ends.max):
        return integers
    if op.graph.opset() < _SINCE:
        raise Decline("Clip does not take 8-bit integers before opset {}", _SINCE)
    return rw.op("Clip", integers, rw.constant(np.array(low, kind)), rw.constant(np.array(high, kind)))


def is_limit(node: Node) -> bool:
    """Whether a node limits values, at an opset in which bytes can be limited, too."""
    return node.op in LIMITS and node.graph.opset() >= _SINCE


def is_quantized(value: Value, most: int = _MOST_BEHIND) -> bool:
    """Whether a reader quantizes a value, possibly after limits and, if these alone read it, after moves."""
    if any(user.op == "QuantizeLinear" for user in value.users):
        return True
    passed = (*LIMITS, *MONOTONIC) if value.one_use else LIMITS
    return most > 0 and any(
        is_quantized(each, most - 1) for user in value.users if user.op in passed for each in user.results[:1]
    )


def reads_bytes(product: Node) -> bool:
    """Whether both operands of a product are dequantized."""
    return all(each.made_by("DequantizeLinear") for each in product.operands[:2])


def check_not_of_bytes(product: Node, activation: Node) -> None:
    """Decline if a product and the limit after it are for kernels on bytes."""
    if product.op in _PRODUCTS and reads_bytes(product) and is_limit(activation) and is_quantized(activation.result):
        raise Decline("{} and its operand are both quantized", activation.result.name)


def bounded(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    """A limit of dequantized values: their integers, in the scale of the result, limited."""
    check_per_tensor([*operands, output])
    (x,) = operands
    return limit(x.value if x.same_scale(output) else scaled(x, 1.0, 0.0, output, rw, exactly=True), op, output, rw)
