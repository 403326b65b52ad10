"""Normalizations along an axis other than the last one."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto

from graphopt.match import FLOAT32, Const, Either, Match, OpBuilder, Pattern, Var
from graphopt.operators.transpose import FIRST, LAST
from graphopt.rewrite import Decline, Node, OpRule, Outcome, PatternRule, Rewriter, Value
from graphopt_passes.algorithm.softmax import along_last, check_stands_alone, spelled_out
from graphopt_passes.algorithm.work import check_count
from graphopt_passes.fusion.normalization import checked_axes, layer_normalization, spread
from graphopt_passes.layout.blocks import ForBlocks


class ConvertLayerNormalizationAxis(ForBlocks, PatternRule):
    """Replace a written-out normalization over channels with `LayerNormalization` between two `Transpose`.

    The operator works along the last axes only, in one pass instead of seven, and absorbs scale and bias per channel.
    Next to a convolution in blocked layout the `Transpose` becomes part of the reorder that is there anyway.
    """

    opsets = "17-"

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        """The written-out form, or the result of this pass before a scale or a bias."""
        norm = op.LayerNormalization(Var("last"), Const("weights"), _bind="norm", _other_attrs=True)
        image = op.Transpose(norm, perm=FIRST)
        written = layer_normalization(op, x)
        return Either(written, op.Mul(image, Const("scale", silent=True)), op.Add(image, Const("bias", silent=True)))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        if m.norm is None:
            dims = m.x.dims()
            if len(dims) != 4 or checked_axes(m) != (1,):
                raise Decline
            if not isinstance(dims[1], int) or not dims[1]:
                raise Decline("the channels of {} are not known", m.x.name)
            check_count(dims[1])
            ones = rw.constant(np.ones(dims[1], np.float32), like=f"{m.x.name}_scale")
            return _image(rw, rw.op("Transpose", m.x, perm=LAST), [ones], {"axis": -1, "epsilon": m.epsilon})
        weights = m.weights.array()
        if m.norm.attr("axis", -1) not in (-1, 3) or weights.ndim != 1 or (m.scale and not (weights == 1).all()):
            raise Decline
        constant = m.scale or m.bias
        row = spread(constant.array(), (len(weights), 1, 1), 4)
        made = rw.constant(row.reshape(-1), like=constant)
        return _image(rw, m.last, [made] if m.scale else [m.weights, made], dict(m.norm.attrs))


def _image(rw: Rewriter, last: Value, parameters: list[Value], attrs: dict[str, Any]) -> Value:
    norm = rw.op("LayerNormalization", last, *parameters, **attrs)
    return rw.op("Transpose", norm, perm=FIRST)


_SMALLEST = 1 << 13
"""With fewer elements the added operators cost more than is saved."""

_FEW = 16
"""Along a shorter axis elementwise operators are faster than the kernel."""


class ConvertSoftmaxAxis(ForBlocks, OpRule):
    """Transpose the inner axis of a `Softmax` or `LogSoftmax` to the last, or write out a `Softmax` of few values.

    ONNX Runtime's kernel is fast along the last axis only, so the axis is transposed there and back. A `Softmax` of few
    values is written out in reductions and elementwise operators, which work along rows of the image.
    """

    ops = ("Softmax", "LogSoftmax")
    opsets = "13-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x = node.operand(0)
        dims, axis = x.dims(), x.axis(node.attr("axis", -1))
        if x.dtype != TensorProto.FLOAT or axis == len(dims) - 1:
            raise Decline
        if all(dim == 1 for dim in dims[axis + 1 :]):
            raise Decline("the normalized elements of {} are contiguous: already fast", x.name)
        if all(isinstance(dim, int) for dim in dims) and prod(x.sizes()) < _SMALLEST:
            raise Decline("{} is small: already fast", x.name)
        check_stands_alone(node)
        length = dims[axis]
        if node.op == "Softmax" and isinstance(length, int) and length < _FEW:
            return rw.replace(node, [spelled_out(x, axis, rw)], detail="spelled out")
        return rw.replace(node, [along_last(node, x, axis, rw)], detail="transposed")
