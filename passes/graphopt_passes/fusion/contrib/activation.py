"""Convolutions and Gemm that apply an activation, and convolutions that add a residual, in the same kernel."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from graphopt.ir import Node, Value
from graphopt.rewrite import Level, Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by, only_reader
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST, first, not_float
from graphopt_passes.fusion.factors import number

_FUSED_CONV = f"{DOMAIN}::FusedConv"
_DEFAULTS: dict[str, dict[str, float]] = {
    "Relu": {}, "Sigmoid": {}, "Tanh": {}, "LeakyRelu": {"alpha": 0.01}, "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
}  # fmt: skip
"""Activations that both kernels know, with their parameters in order and what these are when left out."""


class FuseActivationIntoGemm(OpRule):
    """Let `FusedGemm` apply the activation after a `Gemm`."""

    name = "fuse_activation_into_gemm"
    ops = tuple(_DEFAULTS)
    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = f"7-{NEWEST}"
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "GemmActivationFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for a `Gemm` before it."""
        value = node.input(0)
        gemm = made_by(value, "Gemm")
        if value is None or gemm is None:
            return None
        problem = first(only_reader(value, node), not_float(value))
        if problem is not None:
            return problem
        params = {f"activation_{name}": value for name, value in _params(node).items()}
        attrs = {**gemm.attrs, "activation": node.op_type, **params}
        return rw.replace(node, [rw.op("FusedGemm", *gemm.inputs, domain=DOMAIN, **attrs)])


class FuseActivationIntoConv(OpRule):
    """Let `FusedConv` apply the activation after a convolution, and add a residual in between.

    Takes `Relu`, `LeakyRelu`, `Sigmoid`, `Tanh`, `HardSigmoid`, and `Clip` with constant bounds. For convolutions that
    stay in NCHW; those that are converted to the blocked layout have their activations by then.
    """

    name = "fuse_activation_into_conv"
    ops = (*_DEFAULTS, "Clip")
    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = f"7-{NEWEST}"
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "ConvActivationFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for a convolution before it, or for one with an addition after it."""
        value = node.input(0)
        conv = made_by(value, "Conv", _FUSED_CONV)
        if value is None or conv is None:
            return None
        if conv.attr("activation", ""):
            return Mismatch("{} has an activation already", value.name)
        problem = first(only_reader(value, node), not_float(value))
        if problem is not None:
            return problem
        params = _bounds(node) if node.op == "Clip" else tuple(_params(node).values())
        if isinstance(params, Mismatch):
            return params
        attrs = {**conv.attrs, "activation": node.op_type, "activation_params": params or None}
        return rw.replace(node, [rw.op("FusedConv", *conv.inputs, domain=DOMAIN, **attrs)])


class FuseAddIntoConv(OpRule):
    """Let `FusedConv` add what is added to the result of a convolution, of the same shape, before an activation."""

    name = "fuse_add_into_conv"
    ops = ("Add",)
    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = f"7-{NEWEST}"
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "ConvAddActivationFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for a convolution that ends in the sum."""
        total = node.output(0)
        reader = next(iter(total.users)) if total is not None and total.one_use else None
        if reader is None or reader.graph is not node.graph or reader.op not in FuseActivationIntoConv.ops:
            return None
        problem: Mismatch | None = None
        for value, other in (node.inputs, node.inputs[::-1]):
            conv = made_by(value, "Conv")
            if value is None or other is None or conv is None or value is other:
                continue
            problem = first(only_reader(value, node), not_float(value), _unlike(value, other))
            if problem is None:
                operands = [conv.input(i) for i in range(3)]
                fused = rw.op("FusedConv", *operands, other, domain=DOMAIN, **conv.attrs)
                return rw.replace(node, [fused])
        return problem


def _unlike(value: Value, other: Value) -> Mismatch | None:
    one, two = value.shape, other.shape
    if one is None or two is None or len(one) != 4 or None in one or one != two:
        return Mismatch("{} and {} are not known to have one shape of four axes", value.name, other.name)
    return None


def _params(node: Node) -> dict[str, float]:
    return {name: float(node.attr(name, default)) for name, default in _DEFAULTS[node.op_type].items()}


def _bounds(clip: Node) -> tuple[float, float] | Mismatch:
    """The bounds of a `Clip`, as `activation_params`."""
    limit = float(np.finfo(np.float32).max)
    if clip.graph.opset() < 11:
        return float(clip.attr("min", -limit)), float(clip.attr("max", limit))
    found: list[Any] = []
    for index, default in ((1, -limit), (2, limit)):
        bound = clip.input(index)
        found.append(default if bound is None else number(bound))
    if None in found:
        return Mismatch("the bounds are not constant")
    if any(np.isnan(limit) for limit in found):
        return Mismatch("a bound is NaN")
    return found[0], found[1]
