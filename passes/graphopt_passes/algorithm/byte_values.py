"""`Concat`, `Softmax` and `QuantizeLinear` of quantized values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from graphopt.ir import HALF_TYPES
from graphopt.rewrite import Decline, Dim, Level, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, count, size_of
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST_OF_BYTES
from graphopt_passes.fusion.contrib.parameters import BYTES, are_ordinary, check_steps


class ConvertQuantizedConcat(Weighed, OpRule):
    """Replace `QLinearConcat` with `Concat`, after a `QLinearAdd` of zero that rescales its operands.

    `QLinearConcat` looks each byte up in a table, which takes three times as long.
    """

    ops = (f"{DOMAIN}::QLinearConcat",)
    numerics = Numerics.ROUNDING
    opsets = f"10-{NEWEST_OF_BYTES}"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        scale, zero = _number(node.operand(0)), _number(node.operand(1))
        parts, size, scaled = [], 0, 0
        for at in range(2, len(node.inputs), 3):
            x, *own = (node.operand(at + offset) for offset in range(3))
            if x.dtype not in BYTES:
                raise Decline("the element type of {} is not known", x.name)
            if (_number(own[0]), _number(own[1])) != (scale, zero):
                check_steps("QLinearAdd", (_number(own[0]),), scale, node.result)
                size, scaled = size + size_of(x), scaled + 1
                nothing = np.array(0, BYTES[x.dtype])
                addend = (nothing, np.array(1, np.float32), nothing)
                x = rw.op("QLinearAdd", x, *own, *addend, *node.inputs[:2], domain=DOMAIN)
            parts.append(x)
        self.weigh(rw, {"bytes looked up": size}, {"kernel": scaled, "bytes scaled": size})
        return rw.replace(node, [rw.op("Concat", *parts, axis=node.attr("axis"))])


def _number(value: Value) -> float:
    """A scale or zero point; declines if it is not constant, no scalar, negative, or far from 1."""
    array = value.array()
    if array.shape != () or (array.dtype == np.float32 and not are_ordinary(array)):
        raise Decline("{} is not a scalar, or not in the supported range of scales", value.name)
    return float(array)


_BEHIND = 13
"""The opset from which on the default axis is the last one."""
_ROOM = 128.0
"""The kernel scales exponentials up to max(float32) / (`_ROOM` * length), and multiplies them by the steps."""


class ConvertQuantizedSoftmax(Weighed, OpRule):
    """Replace `QLinearSoftmax` with `Softmax` on floats, quantized by the integer number of steps that its kernel uses.

    The kernel looks each byte up twice and divides it, which takes five times as long, or nine times where it has to
    transpose an inner axis. Both forms round to nearest.
    """

    ops = (f"{DOMAIN}::QLinearSoftmax",)
    numerics = Numerics.ROUNDING
    opsets = f"10-{NEWEST_OF_BYTES}"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x = node.operand(0)
        kind = BYTES.get(x.dtype or 0)
        if kind is None:
            raise Decline("the element type of {} is not known", x.name)
        axis = _axis(node, x)
        length = x.dims()[axis]
        own, zero = (node.operand(at).array() for at in (1, 4))
        start = node.array(2, np.zeros((), kind))
        if own.size != 1 or start.size != 1 or zero.size != 1 or not are_ordinary(own):
            raise Decline("{} is not quantized per tensor, or its scale is outside the supported range", x.name)
        steps = _steps(node.operand(3).array(), length)
        if kind is np.int8 and steps + int(zero.item()) > np.iinfo(np.int8).max:
            raise Decline("the kernel does not saturate at the largest int8")
        step = np.array(1 / steps, np.float32)
        exact = bool(np.float32(1) / step == steps)
        size = size_of(x)
        now, then = _amounts(size, length, x.dims()[axis + 1 :])
        then |= {"bytes to floats": size, "floats to bytes": size}
        then = {"kernel": 3, **then} if exact else {"kernel": 4, "element": size, **then}
        self.weigh(rw, {"kernel": 1, "softmax of bytes": size, **now}, then)
        numbers = [rw.constant(array.reshape(())) for array in (own, start, zero)]
        shares = rw.op("Softmax", rw.op("DequantizeLinear", x, *numbers[:2]), axis=axis)
        if not exact:
            # A half or a quarter of an odd number of steps is a tie, which division by a rounded step may break.
            shares, step = rw.op("Mul", shares, np.array(steps, np.float32)), np.array(1, np.float32)
        return rw.replace(node, [rw.op("QuantizeLinear", shares, step, numbers[2])])


def _axis(node: Node, x: Value) -> int:
    """The normalized axis; declines where, before opset 13, all axes from there on may be normalized."""
    since = min(int(node.attr("opset", 0)), node.graph.opset())
    axis = x.axis(int(node.attr("axis", -1 if int(node.attr("opset", 0)) >= _BEHIND else 1)))
    if since < _BEHIND and axis != len(x.dims()) - 1:
        raise Decline("{} is not normalized along its last axis only", x.name)
    return axis


def _amounts(size: float, length: Dim, behind: Sequence[Dim]) -> tuple[dict[str, float], dict[str, float]]:
    """The work that depends on the axis: of the kernel for bytes, and of that for floats."""
    if any(dim != 1 for dim in behind):
        return {"move apart": 2 * size}, {"softmax apart": size}
    return {}, {"softmax": size, "softmax row": size / count((length,))}


def _steps(scale: np.ndarray, length: Dim) -> int:
    """The number of steps that the kernel divides 1 into; declines if it is 0, or exponentials overflow."""
    if scale.size != 1 or not are_ordinary(scale):
        raise Decline("the scale of the result is not a single number in the supported range")
    steps = int(np.floor(np.float32(1) / np.float32(scale.item())))
    if steps < 1 or (isinstance(length, int) and steps >= _ROOM * length):
        raise Decline("the kernel divides 1 into {} steps, which are none or may overflow", steps)
    return steps


_IN_HALVES = 23
"""The opset from which on half-precision operands are divided in half precision, unless `precision` is given."""
_MEASURED = (TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT16, TensorProto.INT16)


class ConvertQuantizeOfHalves(Weighed, OpRule):
    """Cast half-precision operands of `QuantizeLinear` to float32 first.

    The kernel for float16 divides and rounds in float32 too, with equal results for all 65,536 numbers, but takes up to
    twelve times as long. If the runtime computes the operand in float32 itself, it omits the rounding to float16 before
    the `Cast`, so a number near a tie may round to the other integer. There is no kernel for bfloat16.
    """

    ops = ("QuantizeLinear",)
    level = Level.ALL
    numerics = Numerics.ROUNDING
    opsets = "19-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, scale = node.operand(0), node.operand(1)
        if x.dtype not in HALF_TYPES or scale.dtype != x.dtype:
            raise Decline
        if not rw.target.is_x86:
            raise Decline("the target is not x86 and has kernels for float16")
        if node.graph.opset() >= _IN_HALVES and node.attr("precision", 0) != TensorProto.FLOAT:
            raise Decline("{} is quantized in float16 precision", x.name)
        if node.result.dtype not in _MEASURED:
            raise Decline("the element type of {} does not have 8 or 16 bits", node.result.name)
        size = size_of(x)
        now, then = {"kernel": 1, "halves to bytes": size}, {"kernel": 2, "element": size, "floats to bytes": size}
        self.weigh(rw, now, then)
        single = rw.constant(scale.array().astype(np.float32), like=scale)
        inputs = (rw.op("Cast", x, to=TensorProto.FLOAT), single, *node.inputs[2:])
        return rw.replace(node, [rw.again(node, *inputs)])
