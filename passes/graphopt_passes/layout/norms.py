"""Layer normalization along the channels of an image."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.ir import Node, Value
from graphopt.match import Mismatch
from graphopt.rewrite import Level, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.fusion.axes import absolute
from graphopt_passes.fusion.normalization import not_alone, read_centered, spread

_FIRST, _LAST = (0, 3, 1, 2), (0, 2, 3, 1)
_NORM = "LayerNormalization"


class ConvertLayerNormalizationAxis(OpRule):
    """Compute a normalization over channels that is written out by `LayerNormalization` between two `Transpose`.

    The operator works along the last axes only, and is one pass over the numbers instead of seven. Scale and bias for
    each channel after it become its own. Next to a convolution in blocked layout the `Transpose` of an image becomes
    part of the reorder that is there anyway.
    """

    name = "convert_layer_normalization_axis"
    ops = ("Div", "Mul", "Add")
    level = Level.LAYOUT
    numerics = Numerics.ROUNDING
    opsets = "17-"
    peers: ClassVar[dict[str, str]] = {}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for a normalization that ends here, or for a scale or bias of one."""
        centered = read_centered(node) if node.op != "Add" else None
        if centered is None:
            return _absorb(node, rw) if node.op != "Div" else None
        if isinstance(centered, Mismatch):
            return centered
        x, scatter, inner = centered
        shape = x.shape
        if shape is None or len(shape) != 4 or absolute(scatter.axes, 4) != (1,):
            return None
        problem = not_alone(node, x, inner)
        if problem is not None:
            return problem
        channels = shape[1]
        if not isinstance(channels, int) or not channels:
            return Mismatch("the channels of {} are not known", x.name)
        numbers = [v for part in inner for v in part.inputs if v is not None and v.is_const and part.op != "ReduceMean"]
        if any((value.rank or 0) > 4 for value in numbers):
            return Mismatch("the constants may add axes to {}", x.name)
        ones = rw.constant(np.ones(channels, np.float32), like=f"{x.name}_scale")
        return rw.replace(node, [_normalized(rw, x, [ones], scatter.epsilon)])


def _normalized(rw: Rewriter, x: Value, parameters: list[Value | None], epsilon: float) -> Value:
    last = rw.op(_NORM, rw.op("Transpose", x, perm=_LAST), *parameters, axis=-1, epsilon=epsilon)
    made: Value = rw.op("Transpose", last, perm=_FIRST)
    return made


def _absorb(node: Node, rw: Rewriter) -> Outcome:
    """Take a scale, or a bias, for each channel into a normalization between transposes that has none yet."""
    for value, other in (node.inputs[:2], node.inputs[1::-1]):
        norm = _between(value)
        constant = other.const() if other is not None else None
        if value is None or norm is None or constant is None or norm.input(2) is not None:
            continue
        scale = norm.input(1)
        weights = scale.const() if scale is not None else None
        if weights is None or weights.ndim != 1 or (node.op == "Mul" and not (weights == 1).all()):
            continue
        if norm.graph is not node.graph:
            return Mismatch("{} is computed in an outer graph", value.name)
        inner = norm.outputs[0]
        assert inner is not None
        if not value.one_use or not inner.one_use or norm.outputs[1:]:
            return Mismatch("{} has other readers", value.name)
        row = spread(constant, (len(weights), 1, 1), 4)
        if row is None:
            return Mismatch("the constant of shape {} varies along other axes", constant.shape)
        made = rw.constant(row.reshape(-1), like=other)
        parameters = [made] if node.op == "Mul" else [scale, made]
        last = rw.op(_NORM, norm.inputs[0], *parameters, **norm.attrs)
        return rw.replace(node, [rw.op("Transpose", last, perm=_FIRST)])
    return None


def _between(value: Value | None) -> Node | None:
    """The LayerNormalization along the last axis that a Transpose to channels first reads."""
    back = value.producer if value is not None else None
    if back is None or back.op != "Transpose" or back.attrs.get("perm") != _FIRST:
        return None
    norm = back.inputs[0].producer if back.inputs[0] is not None else None
    fits = norm is not None and norm.op == _NORM and norm.attr("axis", -1) in (-1, 3) and norm.graph is back.graph
    return norm if fits else None
