"""Biases and activations after the `Squeeze` of a convolution's result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphopt.match import Const, Either, Match, OpBuilder, Pattern
from graphopt.operators import Squeeze
from graphopt.rewrite import Decline, PatternRule, Rewriter, Value
from graphopt_passes.elementwise import OF_ONE_TYPE


class MoveSqueezeBehindActivation(PatternRule):
    """Move a bias or an activation of a convolution's result before the `Squeeze` of that result.

    TensorFlow computes 1-D convolutions between an `Unsqueeze` and a `Squeeze`, with bias and activation after that.
    Before the `Squeeze` they fuse into the convolution, and `Squeeze` and `Unsqueeze` between two convolutions cancel.
    """

    opsets = "7-"

    def pattern(self, op: OpBuilder) -> Pattern:
        """The convolution's result may be transposed before the `Squeeze`."""
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
    """A constant with axes of size 1 inserted where the `Squeeze` removes them."""
    array = constant.array()
    rank = len(view.x.dims()) - len(view.axes)
    if array.ndim > rank:
        raise Decline("{} has more axes than {}", constant.name, view.x.name)
    if array.ndim == 0:
        return constant
    full = array.reshape(*[1] * (rank - array.ndim), *array.shape)
    return rw.constant(np.expand_dims(full, view.axes), like=constant)
