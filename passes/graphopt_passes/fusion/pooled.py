"""Activations before pools."""

from __future__ import annotations

from math import prod

from graphopt.match import Match, OpBuilder, Pattern, Var
from graphopt.operators.pool import Pool
from graphopt.rewrite import Decline, Level, Numerics, PatternRule, Rewriter, Value

_RISING = {"Elu": 1.0, "HardSigmoid": 0.2, "LeakyRelu": 0.01, "Sigmoid": 0.0, "Tanh": 0.0}
"""Activations that grow with their operand where `alpha` is not negative, and the `alpha` of those that state none.

`Relu` and `Clip` are left out: they cost little or nothing in the convolution before them.
"""


class MoveActivationBehindMaxPool(PatternRule):
    """Move an increasing activation behind a `MaxPool` with strides, where fewer elements are left.

    Small YOLO networks have such activations. The pass is for ONNX Runtime: other runtimes compute the activation with
    the convolution before it. The maximum of a window of only NaN, or only minus infinity, is the lowest finite number,
    to which the activation is now applied.
    """

    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    finite = True
    opsets = "7-"

    def pattern(self, op: OpBuilder) -> Pattern:
        return op.MaxPool(op.AnyOf(*_RISING)(Var("x"), _bind="activation", _other_attrs=True), _other_attrs=True)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        node, activation = m.root, m.activation
        pool = Pool.of(node)
        if prod(pool.strides) == 1:
            raise Decline("{} has as many elements as before", node.result.name)
        if pool.ceil or set(pool.dilations) != {1}:
            raise Decline("a window of {} may lie in the padding alone", node.result.name)
        if activation.attr("alpha", _RISING[activation.op]) < 0:
            raise Decline("{} falls where its operand grows", activation.result.name)
        return rw.again(activation, rw.again(node, m.x))
