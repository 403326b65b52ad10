"""Gated linear units as one operator."""

from __future__ import annotations

from typing import Any, ClassVar

from onnx import TensorProto

from graphopt.ir import Node, Value
from graphopt.match import Attr, Either, Match, Pattern, Product, Var
from graphopt.rewrite import Level, Mismatch, Numerics, OpRule, Outcome, PatternRule, Rewriter
from graphopt_passes.elimination.facts import made_by, only_reader
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST, first, not_float
from graphopt_passes.fusion.gelu import gelu_by_erf, gelu_by_tanh, with_any_scale


class FuseErfGelu(PatternRule):
    """Recognize `Gelu` with `Erf` where the standard does not have it yet.

    The form is that of `fuse_gelu`, which is for opset 20 and later; the factor 0.5 may be gone into weights.
    """

    name = "fuse_erf_gelu"
    level = Level.EXTENDED
    opsets = "7-19"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "GeluFusionL2"}

    def pattern(self, op: Any) -> Pattern:
        """The curve is `Erf`."""
        return gelu_by_erf(op, Var("x", dtype=TensorProto.FLOAT))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """`Gelu` of the runtime."""
        return with_any_scale(rw.op("Gelu", m.x, domain=DOMAIN), m, rw)


class FuseFastGelu(PatternRule):
    """Recognize `Gelu` in the approximation with `Tanh` where the standard does not have it yet.

    The forms are those of `fuse_gelu`, which is for opset 20 and later; the factor 0.5 may be gone into weights.
    A model that has `Erf` never gets this one.
    """

    name = "fuse_fast_gelu"
    level = Level.EXTENDED
    opsets = "7-19"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "FastGeluFusion"}

    def pattern(self, op: Any) -> Pattern:
        """The curve is `Tanh`."""
        return gelu_by_tanh(op, Var("x", dtype=TensorProto.FLOAT))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """`FastGelu` of the runtime."""
        return with_any_scale(rw.op("FastGelu", m.x, domain=DOMAIN), m, rw)


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


class FuseQuickGelu(PatternRule):
    """Recognize `x * Sigmoid(alpha * x)`, and `Swish`, as `QuickGelu`; `alpha` is 1 where there is none."""

    name = "fuse_quick_gelu"
    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = f"7-{NEWEST}"
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "QuickGeluFusion"}

    def pattern(self, op: Any) -> Pattern:
        """Written out, or the operator of opset 24."""
        x = Var("x", dtype=TensorProto.FLOAT)
        return Either(op.Mul(x, op.Sigmoid(Either(x, Product(x, scale="alpha")))), op.Swish(x, alpha=Attr("alpha")))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """`QuickGelu` of the runtime."""
        gelu: Value = rw.op("QuickGelu", m.x, domain=DOMAIN, alpha=1.0 if m.alpha is None else m.alpha)
        return gelu
