"""Consecutive arithmetic with constants, and products with a reciprocal."""

from __future__ import annotations

import numpy as np

from graphopt.ir import FLOAT_TYPES, Value
from graphopt.match import Const, Either, Match, OpBuilder, Pattern, Scalar, Var
from graphopt.operators.linear import joint_shape, narrowed
from graphopt.rewrite import Decline, Numerics, PatternRule, Rewriter
from graphopt_passes.fusion.gelu import completes_gelu

_NEAR = 2.0**16
"""A factor between this and its reciprocal keeps every number of practical size in the range of float32."""


def _two_in_a_row(op: OpBuilder, x: Pattern, *ops: str) -> Pattern:
    """Two consecutive operators with a constant each, which may be the left operand of a commutative one."""
    either = op.AnyOf(*ops)
    return either(either(x, Const("one", silent=True), _bind="first"), Const("two", silent=True))


def _constants(m: Match) -> tuple[np.ndarray, np.ndarray]:
    """The two constants, one of which must have their broadcast shape."""
    one, two = m.one.array(), m.two.array()
    if one.dtype.kind not in "iu" and m.x.dtype not in FLOAT_TYPES:
        raise Decline("the element type of {} is not known", m.x.name)
    joint_shape(one, two)
    return one, two


class FuseConsecutiveMul(PatternRule):
    """Fuse two multiplications or divisions by constants into one.

    If one makes numbers larger and the other smaller, both must be near 1, as in the `* n / (n - 1)` of a variance, and
    float16 declines: an intermediate overflow or underflow would disappear. Integers are only multiplied. The 0.5 of a
    written-out Gelu stays, so that runtimes recognize it.
    """

    opsets = "7-"
    numerics = Numerics.ROUNDING
    peers = {"onnxsim": "fuse_consecutive_mul"}

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        return _two_in_a_row(op, x, "Mul", "Div")

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        one, two = _constants(m)
        if completes_gelu(m.first):
            raise Decline("{} is the last factor of a Gelu", m.first.result.name)
        divides = m.first.op == "Div", m.root.op == "Div"
        if one.dtype.kind in "iu":
            if any(divides):
                raise Decline("it is an integer division")
            return rw.op("Mul", m.x, np.asarray(one * two))
        op = "Div" if all(divides) else "Mul"
        factors = [array.astype(np.float64) for array in (one, two)]
        with np.errstate(all="ignore"):
            factors = [1 / f if d and op == "Mul" else f for f, d in zip(factors, divides, strict=True)]
        _check_direction(factors, narrow=one.dtype == np.float16)
        product = narrowed(factors[0] * factors[1], one.dtype, "constants")
        if _vanishes(factors, product):
            raise Decline("the new constants overflow or underflow in their element type")
        return rw.op(op, m.x, product)


def _check_direction(factors: list[np.ndarray], *, narrow: bool) -> None:
    """Decline unless both factors make numbers larger, or both smaller, or both are near 1 in a wide type."""
    sizes = [np.abs(f) for f in factors]
    if not all(np.isfinite(s).all() for s in sizes):
        raise Decline("the combined constants are not finite")
    if all((s >= 1).all() for s in sizes) or all((s <= 1).all() for s in sizes):
        return
    if narrow or not all(((s >= 1 / _NEAR) & (s <= _NEAR)).all() for s in sizes):
        raise Decline("one constant makes numbers larger, the other smaller")


def _vanishes(factors: list[np.ndarray], product: np.ndarray) -> bool:
    """Whether a product is zero, or so small that it loses digits."""
    tiny = 2.0 ** (-14 if product.dtype == np.float16 else -126)
    exact = factors[0] * factors[1]
    return bool(((exact != 0) & (np.abs(product.astype(np.float64)) < tiny)).any() or (~exact.astype(bool)).any())


class FuseConsecutiveAdd(PatternRule):
    """Fuse two additions or subtractions of constants into one.

    The two must not cancel: the digits that the intermediate result loses by rounding would reappear. Nor may they be
    added to a third constant, which may cancel the first: that is left to constant folding.
    """

    opsets = "7-"
    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        return _two_in_a_row(op, x, "Add", "Sub")

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        one, two = _constants(m)
        minus = m.first.op == "Sub", m.root.op == "Sub"
        if one.dtype.kind in "iu":
            total = (0 - one if minus[0] else one) + (0 - two if minus[1] else two)
            return rw.op("Add", m.x, np.asarray(total).astype(one.dtype))
        a, b = (array.astype(np.float64) * (-1 if sub else 1) for array, sub in zip((one, two), minus, strict=True))
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            raise Decline("the constants are not finite")
        if m.x.is_const:
            raise Decline("{} is constant as well", m.x.name)
        if (np.sign(a) * np.sign(b) < 0).any():
            raise Decline("the constants have opposite signs")
        return rw.op("Add", m.x, narrowed(a + b, one.dtype, "constants"))


class FuseDivMul(PatternRule):
    """Replace a multiplication by a reciprocal, which is a `Reciprocal` or a `Div` of 1, with a division.

    The reciprocal of a denormal number overflows, below 2^-128 in float32 and 2^-16 in float16: there the product is
    infinite, or NaN where the other factor is 0, while the quotient is correct.
    """

    opsets = "7-"
    numerics = Numerics.ROUNDING
    finite = True
    peers = {"onnxruntime": "DivMulFusion"}

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        below = Var("below", dtype=FLOAT_TYPES)
        return op.Mul(x, Either(op.Reciprocal(below), op.Div(Scalar("one", silent=True), below)))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        if m.one not in (None, 1.0):
            raise Decline("the dividend is {}, expected 1", m.one)
        return rw.op("Div", m.x, m.below)
