"""Scales and shifts of quantized values, computed by `QLinearAdd` with one number, which saturates."""

from __future__ import annotations

import numpy as np

from graphopt.ir.numpy_types import numpy_type
from graphopt.match import Const, Either, Match, OpBuilder, Pattern, Var
from graphopt.rewrite import Decline, Fired, Node, Numerics, Outcome, Rewriter, Value
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST_OF_BYTES, ForRuntime, OnIntegers
from graphopt_passes.fusion.contrib.parameters import (
    BYTES,
    Quantized,
    are_ordinary,
    check_per_tensor,
    check_steps,
    dequantized,
    floats_of,
    quantized,
)

_CLOSE = 1e-4
"""The rounding error of float32 in quantization steps."""
_NUDGES = (0.0, 2e-4, -2e-4, 4e-4, -4e-4, 6e-4, -6e-4, 1e-3, -1e-3, 2e-3, -2e-3)
"""Steps by which results may be moved away from halfway between integers; the first that suffices is taken."""


def scaled(
    x: Quantized, slope: float, shift: float, output: Quantized, rw: Rewriter, *, exactly: bool = False
) -> Value:
    """`slope * x + shift`, quantized.

    The shift is changed slightly where that makes results halfway between two steps round as the float operators do;
    declines where no change does and the result is to be exact.
    """
    step, dtype = float(x.scale.item()) * slope, BYTES[x.dtype]
    if not output.ordered or not are_ordinary(step, abs(shift) or 1.0):
        raise Decline("a scale of {} or {} is negative, too small or too large", x.value.name, output.value.name)
    check_steps("QLinearAdd", (step, abs(shift)), float(output.scale.item()), output.value)
    shift, exact = _away_from_halfway(x, slope, shift, output)
    if exactly and not exact:
        raise Decline("values halfway between two steps of {} would be rounded differently", output.value.name)
    scale = rw.constant(np.array(step, np.float32)) if slope != 1.0 else x.written(rw)[0]
    # The shift is 1 or -1 steps of its own size.
    number, start = (1, 0) if shift > 0 else (0, 1) if shift < 0 else (0, 0)
    addend = [rw.constant(np.array(value, dtype)) for value in (number, start)]
    size = rw.constant(np.array(abs(shift) or 1.0, np.float32))
    inputs = (x.value, scale, x.written(rw)[1], addend[0], size, addend[1], *output.written(rw))
    return rw.op("QLinearAdd", *inputs, domain=DOMAIN)


def _away_from_halfway(x: Quantized, slope: float, shift: float, output: Quantized) -> tuple[float, bool]:
    """The shift, changed slightly so that no result is halfway between steps and all equal those of float operators.

    And whether there is such a shift: there is none for half of each integer, say.
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
            return shift + nudge * step, True
    return shift, False


def hard_sigmoid(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    """`HardSigmoid` as a scale and a shift, whose limits are those of the integer range."""
    check_per_tensor(operands)
    ends = np.iinfo(BYTES[output.dtype])
    top = np.rint(1 / output.scale.astype(np.float64).item()) + output.zero.item()
    if output.zero.item() != ends.min or not output.ordered or top < ends.max:
        raise Decline("the quantized range of {} does not start at 0, or ends above 1", output.value.name)
    return scaled(operands[0], float(op.attr("alpha", 0.2)), float(op.attr("beta", 0.5)), output, rw)


class FuseRequantization(ForRuntime):
    """Replace a `DequantizeLinear` and the `QuantizeLinear` after it with one operator that changes the scale."""

    opsets = f"10-{NEWEST_OF_BYTES}"

    def pattern(self, op: OpBuilder) -> Pattern:
        """Scale and zero point have several forms."""
        return op.QuantizeLinear(op.DequantizeLinear(Var(), ..., _shared=True, _bind="inner"), ...)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        x, output = dequantized(m.inner.result), quantized(m.root)
        check_per_tensor([x, output])
        if x.dtype not in BYTES:
            raise Decline("{} is not quantized to 8 bits", x.value.name)
        if x.same_scale(output) or x.value.is_const:
            raise Decline
        return scaled(x, 1.0, 0.0, output, rw, exactly=True)


_WITHIN = 0.25
"""The most steps between an integer and the exact number that is rounded to it; float32 adds a tenth of that."""


class EliminateRescaledQdq(ForRuntime):
    """Remove a `DequantizeLinear` and a `QuantizeLinear` with another scale, if every integer is restored.

    A constant factor or divisor in between scales the range of the value, so that calibration finds the same steps but
    for the last digits. Attention scales its operands like this, as do the operators of a written-out `Gelu`.
    """

    numerics = Numerics.EXACT
    opsets = "10-"

    def pattern(self, op: OpBuilder, number: Pattern) -> Pattern:
        """The number may be dequantized itself; intermediate values may have other readers."""
        floats = op.DequantizeLinear(Var(), ..., _shared=True, _bind="inner", _other_attrs=True)
        scaled = op.Mul(floats, number, _shared=True), op.Div(floats, number, _shared=True, _bind="quotient")
        return op.QuantizeLinear(Either(floats, *scaled), ..., _other_attrs=True)

    def rewrite(self, m: Match, rw: Rewriter) -> Fired:
        x, output = dequantized(m.inner.result), quantized(m.root)
        check_per_tensor([x, output])
        if x.value.is_const:
            raise Decline
        factor = 1.0 if m.number is None else _factor(m.number, x.value)
        step = float(x.scale.item()) * (1 / factor if m.quotient else factor)
        zero, ends = int(x.zero.item()), np.iinfo(numpy_type(x.dtype))
        lost = abs(step / float(output.scale.item()) - 1) * max(zero - ends.min, ends.max - zero)
        if zero != output.zero.item() or not lost < _WITHIN:
            raise Decline("{} and {} have different quantization parameters", output.value.name, x.value.name)
        return rw.pass_on(m.root, x.value)


def _factor(number: Value, x: Value) -> float:
    """A constant number that a value is multiplied with, which gives it no axis; it may be dequantized."""
    array = number.array() if number.is_const else floats_of(dequantized(number))
    if array.size != 1 or array.ndim > (x.rank or 0) or not are_ordinary(float(array.item())):
        raise Decline(
            "{} is not a single number in the supported range, or may raise the rank of {}", number.name, x.name
        )
    return float(array.item())


_SAME = 1e-2
"""Steps by which a result may differ, before rounding, from the byte that it must equal."""


class EliminateNopRequantization(OnIntegers):
    """Remove a quantized sum or product with one number that maps each byte to itself.

    Half of a value, quantized by half of its scale, is the same bytes: a written-out `Gelu`, quantized, ends with that.
    """

    # No pattern: the number may be either operand.
    ops = (f"{DOMAIN}::QLinearAdd", f"{DOMAIN}::QLinearMul")

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        one, two = node.operand(0), node.operand(3)
        at = 0 if two.is_const else 3
        x, number = (one, two) if at == 0 else (two, one)
        kind = BYTES.get(x.dtype or 0)
        if kind is None or not number.is_const or x.is_const:
            raise Decline
        dims = number.sizes()
        if number.array().size != 1 or len(dims) > len(x.dims()):
            raise Decline("{} is not a single number", number.name)
        ends = np.iinfo(kind)
        bytes_ = np.arange(ends.min, ends.max + 1)
        value = _floats(node, at, bytes_)
        other = _floats(node, 3 - at, number.array().astype(np.int64).reshape(()))
        step, zero = _parameters(node, 6)
        check_steps(node.op_type, [_parameters(node, operand + 1)[0] for operand in (0, 3)], step, node.result)
        result = (value + other if node.op_type == "QLinearAdd" else value * other) / step + zero
        if np.abs(result - bytes_).max() > _SAME:
            raise Decline("{} and {} have different quantization parameters", node.result.name, x.name)
        return rw.pass_on(node, x)


def _floats(node: Node, at: int, integers: np.ndarray) -> np.ndarray:
    """The floats that integers stand for as the operand at input `at`."""
    step, zero = _parameters(node, at + 1)
    return np.asarray((integers - zero) * step)


def _parameters(node: Node, at: int) -> tuple[float, int]:
    """The scale at input `at` and the zero point after it; declines if they are computed, or the scale is extreme."""
    scale = node.operand(at).array()
    start = node.array(at + 1, np.zeros(1, np.int64))
    if scale.size != 1 or start.size != 1 or not are_ordinary(scale):
        raise Decline("{} is not a single scale in the supported range", node.operand(at).name)
    return float(scale.item()), int(start.item())


class FuseScaleIntoDequantize(ForRuntime):
    """Fold a multiplication or division by a number into the scale of the `DequantizeLinear` before it."""

    opsets = f"10-{NEWEST_OF_BYTES}"

    def pattern(self, op: OpBuilder) -> Pattern:
        """Scale and zero point have several forms."""
        floats = op.DequantizeLinear(Var(), ..., _bind="source", _other_attrs=True)
        return Either(op.Mul(floats, Const("number")), op.Div(floats, Const("number")))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        value, number, given = m.source.result, m.number, m.source.operand(1)
        x = dequantized(value)
        if x.value.is_const:
            raise Decline
        array = number.array()
        if array.size != 1 or array.dtype != np.float32 or array.ndim > len(value.dims()):
            raise Decline("{} is not a single number", number.name)
        factor = float(array.item())
        if not are_ordinary(factor):
            raise Decline("{} is not a positive number in the supported range", number.name)
        step = (x.scale.astype(np.float64) / factor if m.root.op == "Div" else x.scale * factor).astype(np.float32)
        if not are_ordinary(np.abs(step)):
            raise Decline("the scale of {} would be too small or too large", x.value.name)
        scale = rw.constant(step.reshape(given.sizes()), like=given)
        return rw.again(m.source, x.value, scale, m.source.input(2))
