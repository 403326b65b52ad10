"""Gated linear units as one operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from graphopt.match import FLOAT32, Attr, Const, Either, Match, OpBuilder, Pattern, Product
from graphopt.operators.linear import narrowed
from graphopt.rewrite import Decline, Rewriter, Value
from graphopt_passes.fusion.contrib.operands import DOMAIN, ForRuntime, check_float
from graphopt_passes.fusion.gelu import gelu_by_erf, gelu_by_tanh, with_any_scale


class EarlyGelu(ForRuntime):
    """Recognize a `Gelu` before opset 20; `fuse_gelu` is for opset 20 and later.

    The factor 0.5 may have gone into weights.

    Attributes:
        curve: the pattern.
        op_type: the operator of the runtime.
    """

    opsets = "7-19"
    curve: ClassVar[Callable[[OpBuilder, Pattern], Pattern]]
    op_type: ClassVar[str]

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        return type(self).curve(op, x)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        return with_any_scale(rw.op(self.op_type, m.x, domain=DOMAIN), m, rw)


class FuseErfGelu(EarlyGelu):
    """Recognize `Gelu` with `Erf` before opset 20, as the contrib operator.

    The form is that of `fuse_gelu`, which is for opset 20 and later; the factor 0.5 may have gone into weights.
    """

    curve, op_type = gelu_by_erf, "Gelu"
    peers = {"onnxruntime": "GeluFusionL2"}


class FuseFastGelu(EarlyGelu):
    """Recognize `Gelu` approximated with `Tanh` before opset 20, as `FastGelu`.

    The forms are those of `fuse_gelu`, which is for opset 20 and later; the factor 0.5 may have gone into weights.
    A `Gelu` with `Erf` never becomes this operator.
    """

    curve, op_type = gelu_by_tanh, "FastGelu"
    peers = {"onnxruntime": "FastGeluFusion"}

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """The kernel refuses a scalar, since it has no axis for a bias."""
        if not m.x.dims():
            raise Decline("{} is a scalar", m.x.name)
        return super().rewrite(m, rw)


class FuseAddBiasIntoGelu(ForRuntime):
    """Fold the bias before a `Gelu` by `Tanh` into `FastGelu`.

    For a constant of the size of the last axis. A `Gelu` by `Erf` is left alone: `BiasGelu` takes as long as both
    operators.
    """

    peers = {"onnxruntime": "BiasGeluFusion"}

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        total = op.Add(x, Const("bias", silent=True), _bind="add")
        return Either(op.Gelu(total, approximate=Attr("approximate")), op.domain(DOMAIN).FastGelu(total))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        if m.approximate not in (None, "tanh"):
            raise Decline
        check_float(m.add.result)
        if not m.x.shape or m.bias.dims() != m.x.shape[-1:]:
            raise Decline("{} is not a vector along the last axis of {}", m.bias.name, m.x.name)
        return rw.op("FastGelu", m.x, m.bias, domain=DOMAIN)


class FuseQuickGelu(ForRuntime):
    """Recognize `x * Sigmoid(alpha * x)`, and `Swish`, as `QuickGelu`; `alpha` is 1 where there is none."""

    peers = {"onnxruntime": "QuickGeluFusion"}

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        return Either(op.Mul(x, op.Sigmoid(Either(x, Product(x, scale="alpha")))), op.Swish(x, alpha=Attr("alpha")))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        return rw.op("QuickGelu", m.x, domain=DOMAIN, alpha=1.0 if m.alpha is None else m.alpha)


_MODERATE = 2.0**10
"""A scale beyond this, or below its reciprocal, stays in the operator."""


class ConvertQuickGeluToSilu(ForRuntime):
    """Turn a `QuickGelu` before a product into `SiLU`, folding its scale into the products around it.

    `x * sigmoid(a * x)` is `silu(a * x) / a`. The kernel of ONNX Runtime computes `silu`, a `QuickGelu` of scale 1, in
    one pass, 90 us for 600,000 numbers on one thread of a Zen 5 core, where any other scale takes 272, like the 1.702
    of CLIP. The divisor goes into the weights after it, and the factor into those before it, where there are some.
    """

    finite = True

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        curve = op.domain(DOMAIN).QuickGelu(x, _bind="curve", _other_attrs=True)
        return op.AnyOf("Gemm", "MatMul")(curve, Const("weight"), ...)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        alpha, product, weight = float(m.curve.attr("alpha", _QUICK)), m.root, m.weight
        if alpha == 1:
            raise Decline
        if not 1 / _MODERATE <= alpha <= _MODERATE:
            raise Decline("alpha is {}, for which intermediate results may overflow", alpha)
        weight.check_one_use()
        quotient = narrowed(weight.array().astype(np.float64) / alpha, np.dtype(np.float32), "weights")
        silu = rw.op("QuickGelu", rw.op("Mul", m.x, np.array(alpha, np.float32)), domain=DOMAIN, alpha=1.0)
        inputs = silu, rw.constant(quotient, like=weight), *product.inputs[2:]
        return rw.again(product, *inputs)


_QUICK = 1.702
"""The default scale of `QuickGelu`."""
