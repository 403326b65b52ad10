"""Elementwise functions, written out in operators of older opsets."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.ir.types import element_bits
from graphopt.opsets import automatic
from graphopt.opsets.bodies import called
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.registry import Step, down, number_like, of_kind, typed
from graphopt.rewrite import Rewriter

Make = Callable[..., Value]
"""Builds an operator; plain numbers become constants of the right element type; see `typed`."""


def _sinh(x: Value, op: Make) -> Value:
    return op("Mul", op("Sub", op("Exp", x), op("Exp", op("Neg", x))), 0.5)


def _cosh(x: Value, op: Make) -> Value:
    return op("Mul", op("Add", op("Exp", x), op("Exp", op("Neg", x))), 0.5)


def _asinh(x: Value, op: Make) -> Value:
    far = op("Add", op("Abs", x), op("Sqrt", op("Add", op("Mul", x, x), 1)))
    sign = op("Sub", op("Mul", op("Cast", op("Greater", x, 0), to=TensorProto.DOUBLE), 2), 1)
    return op("Mul", op("Log", far), sign)


def _acosh(x: Value, op: Make) -> Value:
    # sqrt(x - 1) * sqrt(x + 1) is NaN for x < 1, unlike sqrt(x * x - 1) for x < -1.
    inside = op("Mul", op("Sqrt", op("Sub", x, 1)), op("Sqrt", op("Add", x, 1)))
    return op("Log", op("Add", x, inside))


def _atanh(x: Value, op: Make) -> Value:
    return op("Mul", op("Log", op("Div", op("Add", x, 1), op("Sub", 1, x))), 0.5)


_ERF = (
    2.682470633126459, 1.73569020549112, 0.11181143059819, -0.0459519022639801, 0.01738623854189858,
    -0.005659964362179562, 0.001329342147097636, -3.276186305438632e-05, -0.0002180719521096931, 0.0002177237857780606,
    -0.0001256261893297997, 1.94075158538918e-05, 7.925424176811898e-06,
)  # fmt: skip
"""-log(1 - erf(x)) / x to 3e-9, in powers of x / 2 - 1, for 0 <= x <= 4: beyond, erf(x) in float is 1."""


def _erf(x: Value, op: Make) -> Value:
    apart = op("Abs", x)
    within = op("Where", op("Greater", apart, 4), 4, apart)
    place = op("Sub", op("Mul", within, 0.5), 1)
    power: Value | float = _ERF[-1]
    for factor in reversed(_ERF[:-1]):
        power = op("Add", op("Mul", place, power), factor)
    curve = op("Sub", 1, op("Exp", op("Neg", op("Mul", within, power))))
    return op("Where", op("Less", x, 0), op("Neg", curve), curve)


def rounded(x: Value, op: Make, dtype: int) -> Value:
    """Round to the nearest integer, ties to even."""
    below = op("Floor", x)
    rest = op("Sub", x, below)
    halves = op("Not", op("Or", op("Less", rest, 0.5), op("Greater", rest, 0.5)))
    odd = op("Greater", op("Sub", below, op("Mul", op("Floor", op("Mul", below, 0.5)), 2)), 0.5)
    up = op("Or", op("Greater", rest, 0.5), op("And", halves, odd))
    return op("Add", below, op("Cast", up, to=dtype))


_FORMULAS = {
    "Asinh": _asinh, "Sinh": _sinh, "Cosh": _cosh, "Acosh": _acosh, "Atanh": _atanh, "Erf": _erf,
}  # fmt: skip


_NEAR_ZERO = {
    "Asinh": (1.0, -1 / 6),
    "Atanh": (1.0, 1 / 3),
    "Erf": (2 / math.sqrt(math.pi), -1 / 3),
    "Sinh": (1.0, 1 / 6),
}
_NEAR = 1e-4
"""Below this magnitude two terms of the series are exact in double precision, while the formula would cancel."""


@down(9, "Acosh", "Asinh", "Atanh", "Cosh", "Erf", "Sinh")
def by_formula(node: Node, change: Change, rw: Rewriter) -> None:
    """Compute the function by its formula, in double precision: in that of the operand, differences would cancel."""
    x = node.operand(0)
    if x.dtype not in (TensorProto.FLOAT, TensorProto.FLOAT16):
        raise Decline("there is no {} before opset 9", node.op_type)

    op = of_kind(rw, np.float64)
    wide = rw.op("Cast", x, to=TensorProto.DOUBLE)
    result = _FORMULAS[node.op_type](wide, op)
    if node.op_type in _NEAR_ZERO:
        first, third = _NEAR_ZERO[node.op_type]
        series = op("Mul", op("Mul", wide, op("Add", op("Mul", op("Mul", wide, wide), third), 1)), first)
        result = op("Where", op("Less", op("Abs", wide), _NEAR), series, result)
    rw.replace(node, [rw.op("Cast", result, to=x.dtype)])


@down(11, "Round")
def to_the_even(node: Node, change: Change, rw: Rewriter) -> None:
    """Compute `Round` by `Floor`, adding 1 if the rest is above 1/2, or is 1/2 and the floor is odd."""
    x = node.operand(0)
    op = typed(rw, x)
    rw.replace(node, [rounded(x, op, x.element_type())])


def is_number(x: Value, op: Make) -> Value:
    """Whether a value is not NaN: x > -1 or x < 0."""
    return op("Or", op("Greater", x, -1), op("Less", x, 0))


@down(9, "IsNaN")
def is_no_number(node: Node, change: Change, rw: Rewriter) -> None:
    """Compute IsNaN(x) = not (x > -1 or x < 0)."""
    x = node.operand(0)
    rw.replace(node, [rw.op("Not", is_number(x, typed(rw, x)))])


@down(10, "IsInf")
def beyond_all_numbers(node: Node, change: Change, rw: Rewriter) -> None:
    """Compare with the largest and the lowest finite number."""
    x = node.operand(0)
    op = typed(rw, x)
    top = float(np.finfo(number_like(x, 0).dtype).max)
    high, low = op("Greater", x, top), op("Less", x, -top)
    wanted = [each for name, each in (("positive", high), ("negative", low)) if node.attr(f"detect_{name}", 1)]
    if not wanted:
        raise Decline("detect_negative and detect_positive are both 0")
    rw.replace(node, [wanted[0] if len(wanted) == 1 else op("Or", high, low)])


@down(9, "Sign")
def one_of_three(node: Node, change: Change, rw: Rewriter) -> None:
    """Compute Sign(x) = (x > 0) - (x < 0); for NaN 0 / 0."""
    x = node.operand(0)
    op = typed(rw, x)
    high, low = (op("Cast", op(kind, x, 0), to=x.dtype) for kind in ("Greater", "Less"))
    sign = op("Sub", high, low)
    if x.dtype in FLOAT_TYPES:
        sign = op("Div", sign, op("Cast", is_number(x, op), to=x.dtype))
    rw.replace(node, [sign])


@down(9, "Shrink")
def shrunk(node: Node, change: Change, rw: Rewriter) -> None:
    """Compute x - bias if x > lambd, x + bias if x < -lambd, else 0; by `Where`, so that infinities stay infinite."""
    x = node.operand(0)
    if x.dtype not in FLOAT_TYPES:
        raise Decline("there is no Shrink before opset 9")
    op, lambd, bias = typed(rw, x), node.attr("lambd", 0.5), node.attr("bias", 0.0)
    above = op("Where", op("Greater", x, lambd), op("Sub", x, bias), 0)
    rw.replace(node, [op("Where", op("Less", x, -lambd), op("Add", x, bias), above)])


@down(10, "ThresholdedRelu")
def above_a_threshold(node: Node, change: Change, rw: Rewriter) -> None:
    """Compute x if x > alpha, else 0; by `Where` instead of a product, which would give NaN for infinities."""
    x = node.operand(0)
    op = typed(rw, x)
    chosen = op("Greater", x, node.attr("alpha", 1.0))
    rw.replace(node, [op("Where", chosen, x, 0)])


@down(12, "Celu")
@down(28, "Celu")
def exponential_below_zero(node: Node, change: Change, rw: Rewriter) -> Step:
    """Compute Celu by the formula of the standard, from which its function body differs if alpha is negative.

    Before opset 28 there are no doubles; for these the body has an `Elu`, which runtimes have for float only.
    """
    x, alpha = node.operand(0), float(node.attr("alpha", 1.0))
    if change.before is not None and x.dtype != TensorProto.DOUBLE:
        return automatic.down(node, change, rw)
    if change.before is None and alpha >= 0:
        raise Decline
    op = typed(rw, x)
    below = op("Mul", op("Sub", op("Exp", op("Div", x, alpha)), 1), alpha)
    rw.replace(node, [rw.op("Add", rw.op("Relu", x), op("Min", below, 0))])
    return None


_POWERS = 278
"""Number of powers of two between the smallest and the largest float."""

_REMAINDER = """
<opset_import: ["" : 10], domain: "written.out">
remainder (rounds, on, x, y, most, half) => (rest) {
  rest, last = Loop (rounds, on, x, most) <body = power_by_power
      (int64 at, bool still, double[] before, double power) => (bool again, double[] after, double next) {
    again = Identity (still)
    much = Mul (y, power)
    fewer = Sub (before, much)
    too_much = Less (before, much)
    after = Where (too_much, before, fewer)
    next = Mul (power, half)
  }>
}
"""


def _remainder_of_floats(node: Node, rw: Rewriter) -> None:
    """Subtract the divisor times powers of two, in descending order, wherever possible; each subtraction is exact."""
    x, y = node.operand(0), node.operand(1)
    if x.dtype not in (TensorProto.FLOAT, TensorProto.FLOAT16):
        raise Decline("there is no Mod before opset 10, and no wider type in which quotients are exact")
    op = typed(rw, x)
    wide = [rw.op("Cast", rw.op("Abs", each), to=TensorProto.DOUBLE) for each in (x, y)]
    numbers = np.asarray(_POWERS, np.int64), np.asarray(True), np.asarray(2.0 ** (_POWERS - 1)), np.asarray(0.5)
    rounds, on, most, half = map(rw.constant, numbers)
    rest = called(rw, onnx.parser.parse_function(_REMAINDER), rounds, on, *wide, most, half)[0]
    rest = rw.op("Cast", rest, to=x.dtype)
    signed = op("Where", op("Less", x, 0), rw.op("Neg", rest), rest)
    infinite = op("Greater", rw.op("Abs", x), float(np.finfo(number_like(x, 0).dtype).max))
    divides = op("Or", op("Less", y, 0), op("Greater", y, 0))
    none = op("Or", infinite, op("Not", divides))
    rw.replace(node, [op("Where", none, math.nan, signed)])


@down(10, "Mod")
def remainder(node: Node, change: Change, rw: Rewriter) -> None:
    """Compute the remainder of a division that rounds towards zero, as in C (fmod), or down, as in Python."""
    x, y = node.operand(0), node.operand(1)
    if x.dtype in FLOAT_TYPES:
        _remainder_of_floats(node, rw)
        return
    if (element_bits(x.dtype or 0) or 0) < 32:
        wide = (rw.op("Cast", each, to=TensorProto.INT32) for each in (x, y))
        rw.replace(node, [rw.op("Cast", rw.op("Mod", *wide, fmod=node.attr("fmod", 0)), to=x.dtype)])
        return
    rest = rw.op("Sub", x, rw.op("Mul", rw.op("Div", x, y), y))
    if node.attr("fmod", 0) or x.dtype in (TensorProto.UINT32, TensorProto.UINT64):
        rw.replace(node, [rest])
        return
    op = typed(rw, x)
    # Whether the signs differ; a product of both could overflow and have the wrong sign.
    apart = op("And", op("Not", op("Equal", rest, 0)), op("Xor", op("Less", rest, 0), op("Less", y, 0)))
    rw.replace(node, [op("Add", rest, op("Mul", op("Cast", apart, to=x.dtype), y))])


@down(28, "Mod")
def remainder_of_floats(node: Node, change: Change, rw: Rewriter) -> Step:
    """Compute a float remainder with the sign of the divisor by `fmod=1`, the only form of floats before."""
    x, y = node.operand(0), node.operand(1)
    if node.attr("fmod", 0) or x.element_type() not in FLOAT_TYPES:
        return automatic.down(node, change, rw)
    op = typed(rw, x)
    rest = rw.op("Mod", x, y, fmod=1)
    below = op("Less", y, 0)
    apart = op("Or", op("And", op("Less", rest, 0), op("Greater", y, 0)), op("And", op("Greater", rest, 0), below))
    signed = op("Where", op("Equal", rest, 0), op("Where", below, -0.0, 0), rest)
    rw.replace(node, [op("Where", apart, op("Add", rest, y), signed)])
    return None


@down(11, "Equal")
def equal_floats(node: Node, change: Change, rw: Rewriter) -> Step:
    """Floats are equal if neither is greater and x + y is not NaN; uint64 is compared as int64."""
    x, y = node.operand(0), node.operand(1)
    if x.dtype == TensorProto.UINT64:
        rw.replace(node, [rw.op("Equal", *(rw.op("Cast", each, to=TensorProto.INT64) for each in (x, y)))])
        return None
    if x.dtype not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
        return automatic.down(node, change, rw)
    op = typed(rw, x)
    same = op("Not", op("Or", op("Less", x, y), op("Greater", x, y)))
    rw.replace(node, [op("And", same, is_number(op("Add", x, y), op))])
    return None


@down(9, "Greater", "Less")
def by_halves(node: Node, change: Change, rw: Rewriter) -> Step:
    """Compare 64-bit integers by upper, then lower halves as doubles: before opset 9 only floats are supported."""
    x, y = node.operand(0), node.operand(1)
    if x.dtype not in (TensorProto.INT64, TensorProto.UINT64):
        return automatic.down(node, change, rw)
    half = number_like(x, 1 << 31)
    upper = [rw.op("Div", each, half) for each in (x, y)]
    lower = [rw.op("Sub", each, rw.op("Mul", high, half)) for each, high in zip((x, y), upper, strict=True)]
    by_upper, by_lower = (
        rw.op(node.op_type, *(rw.op("Cast", each, to=TensorProto.DOUBLE) for each in pair)) for pair in (upper, lower)
    )
    same = [rw.op("Cast", each, to=TensorProto.INT64) for each in upper]
    rw.replace(node, [rw.op("Or", by_upper, rw.op("And", rw.op("Equal", *same), by_lower))])
    return None
