"""Biases and activations behind the `Squeeze` of a convolution's result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphopt.match import Const, Either, Match, OpBuilder, Pattern
from graphopt.operators import Squeeze
from graphopt.rewrite import Decline, PatternRule, Rewriter, Value
from graphopt_passes.elementwise import OF_ONE_TYPE


class MoveSqueezeBehindActivation(PatternRule):
    """Add a bias to the result of a convolution, and activate it, before a `Squeeze` and not behind it.

    TensorFlow computes convolutions along one axis between an `Unsqueeze` and a `Squeeze`, the bias and the activation
    behind that. Before it they become part of the convolution, and two that follow each other lose both.
    """

    opsets = "7-"

    def pattern(self, op: OpBuilder) -> Pattern:
        """The result may be transposed first."""
        convolved = op.AnyOf("Conv", "ConvTranspose")(..., _bind="convolution")
        squeezed = op.Squeeze(Either(convolved, op.Transpose(convolved, ...)), ..., _bind="squeeze")
        constant = Const("constant", silent=True)
        return Either(
            op.AnyOf(*OF_ONE_TYPE)(squeezed, ...),
            op.AnyOf("Add", "Mul")(squeezed, constant),
            op.AnyOf("Sub", "Div", "PRelu")(squeezed, constant),
        )

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        view, node = Squeeze.of(m.squeeze), m.root
        others = tuple(node.inputs[1:])
        if m.constant is not None:
            others = (_widened(m.constant, view, rw),)
        made = rw.again(node, view.x, *others)
        return replace(view, x=made).write(rw)


def _widened(constant: Value, view: Squeeze, rw: Rewriter) -> Value:
    """A constant with axes of size 1 where the `Squeeze` removes some."""
    array = constant.array()
    rank = len(view.x.dims()) - len(view.axes)
    if array.ndim > rank:
        raise Decline("{} has more axes than {}", constant.name, view.x.name)
    if array.ndim == 0:
        return constant
    full = array.reshape(*[1] * (rank - array.ndim), *array.shape)
    return rw.constant(np.expand_dims(full, view.axes), like=constant)
