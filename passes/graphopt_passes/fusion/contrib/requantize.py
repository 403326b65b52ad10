"""Scales and shifts of quantized values, which a sum with one number computes, saturating at the ends of the range."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graphopt.rewrite import Decline, Level, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST
from graphopt_passes.fusion.contrib.parameters import (
    BYTES,
    SANE,
    Quantized,
    check_per_tensor,
    dequantized,
    quantization,
)

_CLOSE = 1e-4
"""Steps that may be lost in float32."""
_NUDGES = (0.0, 2e-4, -2e-4, 4e-4, -4e-4, 6e-4, -6e-4, 1e-3, -1e-3, 2e-3, -2e-3)
"""Steps that results are moved by, to be farther than that from halfway; the least that does counts."""


def scaled(x: Quantized, slope: float, shift: float, output: Quantized, rw: Rewriter) -> Value:
    """`slope * x + shift`, quantized; halfway between two steps it is rounded as by the operators on floats."""
    step, dtype = float(x.scale.item()) * slope, BYTES[x.dtype]
    if not output.ordered or not all(SANE[0] <= number <= SANE[1] for number in (step, abs(shift) or 1.0)):
        raise Decline("a scale of {} or {} is negative, too small or too large", x.value.name, output.value.name)
    if output.dtype != x.dtype:
        raise Decline("{} and {} are of different types", x.value.name, output.value.name)
    shift = _away_from_halfway(x, slope, shift, output)
    scale = rw.constant(np.array(step, np.float32)) if slope != 1.0 else x.written(rw)[0]
    # The number is 1 or -1 steps of the shift's own size.
    number, start = (1, 0) if shift > 0 else (0, 1) if shift < 0 else (0, 0)
    addend = [rw.constant(np.array(value, dtype)) for value in (number, start)]
    size = rw.constant(np.array(abs(shift) or 1.0, np.float32))
    inputs = (x.value, scale, x.written(rw)[1], addend[0], size, addend[1], *output.written(rw))
    return rw.op("QLinearAdd", *inputs, domain=DOMAIN)


def _away_from_halfway(x: Quantized, slope: float, shift: float, output: Quantized) -> float:
    """The shift, or one a little beside it with which no result is halfway between steps, and all are those of floats.

    Where there is none, as for half of each integer, it stays as it is.
    """
    ends = np.iinfo(BYTES[x.dtype])
    from_zero = np.arange(ends.min, ends.max + 1) - int(x.zero.item())
    step, zero = float(output.scale.item()), int(output.zero.item())
    floats = from_zero.astype(np.float32) * x.scale.astype(np.float32) * np.float32(slope) + np.float32(shift)
    wanted = np.clip(np.rint(floats / output.scale.astype(np.float32)) + zero, ends.min, ends.max)
    exact = from_zero * float(x.scale.item()) * slope / step
    for nudge in _NUDGES:
        result = exact + shift / step + nudge
        halfway = np.abs(result - np.floor(result) - 0.5) < _CLOSE
        rounded = np.clip(np.rint(result) + zero, ends.min, ends.max)
        within = (result + zero > ends.min - 1) & (result + zero < ends.max + 1)
        if np.array_equal(rounded, wanted) and not np.any(halfway & within):
            return shift + nudge * step
    return shift


def hard_sigmoid(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    """A scale and a shift, whose limits are those of the range."""
    check_per_tensor(operands)
    ends = np.iinfo(BYTES[output.dtype])
    top = np.rint(1 / output.scale.astype(np.float64).item()) + output.zero.item()
    if output.zero.item() != ends.min or not output.ordered or top < ends.max:
        raise Decline("{} does not begin at 0 and end at 1 or below", output.value.name)
    return scaled(operands[0], float(op.attr("alpha", 0.2)), float(op.attr("beta", 0.5)), output, rw)


class FuseRequantization(OpRule):
    """Bring quantized values to another scale by one operator, where they are dequantized and quantized again."""

    # No pattern: parameters have several forms.
    ops = ("QuantizeLinear",)
    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = f"10-{NEWEST}"
    peers = {}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        value = node.operand(0)
        value.source("DequantizeLinear", reader=node)
        x = dequantized(value)
        output = quantization(node, node.result, int(node.attr("output_dtype", 0)) or TensorProto.UINT8)
        check_per_tensor([x, output])
        if x.dtype not in BYTES:
            raise Decline("{} is not quantized to bytes", x.value.name)
        if x.same_scale(output) or x.value.is_const:
            raise Decline
        return rw.replace(node, [scaled(x, 1.0, 0.0, output, rw)])
