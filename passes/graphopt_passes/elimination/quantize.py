"""Bounds implied by the range of the quantized type, and redundant quantization pairs."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.ir.numpy_types import numpy_type
from graphopt.match import Match, OpBuilder, Opt, Pattern, Var
from graphopt.operators import Bounds
from graphopt.operators.quantizing import is_in_singles
from graphopt.rewrite import Decline, Fired, Node, Numerics, PatternRule, Rewriter, Value

_QUANTIZED = (TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT16, TensorProto.INT16)
_SANE = (1e-30, 1e30)
"""Scales within these bounds neither overflow nor underflow: round(q * scale / scale) = q."""


class EliminateDoubleQdq(PatternRule):
    """Remove `DequantizeLinear` and `QuantizeLinear` in a row with equal parameters."""

    peers = {"onnxruntime": "DoubleQDQPairsRemover"}

    def pattern(self, op: OpBuilder, q: Pattern) -> Pattern:
        """Parameters may be different constants with equal contents."""
        return op.QuantizeLinear(op.DequantizeLinear(q, ..., _shared=True, _bind="first"), ...)

    def rewrite(self, m: Match, rw: Rewriter) -> Fired:
        first, node, scale = m.first, m.root, m.root.operand(1)
        if m.q.dtype not in _QUANTIZED or m.q.dtype != node.result.dtype:
            raise Decline("the element types before and after differ or are not integers of 8 or 16 bits")
        axes = [(n.attr("axis", 1), n.attr("block_size", 0)) for n in (first, node)]
        if axes[0] != axes[1] or any(not _equal(first.input(i), node.input(i)) for i in (1, 2)):
            raise Decline("the parameters of {} and {} differ", first.result.name, node.result.name)
        numbers = scale.array()
        if numbers.dtype != np.float32:
            raise Decline("scale {} is not float32", scale.name)
        if not is_in_singles(first) or not is_in_singles(node):
            raise Decline("{} or {} is not computed in float32 precision", first.result.name, node.result.name)
        if not np.all((numbers > _SANE[0]) & (numbers < _SANE[1])):
            raise Decline("a scale in {} is too small or too large", scale.name)
        return rw.pass_on(node, m.q)


def _equal(a: Value | None, b: Value | None) -> bool:
    """Whether both are the same value, or constants with equal bytes."""
    if a is b or a is None or b is None:
        return a is b
    p, q = a.constant_tensor, b.constant_tensor
    return p is not None and q is not None and p.key() == q.key()


class _BeforeQuantize(PatternRule):
    """Remove bounds before quantization that are no tighter than the range of the quantized type.

    Attributes:
        limit: the operator that enforces the bounds.
    """

    numerics = Numerics.ROUNDING
    limit: ClassVar[str]

    def pattern(self, op: OpBuilder, x: Pattern, scale: Pattern) -> Pattern:
        limited = op.AnyOf(self.limit)(x, ..., _bind="limit")
        return op.QuantizeLinear(limited, scale, Opt(Var("zero")), _other_attrs=True)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        _check_limits(m.root, Bounds.of(m.limit))
        return rw.again(m.root, m.x, m.scale, m.zero)


class EliminateReluBeforeQuantize(_BeforeQuantize):
    """Remove a `Relu` before a `QuantizeLinear` whose zero point is the smallest number of its type."""

    limit = "Relu"
    peers = {"onnxruntime": "ReluQuantRewrite"}


class EliminateClipBeforeQuantize(_BeforeQuantize):
    """Remove a `Clip` before a `QuantizeLinear` whose range is no wider than that of the clip."""

    limit = "Clip"
    peers = {"onnxruntime": "ClipQuantRewrite"}


def _check_limits(node: Node, limits: Bounds) -> None:
    """Decline if the bounds may be tighter than the range of the quantized type."""
    dtype = node.result.dtype
    if dtype is None or dtype not in _QUANTIZED:
        raise Decline("the quantized type is not an integer of 8 or 16 bits")
    ends, factor = np.iinfo(numpy_type(dtype)), node.operand(1).array()
    offset = node.array(2, np.zeros(1, np.int64))
    if factor.size != 1 or offset.size != 1 or factor.dtype != np.float32:
        raise Decline("the quantization is not per tensor with a float32 scale")
    if not is_in_singles(node):
        raise Decline("{} is not computed in float32 precision", node.result.name)
    step, shift = np.float32(factor.item()), int(offset.item())
    if not _SANE[0] < step < _SANE[1]:
        raise Decline("the scale is too small or too large")
    with np.errstate(all="ignore"):
        low, high = (np.rint(np.float32(limit) / step) + shift for limit in (limits.low, limits.high))
    if low > ends.min or high < ends.max:
        raise Decline("limits {} and {} are inside the quantized range", limits.low, limits.high)
