"""Quantized values of several scales, joined."""

from __future__ import annotations

import numpy as np

from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, size_of
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST
from graphopt_passes.fusion.contrib.parameters import BYTES, SANE


class ConvertQuantizedConcat(Weighed, OpRule):
    """Bring quantized values to one scale by `QLinearAdd` of zero and join them by `Concat`.

    `QLinearConcat` looks each byte up in a table, in three times the time.
    """

    ops = (f"{DOMAIN}::QLinearConcat",)
    numerics = Numerics.ROUNDING
    opsets = f"10-{NEWEST}"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        scale, zero = _number(node.operand(0)), _number(node.operand(1))
        parts, size, scaled = [], 0, 0
        for at in range(2, len(node.inputs), 3):
            x, *own = (node.operand(at + offset) for offset in range(3))
            if x.dtype not in BYTES:
                raise Decline("the element type of {} is not known", x.name)
            if (_number(own[0]), _number(own[1])) != (scale, zero):
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
    if array.shape != () or (array.dtype == np.float32 and not SANE[0] <= array.item() <= SANE[1]):
        raise Decline("{} is no scalar, or no ordinary scale", value.name)
    return float(array)
