"""Channels put in another order beside a convolution."""

from __future__ import annotations

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by, only_reader
from graphopt_passes.fusion.transposes.permuted import UNARY
from graphopt_passes.layout.shuffle import read_shuffle

_MOST_BETWEEN = 4
"""Elementwise operators that may stand between the convolution and the shuffle."""


class FuseChannelShuffleIntoConv(OpRule):
    """Let a convolution read or give its channels in the order that a channel shuffle puts them in.

    A shuffle is a `Reshape` of the channels to groups, a `Transpose` of groups and members, and a `Reshape` back. The
    convolution before it, elementwise operators in between, or the one behind it has one group and constant weights.
    """

    name = "fuse_channel_shuffle_into_conv"
    ops = ("Conv", "Reshape")
    opsets = "7-"
    numerics = Numerics.ROUNDING  # it adds up the channels in another order

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Put the weights in the other order."""
        return _behind(node, rw) if node.op == "Conv" else _before(node, rw)


def _behind(node: Node, rw: Rewriter) -> Outcome:
    """A convolution that reads shuffled channels."""
    value, weight = node.input(0), node.input(1)
    shuffle = read_shuffle(value)
    if value is None or weight is None or not isinstance(shuffle, tuple):
        return shuffle if isinstance(shuffle, Mismatch) else None
    x, order = shuffle
    for problem in (only_reader(value, node), _fixed(node)):
        if problem is not None:
            return problem
    weights = weight.const()
    if weights is None or weights.shape[1] != len(order):
        return Mismatch("{} is not the weight of {} channels", weight.name, len(order))
    moved = weights.copy()
    moved[:, order] = weights
    return rw.replace(node, [rw.op("Conv", x, rw.constant(moved, like=weight), *node.inputs[2:], **node.attrs)])


def _before(node: Node, rw: Rewriter) -> Outcome:
    """A shuffle of what a convolution gives."""
    shuffle = read_shuffle(node.outputs[0])
    if not isinstance(shuffle, tuple):
        return shuffle
    x, order = shuffle
    between = _between(x, node)
    conv = made_by(between[-1].inputs[0] if between else x, "Conv")
    if conv is None or conv.outputs[0] is None:
        return None
    for value in (x, conv.outputs[0]):
        problem = only_reader(value, node)
        if problem is not None:
            return problem
    problem = _fixed(conv)
    if problem is not None:
        return problem
    weight, bias = conv.input(1), conv.input(2)
    weights, shift = weight.const() if weight is not None else None, bias.const() if bias is not None else None
    if weights is None or weights.shape[0] != len(order) or (bias is not None and shift is None):
        return Mismatch("the weight or the bias is not constant")
    addend = rw.constant(shift[order], like=bias) if shift is not None else None
    result: Value = rw.op("Conv", conv.input(0), rw.constant(weights[order], like=weight), addend, **conv.attrs)
    for step in reversed(between):
        result = rw.op(step.op_type, result, *step.inputs[1:], **step.attrs)
    return rw.replace(node, [result])


def _between(value: Value, node: Node) -> list[Node]:
    """The elementwise operators that lead to a value, which nothing else reads, the last first."""
    found: list[Node] = []
    while len(found) < _MOST_BETWEEN:
        step = made_by(value, *UNARY)
        if step is None or step.inputs[0] is None or only_reader(value, node) is not None:
            break
        found.append(step)
        value = step.inputs[0]
    return found


def _fixed(conv: Node) -> Mismatch | None:
    """Why the weights of a convolution cannot be put in another order."""
    weight = conv.input(1)
    if conv.attr("group", 1) != 1:
        return Mismatch("the convolution has {} groups", conv.attr("group", 1))
    if weight is None or not weight.is_const:
        return Mismatch("the weight is not constant")
    if weight.uses > 1:
        return Mismatch("{} has other readers", weight.name)
    return None
