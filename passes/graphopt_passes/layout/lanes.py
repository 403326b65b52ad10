"""Padding lanes: bounds on the numbers that a blocked value holds beyond those of its channels.

Channels are rounded up to whole blocks, and `ReorderInput` fills the padding lanes with zeros. An operator computes
these like all others and may give an infinity, which a convolution over all lanes turns into NaN everywhere, though its
weights are zero there. So every form states bounds on the padding lanes of its result, and such a convolution reads
only bounded ones. A bound holds if the channels themselves are finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from operator import mul, sub, truediv

import numpy as np

from graphopt.records import dataclass

LIMIT = 1e28
"""The largest bound: sums of such numbers over images and kernels, and Winograd transforms, do not overflow."""

_SLACK = 1e-4
"""The error of a kernel, relative to the larger of its result and 1."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """Numbers between two bounds, or, without bounds, any numbers, NaN included.

    Attributes:
        low: the least.
        high: the largest.
    """

    low: float
    high: float

    @classmethod
    def within(cls, *numbers: float) -> Lanes:
        """The bounds of some numbers; `ANYTHING` if one is too large, infinite or NaN."""
        low, high = min(numbers), max(numbers)
        # Comparisons with NaN are false, whatever min and max return for it.
        return cls(low, high) if all(-LIMIT <= number <= LIMIT for number in numbers) else ANYTHING

    @property
    def bounded(self) -> bool:
        """Whether the numbers are finite, and stay so in the sums of a convolution."""
        return math.isfinite(self.low)

    def __or__(self, other: Lanes) -> Lanes:
        return Lanes.within(self.low, self.high, other.low, other.high)

    def pairs(self, other: Lanes, work: Callable[[float, float], float]) -> Lanes:
        """The bounds of an operation whose extremes lie at the bounds of both operands."""
        if not (self.bounded and other.bounded):
            return ANYTHING
        return Lanes.within(*(work(a, b) for a in (self.low, self.high) for b in (other.low, other.high)))

    def rounded(self) -> Lanes:
        """The bounds widened by the error of a kernel, which never changes a sign; exact zeros stay zero."""
        if not self.bounded or self == ZERO:
            return self
        low, high = (_SLACK * max(abs(number), 1) for number in (self.low, self.high))
        low, high = self.low - low, self.high + high
        return Lanes.within(max(low, 0.0) if self.low >= 0 else low, min(high, 0.0) if self.high <= 0 else high)

    def averaged(self) -> Lanes:
        """The bounds of averages over any number of pixels, whose sums may all round in one direction."""
        return Lanes.within(2 * self.low, 2 * self.high)


ANYTHING = Lanes(-math.inf, math.inf)
"""Any numbers, infinities and NaN."""

ZERO = Lanes(0.0, 0.0)
"""Zeros only."""


def combined(op: str, operands: Sequence[Lanes]) -> Lanes:
    """The lanes of the result of an elementwise operator of `COMBINED`, from those, or the bounds, of its operands."""
    return COMBINED[op](operands).rounded() if all(o.bounded for o in operands) else ANYTHING


def _magnitude(lanes: Lanes) -> float:
    return max(abs(lanes.low), abs(lanes.high))


def _total(operands: Sequence[Lanes]) -> Lanes:
    # Summands may cancel, but no partial sum may overflow.
    low, high = sum(o.low for o in operands), sum(o.high for o in operands)
    return Lanes.within(low, high) if sum(map(_magnitude, operands)) <= LIMIT else ANYTHING


def _mean(operands: Sequence[Lanes]) -> Lanes:
    total = _total(operands)
    return Lanes.within(total.low / len(operands), total.high / len(operands))


def _pairs(work: Callable[[float, float], float]) -> Callable[[Sequence[Lanes]], Lanes]:
    return lambda operands: reduce(lambda one, two: one.pairs(two, work), operands)


def _quotient(operands: Sequence[Lanes]) -> Lanes:
    divisor = operands[1]
    return ANYTHING if divisor.low <= 0 <= divisor.high else _pairs(truediv)(operands)


def _power(operands: Sequence[Lanes]) -> Lanes:
    """Powers with a single exponent that is not negative, where they are defined."""
    base, exponent = operands
    power = exponent.low
    if exponent.high != power or power < 0 or (base.low < 0 and power != int(power)):
        return ANYTHING
    largest = _magnitude(base)
    if largest > 1 and power * math.log(largest) > math.log(LIMIT):
        return ANYTHING
    size = largest**power
    return Lanes.within(-size if base.low < 0 and power % 2 else 0.0, size)


COMBINED: dict[str, Callable[[Sequence[Lanes]], Lanes]] = {
    "Add": _total, "Sum": _total, "Mean": _mean, "Sub": _pairs(sub), "Mul": _pairs(mul), "Div": _quotient,
    "Pow": _power,
    "Max": lambda operands: Lanes(max(o.low for o in operands), max(o.high for o in operands)),
    "Min": lambda operands: Lanes(min(o.low for o in operands), min(o.high for o in operands)),
}  # fmt: skip
"""Operators of several operands."""


Attributes = Callable[[str, float], float]
"""Gives an attribute by its name and its default."""


def _rising(function: Callable[[float], float]) -> Callable[[Lanes, Attributes], Lanes]:
    """A monotonic function."""

    def rule(lanes: Lanes, _: Attributes) -> Lanes:
        try:
            return Lanes.within(function(lanes.low), function(lanes.high))
        except (OverflowError, ValueError):
            return ANYTHING

    return rule


def _between(low: float, high: float) -> Callable[[Lanes, Attributes], Lanes]:
    return lambda _lanes, _attr: Lanes(low, high)


def _defined(low: float, high: float, function: Callable[[float], float]) -> Callable[[Lanes, Attributes], Lanes]:
    """A monotonic function that is only defined between two numbers."""
    rule = _rising(function)
    return lambda lanes, attr: rule(lanes, attr) if low <= lanes.low and lanes.high <= high else ANYTHING


def _gated(lanes: Lanes, _: Attributes) -> Lanes:
    return lanes | ZERO


def _leaky(lanes: Lanes, attr: Attributes) -> Lanes:
    slope = attr("alpha", 0.01)
    return Lanes.within(0.0, *(x if x >= 0 else slope * x for x in (lanes.low, lanes.high)))


def _exponential(alpha: float, gamma: float, lanes: Lanes) -> Lanes:
    """Elu, Celu and Selu: `gamma * x` above zero, at most `|gamma * alpha|` in size below."""
    size = abs(alpha * gamma) if lanes.low < 0 else 0.0
    return Lanes.within(-size, size, gamma * max(lanes.high, 0.0))


def _celu(lanes: Lanes, attr: Attributes) -> Lanes:
    alpha = attr("alpha", 1.0)
    # With a negative alpha the exponential is of large numbers.
    return _exponential(alpha, 1.0, lanes) if alpha > 0 else ANYTHING


def _hard_sigmoid(lanes: Lanes, attr: Attributes) -> Lanes:
    alpha, beta = attr("alpha", 0.2), attr("beta", 0.5)
    return Lanes.within(*(min(max(alpha * x + beta, 0.0), 1.0) for x in (lanes.low, lanes.high)))


def _shrink(lanes: Lanes, attr: Attributes) -> Lanes:
    bias = abs(attr("bias", 0.0))
    return Lanes.within(0.0, lanes.low - bias, lanes.low + bias, lanes.high - bias, lanes.high + bias)


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


UNARY: dict[str, Callable[[Lanes, Attributes], Lanes]] = {
    "Abs": lambda lanes, _: Lanes.within(0.0, _magnitude(lanes)),
    "Acos": _defined(-1, 1, math.acos),
    "Acosh": _defined(1, LIMIT, math.acosh),
    "Asin": _defined(-1, 1, math.asin),
    "Asinh": _rising(math.asinh),
    "Atan": _rising(math.atan),
    "Atanh": _defined(-0.999, 0.999, math.atanh),
    "Ceil": _rising(math.ceil),
    "Celu": _celu,
    "Cos": _between(-1, 1),
    "Cosh": lambda lanes, attr: _rising(math.cosh)(Lanes(0.0, _magnitude(lanes)), attr),
    "Elu": lambda lanes, attr: _exponential(attr("alpha", 1.0), 1.0, lanes),
    "Erf": _rising(math.erf),
    "Exp": _rising(math.exp),
    "Floor": _rising(math.floor),
    "Gelu": _gated,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _gated,
    "Identity": lambda lanes, _: lanes,
    "LeakyRelu": _leaky,
    "Log": _defined(1 / LIMIT, LIMIT, math.log),
    "Mish": _gated,
    "Neg": lambda lanes, _: Lanes.within(-lanes.low, -lanes.high),
    "Reciprocal": lambda lanes, _: _quotient((Lanes(1.0, 1.0), lanes)),
    "Relu": _rising(lambda x: max(x, 0.0)),
    "Round": _rising(round),
    "Selu": lambda lanes, attr: _exponential(attr("alpha", 1.6732632), attr("gamma", 1.050701), lanes),
    "Shrink": _shrink,
    "Sigmoid": _between(0, 1),
    "Sign": _rising(lambda x: math.copysign(1, x) if x else 0.0),
    "Sin": lambda lanes, _: lanes if lanes == ZERO else Lanes(-1, 1),
    "Sinh": _rising(math.sinh),
    "Softplus": _rising(_softplus),
    "Softsign": _rising(lambda x: x / (1 + abs(x))),
    "Sqrt": _defined(0, LIMIT, math.sqrt),
    "Swish": _gated,
    "Tan": _defined(-1.5, 1.5, math.tan),
    "Tanh": _rising(math.tanh),
    "ThresholdedRelu": _gated,
    "com.microsoft::FastGelu": _gated,
    "com.microsoft::Gelu": _gated,
    "com.microsoft::QuickGelu": _gated,
}
"""Unary operators, except those whose result is bounded by other operands."""


def mapped(op: str, lanes: Lanes, attr: Attributes = lambda _, absent: absent) -> Lanes:
    """The lanes of the result of an elementwise operator of `UNARY`, with some attributes."""
    return UNARY[op](lanes, attr).rounded() if lanes.bounded else ANYTHING


def clipped(lanes: Lanes, low: float, high: float) -> Lanes:
    """The lanes of the result of `Clip`, whose bounds may be infinite."""
    if not lanes.bounded or math.isnan(low) or math.isnan(high):
        return ANYTHING
    return Lanes.within(*(min(max(x, low), high) for x in (lanes.low, lanes.high)))


def number(value: float | np.floating) -> Lanes:
    """The bounds of a constant that is combined with all lanes."""
    return Lanes.within(float(value))
