"""Attention whose masked scores are so low that their exponentials underflow, which is slow on some processors."""

from __future__ import annotations

import math

import numpy as np

from graphopt.ir import BOUNDED_KEY
from graphopt.operators.softmax import Softmax
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, Work, count, floats
from graphopt_passes.elimination.magnitude import refuse_magnified_after

_NORMAL = math.log(np.finfo(np.float32).tiny)
"""exp(x) is denormal for x below this, -87.3."""

_NOTHING = math.log(np.finfo(np.float32).smallest_subnormal) - 1
"""exp(x) is zero for x below this, -104.3."""

_BOUND = -72.0
"""exp(-72) = 5.4e-32 is negligible, and stays normal when divided by a sum, or multiplied by values of ordinary
magnitude."""


class ConvertMaskedSoftmaxToBounded(Weighed, OpRule):
    """Clamp the operand of a masked `Softmax` to at most 72 below the maximum of its row.

    A mask of -100, as in window attention, leaves denormal probabilities; with -10000 or minus infinity the exponential
    underflows to zero. Intel processors take a hundred times as long for each such number, in the `Softmax` and in the
    product after it. Probabilities below 5.4e-32 become about 5.4e-32; no reader may magnify that, as in
    `eliminate_negligible_weights`. NaN scores and fully masked rows give the same results as before; an infinite value
    times a probability of zero gave NaN, and gives an infinity now (the model's metadata says so). Other processors
    lose little to denormals: there the rule declines unless `graphopt tune` measures otherwise.
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
            raise Decline("{} is not normalized along its last axis only", x.name)
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
        # Not max(x, rowmax - 72): for a large rowmax, rowmax - 72 rounds to rowmax.
        distance = rw.op("Sub", x, rw.op("ReduceMax", x, axes=view.axes))
        outcome = rw.set_input(node, 0, rw.op("Max", distance, np.array(_BOUND, np.float32)))
        rw.amend(zeroed=0, bound=bound)
        rw.add_to_metadata(BOUNDED_KEY, 1)
        return outcome


def _below_largest(x: Value) -> np.ndarray:
    """The constant mask minus its maximum in each row."""
    node = x.producer
    while node is not None and node.op in ("Reshape", "Squeeze", "Unsqueeze"):
        if node.operand(0).dims()[-1:] != x.dims()[-1:]:
            raise Decline("{} changes the last axis", node.op)
        node = node.operand(0).producer
    if node is None:
        raise Decline("no constant mask is added to {}", x.name)
    mask = _mask(node)
    if mask.ndim == 0 or mask.shape[-1] != x.dims()[-1]:
        raise Decline("the mask of {} does not vary along the last axis", node.result.name)
    largest = mask.max(axis=-1, keepdims=True)
    finite = np.isfinite(largest)
    return np.where(finite, mask - np.where(finite, largest, 0), 0)


def _mask(node: Node) -> np.ndarray:
    """The constant mask added to scores, in float64; for `Where`, 0 at scores that are kept."""
    if node.op == "Add":
        added = next((value for value in node.operands if value.is_const), None)
        if added is not None:
            return added.array().astype(np.float64)
    if node.op == "Where":
        condition, first, second = node.operands
        fill = first if first.is_const else second
        if condition.is_const and fill.is_const and fill.array().size == 1:
            masked = condition.array() if fill is first else np.logical_not(condition.array())
            return np.where(masked, fill.array().astype(np.float64).reshape(()), 0.0)
    raise Decline("the mask of {} is not constant", node.result.name)


def _columns(softmax: Node) -> float:
    """Number of products that each probability is part of."""
    users = softmax.result.users
    return sum(count(user.result.dims()[-1:]) for user in users if user.op == "MatMul")
