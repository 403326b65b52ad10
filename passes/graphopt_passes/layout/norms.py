"""Layer normalization along the channels of an image."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from graphopt.match import Const, Either, Match, OpBuilder, Pattern, Var
from graphopt.operators.transpose import FIRST, LAST
from graphopt.rewrite import Decline, Level, Numerics, PatternRule, Rewriter, Value
from graphopt_passes.fusion.normalization import checked_axes, layer_normalization, spread


class ConvertLayerNormalizationAxis(PatternRule):
    """Compute a normalization over channels that is written out by `LayerNormalization` between two `Transpose`.

    The operator works along the last axes only, in one pass instead of seven, and takes in scale and bias of each
    channel. Next to a convolution in blocked layout the `Transpose` becomes part of the reorder that is there anyway.
    """

    level = Level.LAYOUT
    numerics = Numerics.ROUNDING
    opsets = "17-"

    def pattern(self, op: OpBuilder) -> Pattern:
        """Written out, or what this pass makes of it before a scale or a bias."""
        norm = op.LayerNormalization(Var("last"), Const("weights"), _bind="norm", _other_attrs=True)
        image = op.Transpose(norm, perm=FIRST)
        written = layer_normalization(op, Var("x", dtype=TensorProto.FLOAT))
        return Either(written, op.Mul(image, Const("scale", silent=True)), op.Add(image, Const("bias", silent=True)))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        if m.norm is None:
            dims = m.x.dims()
            if len(dims) != 4 or checked_axes(m) != (1,):
                raise Decline
            if not isinstance(dims[1], int) or not dims[1]:
                raise Decline("the channels of {} are not known", m.x.name)
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
