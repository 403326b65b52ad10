"""`Clip` and `Relu` of quantized values, as `Clip` of their integers, and which products become products of bytes."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from graphopt.ir.types import element_count
from graphopt.operators import Bounds
from graphopt.rewrite import Decline, Node, Rewriter, Value
from graphopt_passes.fusion.contrib.parameters import BYTES, Quantized, check_per_tensor, quantized
from graphopt_passes.fusion.contrib.requantize import scaled
from graphopt_passes.fusion.contrib.sums import is_depthwise

LIMITS = ("Clip", "Relu")
MONOTONIC = ("Flatten", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that `QuantizeLinear` moves before, if a product of bytes is before them."""
_MOST_BEHIND = 4
_PRODUCTS = ("Conv", "Gemm")
"""Products that have kernels on bytes."""
_FEW_CHANNELS = 2
"""Kernels gather windows of images pixel by pixel: a 3x3 convolution of one channel to 16 outputs and the next one took
1.49 times as long as with the first in floats, with two channels 1.34, with three 0.98, on a Zen 5."""
_FEW_OF_VOLUMES = 600
"""The same for volumes, which takes longer, as channels times (outputs of a group + 32). With 8 channels a 3x3x3
convolution took 1.71 times as long as in floats for 16 outputs (384), 1.30 for 32 (512), and 0.98 for 64 (768)."""
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
    """Whether a reader quantizes a value, possibly after limits and moves that `QuantizeLinear` moves before."""
    if any(user.op == "QuantizeLinear" for user in value.users):
        return True
    passed = [user for user in value.users if user.op in LIMITS or (value.one_use and _lets_pass(user))]
    return most > 0 and any(is_quantized(user.result, most - 1) for user in passed)


def _lets_pass(move: Node) -> bool:
    """Whether one node reads what an operator moves, and is moved before it if it is a `QuantizeLinear`."""
    if move.op not in MONOTONIC or len(move.outputs) > 1 or not move.result.one_use:
        return False
    with suppress(Decline):
        for reader in move.result.users:
            if reader.op == "QuantizeLinear":
                check_monotonic(move, quantized(reader))
        return True
    return False


def check_monotonic(move: Node, output: Quantized) -> None:
    """Decline unless a move of the quantized values is the same as quantizing what it moves."""
    if not output.is_whole or output.dtype not in BYTES:
        raise Decline("{} is not quantized to 8 bits per tensor", output.value.name)
    check_largest(move, output)


def check_largest(op: Node, x: Quantized) -> None:
    """Decline a `MaxPool` if the largest integers do not stand for the largest floats, or it tells their places."""
    if op.op == "MaxPool" and len(op.outputs) > 1:
        raise Decline("the Indices output of MaxPool is used")
    if op.op == "MaxPool" and not x.ordered:
        raise Decline("the scale of {} is negative: its largest integer is the smallest float", x.value.name)


def reads_bytes(product: Node) -> bool:
    """Whether both operands of a product are dequantized."""
    return all(each.made_by("DequantizeLinear") for each in product.operands[:2])


def check_gathered(op: Node, weight: Value) -> None:
    """Decline if gathering windows takes longer than products of bytes save."""
    group, shape = int(op.attr("group", 1)), weight.sizes() if weight.is_const else ()
    if element_count(shape[2:]) <= 1 or is_depthwise(group, shape):
        return
    outputs, channels = shape[0] // group, shape[1] * group
    few = channels * (outputs + 32) < _FEW_OF_VOLUMES if len(shape) > 4 else channels <= _FEW_CHANNELS
    if few:
        raise Decline("gathering windows of {} channels costs more than 8-bit products save", channels)


def may_be_of_bytes(product: Node) -> bool:
    """Whether a product of dequantized operands is no convolution whose windows are gathered too slowly."""
    weight = product.operand(1).made_by("DequantizeLinear")
    with suppress(Decline):
        if product.op == "Conv" and weight is not None:
            check_gathered(product, weight.operand(0))
        return True
    return False


def check_not_of_bytes(product: Node, activation: Node) -> None:
    """Decline if a product and the limit after it are for kernels on bytes."""
    of_bytes = product.op in _PRODUCTS and reads_bytes(product) and may_be_of_bytes(product)
    if of_bytes and is_limit(activation) and is_quantized(activation.result):
        raise Decline("{} and its operand are both quantized", activation.result.name)


def bounded(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    """A limit of dequantized values: their integers, in the scale of the result, limited."""
    check_per_tensor([*operands, output])
    (x,) = operands
    return limit(x.value if x.same_scale(output) else scaled(x, 1.0, 0.0, output, rw, exactly=True), op, output, rw)
