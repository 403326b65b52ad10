"""Channel permutations before or after a convolution, folded into its weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.match import Match, OpBuilder, Pattern
from graphopt.operators import Gather
from graphopt.operators.linear import Convolution
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, PatternRule, Rewriter, Value
from graphopt_passes.algorithm.work import check_count
from graphopt_passes.elementwise import UNARY
from graphopt_passes.fusion.moved import moved_again


def _reading(node: Node, ordered: Gather, rw: Rewriter) -> Value:
    """The convolution `node`, reading the channels in the order that they have before `ordered` permutes them."""
    conv, order = Convolution.of(node), ordered.from_front()
    kernel, count = conv.kernel.array(), ordered.x.size(1)
    if conv.group != 1:
        raise Decline("the convolution has {} groups", conv.group)
    if kernel.shape[1] != count or sorted(order.tolist()) != list(range(count)):
        raise Decline("the channel order of {} is not known to be a permutation", ordered.x.name)
    moved = np.empty_like(kernel)
    moved[:, order] = kernel
    return replace(conv, x=ordered.x).write(rw, rw.constant(moved, like=conv.kernel), conv.shift)


class FuseGatherIntoConv(PatternRule):
    """Fold a `Gather` that permutes channels into the `Conv` with constant weights after it.

    The `Gather` takes each channel once, in a constant order; the convolution has one group.
    """

    numerics = Numerics.ROUNDING  # it adds the channels in another order

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        return op.Conv(op.Gather(x, ..., _bind="gather"), ...)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        gather = Gather.of(m.gather)
        if gather.axis != 1 or gather.positions.ndim != 1:
            raise Decline("{} does not gather channels by a list", m.gather.result.name)
        return _reading(m.root, gather, rw)


_MOST_BETWEEN = 4
"""The most elementwise operators between the convolution and the shuffle."""


class FuseChannelShuffleIntoConv(OpRule):
    """Fold a channel shuffle into the weights of the convolution before or after it.

    A shuffle is a `Reshape` of the channels to groups, a `Transpose` of groups and members, and a `Reshape` back. The
    convolution, before the shuffle and elementwise operators or right after it, has one group and constant weights.
    """

    # No pattern: any number of elementwise operators may stand between the convolution and the shuffle.
    ops = ("Conv", "Reshape")
    sources = ("Reshape", "Transpose")
    needs = (("Conv",), ("Reshape",), ("Transpose",))
    opsets = "7-"
    numerics = Numerics.ROUNDING  # it adds the channels in another order

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Permute the input channels of a `Conv` after the shuffle, or the output channels of one before it."""
        if node.op == "Reshape":
            return rw.replace(node, [_giving(node, rw)])
        value = node.operand(0)
        shuffle = shuffled(value, node)
        _check_fixed(node)
        value.check_one_use()
        return rw.replace(node, [_reading(node, shuffle, rw)])


def _giving(node: Node, rw: Rewriter) -> Value:
    """The result of a shuffle, from a convolution that produces its channels in the shuffled order."""
    shuffle = shuffled(node.result, node)
    between: list[Node] = []
    value = shuffle.x
    while len(between) < _MOST_BETWEEN and value.one_use and (step := value.made_by(*UNARY)):
        between.append(step)
        value = step.operand(0)
    conv = Convolution.of(value.sole_source("Conv", reader=node))
    _check_fixed(conv.node)
    kernel, order = conv.kernel.array(), shuffle.positions
    if len(kernel) != len(order):
        raise Decline("{} is not the weight of {} output channels", conv.kernel.name, len(order))
    shift = conv.shift
    if shift is not None:
        shift = rw.constant(shift.array()[order], like=shift)
    return moved_again(conv.write(rw, rw.constant(kernel[order], like=conv.kernel), shift), between, rw)


def _check_fixed(node: Node) -> None:
    """Decline if the weights of a convolution cannot be permuted."""
    weight = node.operand(1)
    if node.attr("group", 1) != 1:
        raise Decline("the convolution has {} groups", node.attr("group", 1))
    if not weight.is_const:
        raise Decline("the weight is not constant")
    weight.check_one_use()


def shuffled(value: Value, reader: Node) -> Gather:
    """A channel shuffle as a `Gather` of the image before it; declines without a reason for anything else."""
    last = value.source("Reshape", reader=reader)
    transpose = last.operand(0).source("Transpose", reader=last)
    first = transpose.operand(0).source("Reshape", reader=transpose)
    if transpose.attr("perm") != (0, 2, 1, 3, 4):
        raise Decline
    x, grouped = first.operand(0), first.result
    shape, parts = x.dims(), grouped.dims()
    known = (len(shape), len(parts)) == (4, 5) and None not in (*shape[1:], *parts[1:])
    images = (shape, (*parts[:1], *shape[1:2], *parts[3:]), value.dims())
    if not known or any(image[1:] != shape[1:] for image in images) or not _one_batch(images):
        raise Decline("{} is not known to regroup channels only", grouped.name)
    channels, groups, members = shape[1], parts[1], parts[2]
    if not (isinstance(channels, int) and isinstance(groups, int) and isinstance(members, int)):
        raise Decline("the channels of {} are not known", x.name)
    check_count(channels)
    if groups * members != channels:
        raise Decline("{} regroups more than channels", grouped.name)
    for each in (transpose, last):
        each.operand(0).sole_source("Reshape", "Transpose", reader=each)
    return Gather(x, 1, np.arange(channels).reshape(groups, members).T.reshape(-1))


def _one_batch(images: Sequence[tuple[Any, ...]]) -> bool:
    """Whether images of equal channels, heights and widths, reshaped from one another, have the same batch size."""
    first = images[0]
    if first[0] is not None and all(image[0] == first[0] for image in images):
        return True
    # A Reshape may rename the batch dimension or lose it; as many elements as before make as many images.
    return all(isinstance(dim, int) and dim > 0 for dim in first[1:])
