"""Gated linear units as one operator."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Node, Value
from graphopt.rewrite import Level, Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by, only_reader
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST, first, not_float
from graphopt_passes.fusion.factors import number
from graphopt_passes.fusion.gelu import FuseGelu


class FuseErfGelu(FuseGelu):
    """Recognize `Gelu` with `Erf` where the standard does not have it yet.

    The forms are those of `fuse_gelu`, which is for opset 20 and later; the factor 0.5 may be gone into weights.
    """

    name = "fuse_erf_gelu"
    level = Level.EXTENDED
    opsets = "7-19"
    any_scale = True
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "GeluFusionL2"}

    def fused(self, x: Value, curve: Node, rw: Rewriter) -> Value | None:
        """`Gelu`, when the curve is `Erf`."""
        return rw.op("Gelu", x, domain=DOMAIN) if curve.op == "Erf" else None


class FuseFastGelu(FuseGelu):
    """Recognize `Gelu` in the approximation with `Tanh` where the standard does not have it yet.

    The forms are those of `fuse_gelu`, which is for opset 20 and later; the factor 0.5 may be gone into weights.
    A model that has `Erf` never gets this one.
    """

    name = "fuse_fast_gelu"
    level = Level.EXTENDED
    opsets = "7-19"
    any_scale = True
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "FastGeluFusion"}

    def fused(self, x: Value, curve: Node, rw: Rewriter) -> Value | None:
        """`FastGelu`, when the curve is `Tanh`."""
        return rw.op("FastGelu", x, domain=DOMAIN) if curve.op == "Tanh" else None


class FuseAddBiasIntoGelu(OpRule):
    """Take the bias before a `Gelu` by `Tanh` into `FastGelu`.

    For a constant of the size of the last axis. A `Gelu` by `Erf` is left alone: its `BiasGelu` is as slow as both.
    """

    name = "fuse_add_bias_into_gelu"
    ops = ("Gelu", "com.microsoft::FastGelu")
    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = f"7-{NEWEST}"
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "BiasGeluFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for an `Add` of a constant before it."""
        total = node.input(0)
        add = made_by(total, "Add")
        if total is None or add is None or node.input(1) is not None:
            return None
        if node.op == "Gelu" and node.attr("approximate", "none") != "tanh":
            return None
        for x, bias in (add.inputs, add.inputs[::-1]):
            if x is None or bias is None or not bias.is_const:
                continue
            problem = first(only_reader(total, node), not_float(total), _no_row(bias, x))
            if problem is not None:
                return problem
            return rw.replace(node, [rw.op("FastGelu", x, bias, domain=DOMAIN)])
        return None


def _no_row(bias: Value, x: Value) -> Mismatch | None:
    """A bias has one axis, and is as long as the last one of `x`."""
    tensor = bias.constant_tensor
    if tensor is not None and x.shape and len(tensor.dims) == 1 and tensor.dims[0] == x.shape[-1]:
        return None
    return Mismatch("{} is no vector along the last axis of {}", bias.name, x.name)


class FuseQuickGelu(OpRule):
    """Recognize `x * Sigmoid(alpha * x)`, and `Swish`, as `QuickGelu`; `alpha` is 1 where there is none."""

    name = "fuse_quick_gelu"
    ops = ("Mul", "Swish")
    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = f"7-{NEWEST}"
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "QuickGeluFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for a `Sigmoid` of the other factor."""
        if node.op == "Swish":
            x = node.input(0)
            if x is None:
                return None
            swish = rw.op("QuickGelu", x, domain=DOMAIN, alpha=float(node.attr("alpha", 1.0)))
            problem = not_float(x)
            return rw.replace(node, [swish]) if problem is None else problem
        for x, gate in (node.inputs, node.inputs[::-1]):
            sigmoid = made_by(gate, "Sigmoid")
            if x is None or gate is None or sigmoid is None:
                continue
            alpha = _alpha(sigmoid, x)
            if alpha is None:
                continue
            problem = alpha if isinstance(alpha, Mismatch) else first(only_reader(gate, node), not_float(x))
            if problem is not None:
                return problem
            return rw.replace(node, [rw.op("QuickGelu", x, domain=DOMAIN, alpha=alpha)])
        return None


def _alpha(sigmoid: Node, x: Value) -> float | Mismatch | None:
    """What `x` is multiplied with, or divided by, before the `Sigmoid`; None when it is not `x` that goes in."""
    argument = sigmoid.input(0)
    if argument is x:
        return 1.0
    scaled = made_by(argument, "Mul", "Div")
    if argument is None or scaled is None:
        return None
    for value, constant in (scaled.inputs, scaled.inputs[::-1])[: 2 if scaled.op == "Mul" else 1]:
        alpha = number(constant)
        if value is not x or constant is None or alpha is None:
            continue
        if scaled.op == "Div":
            if not alpha:
                return Mismatch("{} is zero", constant.name)
            alpha = 1 / alpha
        problem = only_reader(argument, sigmoid)
        if problem is not None:
            return problem
        if constant.rank and (x.rank is None or constant.rank > x.rank):
            return Mismatch("{} may add axes to {}", constant.name, x.name)
        return alpha
    return None
