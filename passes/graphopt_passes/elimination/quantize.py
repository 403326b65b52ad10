"""What quantization does anyway, or undoes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by, pass_on

_RANGES: dict[int, tuple[int, int]] = {
    TensorProto.UINT8: (0, 255), TensorProto.INT8: (-128, 127),
    TensorProto.UINT16: (0, 65535), TensorProto.INT16: (-32768, 32767),
}  # fmt: skip
_SANE = (1e-30, 1e30)
"""Scales in between neither overflow nor lose digits: a number times and then divided by one rounds to itself."""


class EliminateDoubleQdq(OpRule):
    """Remove `DequantizeLinear` and `QuantizeLinear` in a row with equal parameters."""

    name = "eliminate_double_qdq"
    ops = ("QuantizeLinear",)
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "DoubleQDQPairsRemover"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look one step up and compare the parameters."""
        value, y = node.inputs[0], node.outputs[0]
        first = made_by(value, "DequantizeLinear")
        if value is None or y is None or first is None:
            return None
        if first.graph is not node.graph:
            return Mismatch("{} is computed in an outer graph", value.name)
        q, scale = first.inputs[0], node.inputs[1]
        if q is None or scale is None or q.dtype not in _RANGES or q.dtype != y.dtype:
            return Mismatch("the element types before and after differ or are not integers of 8 or 16 bits")
        axes = [(n.attr("axis", 1), n.attr("block_size", 0)) for n in (first, node)]
        if axes[0] != axes[1] or any(not _equal(first.input(i), node.input(i)) for i in (1, 2)):
            return Mismatch("the parameters of {} and {} differ", value.name, y.name)
        numbers = scale.const()
        if numbers is None or numbers.dtype != np.float32:
            return Mismatch("scale {} is not constant, or not of type float", scale.name)
        if not np.all((numbers > _SANE[0]) & (numbers < _SANE[1])):
            return Mismatch("a scale in {} is too small or too large", scale.name)
        return pass_on(node, q, rw)


def _equal(a: Value | None, b: Value | None) -> bool:
    """Whether both are the same value, or constants with equal bits."""
    if a is b or a is None or b is None:
        return a is b
    p, q = a.constant_tensor, b.constant_tensor
    return p is not None and q is not None and p.key() == q.key()


class _BeforeQuantize(OpRule):
    """Remove a limit that quantization keeps to anyway: both limits quantize to the ends of the range."""

    ops = ("QuantizeLinear",)
    numerics = Numerics.ROUNDING
    above: ClassVar[str]

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look one step up and quantize the limits."""
        value = node.inputs[0]
        first = made_by(value, self.above)
        if value is None or first is None:
            return None
        if first.graph is not node.graph:
            return Mismatch("{} is computed in an outer graph", value.name)
        if not value.one_use:
            return Mismatch("{} is used elsewhere", value.name)
        problem = _limits_more(node, _limits(first))
        return rw.set_input(node, 0, first.inputs[0]) if problem is None else problem


class EliminateReluBeforeQuantize(_BeforeQuantize):
    """Remove `Relu` in front of `QuantizeLinear` whose zero point is the smallest number of its type."""

    name = "eliminate_relu_before_quantize"
    above = "Relu"
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "ReluQuantRewrite"}


class EliminateClipBeforeQuantize(_BeforeQuantize):
    """Remove `Clip` in front of `QuantizeLinear` whose range is no wider than that of the clip."""

    name = "eliminate_clip_before_quantize"
    above = "Clip"
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "ClipQuantRewrite"}


def _limits(node: Node) -> tuple[float, float] | None:
    """The limits of a Relu or Clip, None when not known."""
    if node.op == "Relu":
        return 0.0, np.inf
    if node.graph.opset() < 11:
        return node.attr("min", -np.inf), node.attr("max", np.inf)
    found = []
    for index, none in ((1, -np.inf), (2, np.inf)):
        limit = node.input(index)
        array = limit.const(64) if limit is not None else np.array(none)
        if array is None or array.size != 1:
            return None
        found.append(float(array.reshape(-1)[0]))
    return found[0], found[1]


def _limits_more(node: Node, limits: tuple[float, float] | None) -> Mismatch | None:
    """Why the limits may cut off what quantization would not."""
    if limits is None:
        return Mismatch("the limits are not constant")
    y, scale, zero = node.outputs[0], node.inputs[1], node.input(2)
    ends = _RANGES.get(y.dtype) if y is not None and y.dtype is not None else None
    if ends is None:
        return Mismatch("the quantized type is no integer of 8 or 16 bits")
    factor = scale.const() if scale is not None else None
    offset = zero.const() if zero is not None else np.zeros(1, np.int64)
    if factor is None or offset is None or factor.size != 1 or offset.size != 1 or factor.dtype != np.float32:
        return Mismatch("scale or zero point is not one constant")
    step, shift = np.float32(factor.reshape(-1)[0]), int(offset.reshape(-1)[0])
    if not _SANE[0] < step < _SANE[1]:
        return Mismatch("the scale is too small or too large")
    with np.errstate(all="ignore"):
        low, high = (np.rint(np.float32(limit) / step) + shift for limit in limits)
    if low > ends[0] or high < ends[1]:
        return Mismatch("limits {} and {} are inside the range that is quantized", *limits)
    return None
