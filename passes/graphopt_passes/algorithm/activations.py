"""Activations and powers whose kernels call a scalar math function for each element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from graphopt.match import FLOAT32, Either, Match, OpBuilder, Pattern, Product
from graphopt.match.factors import close
from graphopt.operators.linear import narrowed
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, PatternRule, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, floats, size_of
from graphopt_passes.fusion.rectifiers import check_slope
from graphopt_passes.reach import is_positive

_FLAT = 20.0
"""For x above this, tanh(softplus(x)) rounds to 1 in float32."""


class ConvertMishToExp(Weighed, PatternRule):
    """Replace `Mish`, `x * tanh(log(1 + exp(x)))`, with an equivalent form that needs one `Exp`.

    With `n = exp(x) * (exp(x) + 2)`, `Mish(x) = x * n / (n + 2)`. The kernels of `Softplus` and `Mish` call a logarithm
    for each element.
    """

    opsets = "8-"
    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        return Either(op.Mul(x, op.Tanh(op.Softplus(x))), op.Mish(x))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """Clamp x from above, so that exp(x) stays finite; there the quotient is 1 already."""
        size = size_of(m.x)
        self.weigh(rw, {"kernel": 1, "softplus": size}, {"kernel": 6, "element": 6 * size})
        power = rw.op("Exp", rw.op("Min", m.x, np.array(_FLAT, np.float32)))
        two = np.array(2, np.float32)
        above = rw.op("Mul", power, rw.op("Add", power, two))
        return rw.op("Mul", m.x, rw.op("Div", above, rw.op("Add", above, two)))


class ConvertSoftplusToLog(Weighed, OpRule):
    """Replace `Softplus` with separate `Exp` and `Log` operators, whose kernels are vectorized.

    With `u = exp(-|x|)` and `w = 1 + u`, `Softplus(x) = max(x, 0) + log(w) - ((w - 1) - u) / w`: the quotient corrects
    for the rounding error of `1 + u`.
    """

    ops = ("Softplus",)
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, result = node.operand(0), node.result
        size = floats(x)
        if result.read_by("Tanh"):
            raise Decline("{} may be part of Mish", result.name)
        one = np.array(1, np.float32)
        self.weigh(rw, {"kernel": 1, "softplus": size}, {"kernel": 10, "element": 9 * size, "log": size})
        small = rw.op("Exp", rw.op("Neg", rw.op("Abs", x)))
        total = rw.op("Add", small, one)
        lost = rw.op("Div", rw.op("Sub", rw.op("Sub", total, one), small), total)
        return rw.replace(node, [rw.op("Add", rw.op("Relu", x), rw.op("Sub", rw.op("Log", total), lost))])


class ConvertEluToExp(Weighed, OpRule):
    """Replace `Elu`, and `Celu` with an alpha of 1, with `max(x, alpha * (exp(min(x, 0)) - 1))`.

    For `0 < alpha <= 1`, `alpha * (exp(x) - 1) >= x` holds for all `x <= 0`.
    """

    ops = ("Celu", "Elu")
    opsets = "8-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, alpha = node.operand(0), float(node.attr("alpha", 1.0))
        size = floats(x)
        if not 0 < alpha <= 1 or (node.op == "Celu" and alpha != 1):
            raise Decline("alpha is {}, where the curve crosses its tangent", alpha)
        passes = 4 if alpha == 1 else 5
        self.weigh(rw, {"kernel": 1, node.op.lower(): size}, {"kernel": passes, "element": passes * size})
        power = rw.op("Exp", rw.op("Min", x, np.array(0, np.float32)))
        below = rw.op("Sub", power, np.array(1, np.float32))
        scaled = below if alpha == 1 else rw.op("Mul", below, np.array(alpha, np.float32))
        return rw.replace(node, [rw.op("Max", x, scaled)])


class ConvertSeluToExp(Weighed, OpRule):
    """Replace `Selu` with `gamma * relu(x) + gamma * alpha * (exp(min(x, 0)) - 1)`."""

    ops = ("Selu",)
    opsets = "8-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, alpha, gamma = node.operand(0), float(node.attr("alpha", 1.67326319)), float(node.attr("gamma", 1.05070102))
        size = floats(x)
        # For x > 0 the second term is 0 * scale: alpha * gamma must be finite, not only both factors.
        scale = narrowed(np.array(alpha * gamma), np.dtype(np.float32), "factors")
        self.weigh(rw, {"kernel": 1, "selu": size}, {"kernel": 7, "element": 7 * size})
        power = rw.op("Exp", rw.op("Min", x, np.array(0, np.float32)))
        below = rw.op("Mul", rw.op("Sub", power, np.array(1, np.float32)), scale)
        above = rw.op("Mul", rw.op("Relu", x), np.array(gamma, np.float32))
        return rw.replace(node, [rw.op("Add", above, below)])


class ConvertShrinkToClip(Weighed, OpRule):
    """Replace a soft `Shrink`, whose bias equals its threshold, with `x - clip(x, -lambd, lambd)`.

    The kernel maps NaN to 0; the new form keeps it.
    """

    ops = ("Shrink",)
    opsets = "11-"
    numerics = Numerics.FAST

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, bias, bound = node.operand(0), float(node.attr("bias", 0.0)), float(node.attr("lambd", 0.5))
        size = floats(x)
        if bias != bound or not 0 < bound < np.inf:
            raise Decline("bias is {} and lambd is {}, expected equal finite numbers", bias, bound)
        self.weigh(rw, {"kernel": 1, "shrink": size}, {"kernel": 2, "element": 2 * size})
        near = rw.op("Clip", x, min=np.array(-bound, np.float32), max=np.array(bound, np.float32))
        return rw.replace(node, [rw.op("Sub", x, near)])


class FuseClipIntoHardSigmoid(Weighed, PatternRule):
    """Replace `x * clip(x + 3, 0, 6) / 6` with `x * HardSigmoid(x)`.

    A product that overflowed before the division by 6 is finite now.
    """

    opsets = "11-"
    numerics = Numerics.ROUNDING
    finite = True

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        return Product(x, op.Clip(op.Add(x, 3.0), 0.0, 6.0), scale="scale")

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        if not close(m.scale, 1 / 6):
            raise Decline
        size = size_of(m.x)
        self.weigh(rw, {"kernel": 4, "element": 4 * size}, {"kernel": 2, "element": 2 * size})
        return rw.op("Mul", m.x, rw.op("HardSigmoid", m.x, alpha=1 / 6, beta=0.5))


_SMALLEST = 1 << 14
"""Number of elements below which branch prediction learns their signs, so that the kernel is fast."""


class ConvertPreluToMin(Weighed, OpRule):
    """Replace `PRelu` with `relu(x) + slope * min(x, 0)`.

    ONNX Runtime's kernel looks up the slope for each element; the four operators take a ninth of its time. A `PRelu`
    that is already in blocked layout has its own form.
    """

    ops = ("PRelu",)
    numerics = Numerics.ROUNDING
    opsets = "8-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, slope = node.operand(0), node.operand(1)
        if x.dtype != TensorProto.FLOAT:
            raise Decline
        array = slope.array()
        if x.rank is None or array.ndim > x.rank:
            raise Decline("the rank of {} is not known to be that of the result", x.name)
        slope.check_finite()
        check_slope(x, slope)
        size = size_of(x)
        if size < _SMALLEST and all(isinstance(dim, int) for dim in x.dims()):
            raise Decline("{} is small: already fast", x.name)
        self.weigh(rw, {"kernel": 1, "prelu": size}, {"kernel": 4, "element": 4 * size})
        below = rw.op("Mul", rw.op("Min", x, np.array(0, np.float32)), slope)
        return rw.replace(node, [rw.op("Add", rw.op("Relu", x), below)])


_Made = Callable[[Rewriter, Value], Value]


def _fourth(rw: Rewriter, x: Value) -> Value:
    square = rw.op("Mul", x, x)
    return rw.op("Mul", square, square)


_SQUARE = 2.0
_WRITTEN: dict[float, tuple[_Made, int]] = {
    _SQUARE: (lambda rw, x: rw.op("Mul", x, x), 1),
    4.0: (_fourth, 2),
    -1.0: (lambda rw, x: rw.op("Reciprocal", x), 1),
    -2.0: (lambda rw, x: rw.op("Reciprocal", rw.op("Mul", x, x)), 2),
    0.5: (lambda rw, x: rw.op("Sqrt", x), 1),
    1.5: (lambda rw, x: rw.op("Mul", x, rw.op("Sqrt", x)), 2),
    -0.5: (lambda rw, x: rw.op("Reciprocal", rw.op("Sqrt", x)), 2),
}
"""Exponent: the function that writes the power, and its number of elementwise operators."""


class ConvertPowToProducts(Weighed, OpRule):
    """Replace `Pow` with an exponent of 2, 4, -1, -2, 1/2, 3/2 or -1/2 with `Mul`, `Sqrt` and `Reciprocal`.

    ONNX Runtime calls the general `pow` unless the exponent is 2 or 3, and its loop for squares is slower than `Mul`.
    Half-integer exponents require x >= 0 (and no -0.0): `sqrt(-inf)` is NaN, but `pow(-inf, 0.5)` is not.
    """

    ops = ("Pow",)
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, exponent = node.operand(0), node.operand(1)
        array = exponent.array()
        if array.size != 1 or array.ndim > len(x.dims()):
            raise Decline("{} is not a single number", exponent.name)
        size = floats(x)
        power = float(array.reshape(-1)[0])
        if power not in _WRITTEN:
            raise Decline("there is no faster form for the exponent {}", power)
        if power % 1 and not is_positive(x):
            raise Decline("{} may be negative", x.name)
        write, passes = _WRITTEN[power]
        kind = "square" if power == _SQUARE else "power"
        self.weigh(rw, {"kernel": 1, kind: size}, {"kernel": passes, "element": passes * size})
        return rw.replace(node, [write(rw, x)])
