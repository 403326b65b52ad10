"""Attention whose masked scores are so low that their exponentials underflow, which some processors do slowly."""

from __future__ import annotations

import math

import numpy as np

from graphopt.ir import BOUNDED_KEY
from graphopt.operators.softmax import Softmax
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, Work, count, floats
from graphopt_passes.elimination.magnitude import refuse_magnified_after

_NORMAL = math.log(np.finfo(np.float32).tiny)
"""Below this, -87.3, an exponential is denormal."""

_NOTHING = math.log(np.finfo(np.float32).smallest_subnormal) - 1
"""Below this, -104.3, it is zero."""

_BOUND = -72.0
"""The exponential of this, 5.4e-32, is negligible, and stays normal where it is divided by a sum, or multiplied by a
value of ordinary magnitude."""


class ConvertMaskedSoftmaxToBounded(Weighed, OpRule):
    """Let no value of a masked `Softmax` be more than 72 below the largest of its row.

    A mask of -100, as in window attention, leaves denormal probabilities; one of -10000 or minus infinity has the
    exponential underflow on its way to zero. Intel's processors take a hundred times as long for each such number, in
    the `Softmax` and in the product that follows. What was less than 5.4e-32 becomes that, and nothing that reads it
    may magnify it, as with `eliminate_negligible_weights`. Scores of NaN and rows that are masked as a whole give what
    they gave; an infinite value that met a probability of zero gave NaN, and is an infinity now (the model's metadata
    says so). Other processors lose little to denormal numbers: there the rule declines unless `graphopt tune` measures
    otherwise.
    """

    ops = ("Softmax",)
    opsets = "8-"
    numerics = Numerics.ROUNDING
    finite = True

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        view = Softmax.of(node)
        x, size = view.x, floats(view.x)
        dims = x.dims()
        if view.axes != (len(dims) - 1,):
            raise Decline("{} is not normalized along its last axis alone", x.name)
        below = _below_largest(x)
        under, nothing = (float(np.mean(below < limit)) * size for limit in (_NORMAL, _NOTHING))
        if not under:
            raise Decline("no value of {} is masked", x.name)
        rows = size / count(dims[-1:])
        softmax = {"softmax": size, "softmax row": rows}
        now: Work = {"kernel": 1, **softmax, "underflow": under, "denormal product": (under - nothing) * _columns(node)}
        then: Work = {"kernel": 4, **softmax, "reduce": size, "element": size, "bound": size}
        self.weigh(rw, now, then)
        bound = math.exp(_BOUND)
        refuse_magnified_after(node, bound * count(dims[-1:]), summed=True)
        # Not a bound for each row, the largest less 72: of a large number those are one.
        distance = rw.op("Sub", x, rw.op("ReduceMax", x, axes=view.axes))
        outcome = rw.set_input(node, 0, rw.op("Max", distance, np.array(_BOUND, np.float32)))
        rw.amend(zeroed=0, bound=bound)
        rw.add_to_metadata(BOUNDED_KEY, 1)
        return outcome


def _below_largest(x: Value) -> np.ndarray:
    """By how much a constant mask brings each value of a row below those that it masks least."""
    node = x.producer
    while node is not None and node.op in ("Reshape", "Squeeze", "Unsqueeze"):
        if node.operand(0).dims()[-1:] != x.dims()[-1:]:
            raise Decline("{} moves the last axis", node.op)
        node = node.operand(0).producer
    if node is None:
        raise Decline("no constant mask is added to {}", x.name)
    mask = _mask(node)
    if mask.ndim == 0 or mask.shape[-1] != x.dims()[-1]:
        raise Decline("the mask of {} is the same for a whole row", node.result.name)
    largest = mask.max(axis=-1, keepdims=True)
    finite = np.isfinite(largest)
    return np.where(finite, mask - np.where(finite, largest, 0), 0)


def _mask(node: Node) -> np.ndarray:
    """What a constant mask adds to scores, in doubles: 0 where they are kept by a choice."""
    if node.op == "Add":
        added = next((value for value in node.operands if value.is_const), None)
        if added is not None:
            return added.array().astype(np.float64)
    if node.op == "Where":
        condition, first, second = node.operands
        fill = first if first.is_const else second
        if condition.is_const and fill.is_const and fill.array().size == 1:
            masked = condition.array() if fill is first else ~condition.array()
            return np.where(masked, fill.array().astype(np.float64).reshape(()), 0.0)
    raise Decline("{} is not masked by constants", node.result.name)


def _columns(softmax: Node) -> float:
    """How many products each probability is part of."""
    users = softmax.result.users
    return sum(count(user.result.dims()[-1:]) for user in users if user.op == "MatMul")
