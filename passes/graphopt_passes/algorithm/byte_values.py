"""Quantized values joined, normalized, and made."""

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
    """Bring quantized values to one scale by `QLinearAdd` of zero and join them by `Concat`.

    `QLinearConcat` looks each byte up in a table, in three times the time.
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
    """A scale or zero point; declines where it is computed, no scalar, negative, or far from 1."""
    array = value.array()
    if array.shape != () or (array.dtype == np.float32 and not are_ordinary(array)):
        raise Decline("{} is no scalar, or no ordinary scale", value.name)
    return float(array)


_BEHIND = 13
"""Since that opset the axis is the last one where it is not stated."""
_ROOM = 128.0
"""The kernel lifts powers to the largest float divided by that and their number, and multiplies them by the steps."""


class ConvertQuantizedSoftmax(Weighed, OpRule):
    """Compute `QLinearSoftmax` on floats, with the whole number of steps from 0 to 1 that its kernel counts with.

    That looks each byte up twice and divides it, in five times the time, and transposes what lies apart, in nine. Both
    round to the nearest.
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
            raise Decline("{} is not quantized as a whole, or its scale is no ordinary one", x.name)
        steps = _steps(node.operand(3).array(), length)
        if kind is np.int8 and steps + int(zero.item()) > np.iinfo(np.int8).max:
            raise Decline("the kernel does not stop at the largest signed byte")
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
            # A half or a quarter of an odd number of steps lies between two: divided by what is rounded, it may not.
            shares, step = rw.op("Mul", shares, np.array(steps, np.float32)), np.array(1, np.float32)
        return rw.replace(node, [rw.op("QuantizeLinear", shares, step, numbers[2])])


def _axis(node: Node, x: Value) -> int:
    """The axis that is normalized; declines where before opset 13 it might be all from there on."""
    since = min(int(node.attr("opset", 0)), node.graph.opset())
    axis = x.axis(int(node.attr("axis", -1 if int(node.attr("opset", 0)) >= _BEHIND else 1)))
    if since < _BEHIND and axis != len(x.dims()) - 1:
        raise Decline("{} is not normalized along its last axis alone", x.name)
    return axis


def _amounts(size: float, length: Dim, behind: Sequence[Dim]) -> tuple[dict[str, float], dict[str, float]]:
    """What the axis costs the kernel for bytes, and that for floats."""
    if any(dim != 1 for dim in behind):
        return {"move apart": 2 * size}, {"softmax apart": size}
    return {}, {"softmax": size, "softmax row": size / count((length,))}


def _steps(scale: np.ndarray, length: Dim) -> int:
    """How many steps the kernel divides 1 into; declines where it counts none, or its powers overflow."""
    if scale.size != 1 or not are_ordinary(scale):
        raise Decline("the scale of the result is no ordinary number")
    steps = int(np.floor(np.float32(1) / np.float32(scale.item())))
    if steps < 1 or (isinstance(length, int) and steps >= _ROOM * length):
        raise Decline("the kernel counts {} steps, which overflows, or none", steps)
    return steps


_IN_HALVES = 23
"""Since that opset numbers in half precision are divided in it, unless a `precision` is stated."""
_MEASURED = (TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT16, TensorProto.INT16)


class ConvertQuantizeOfHalves(Weighed, OpRule):
    """Quantize numbers in half precision as the same numbers in float32.

    The kernel for float16 divides and rounds them in float32, too, all 65,536 as that for float32 does, in up to twelve
    times as long. Where the runtime has computed them in float32 itself, it leaves out the rounding to float16 in front
    of the `Cast`, so that one next to halfway may come to the other integer. For bfloat16 there is no kernel.
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
            raise Decline("other machines have kernels for half precision")
        if node.graph.opset() >= _IN_HALVES and node.attr("precision", 0) != TensorProto.FLOAT:
            raise Decline("{} is divided in half precision", x.name)
        if node.result.dtype not in _MEASURED:
            raise Decline("{} is not of 8 or 16 bits", node.result.name)
        size = size_of(x)
        now, then = {"kernel": 1, "halves to bytes": size}, {"kernel": 2, "element": size, "floats to bytes": size}
        self.weigh(rw, now, then)
        single = rw.constant(scale.array().astype(np.float32), like=scale)
        inputs = (rw.op("Cast", x, to=TensorProto.FLOAT), single, *node.inputs[2:])
        return rw.replace(node, [rw.again(node, *inputs)])
