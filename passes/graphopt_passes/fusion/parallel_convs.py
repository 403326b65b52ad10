"""Re-parameterization: parallel linear branches that meet in an addition."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from graphopt.operators.branch import Branch
from graphopt.operators.linear import narrowed, narrowed_weights
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Tries, Value

Path = tuple[tuple[Node, int], ...]
"""Additions from the root to a summand, each with the operand index of the next one."""

_DEEPEST = 6
"""The most additions on the way to a summand; a longer chain is fused from its lower end."""


class FuseParallelConvs(OpRule):
    """Fuse convolutions of the same value whose results are added into one convolution.

    A batch normalization of that value, or the value itself, counts as a convolution too, so a block of 3x3, 1x1 and
    identity branches becomes one `Conv`. Smaller kernels are padded to the largest, and groups are merged where that
    takes no more multiplications than before. Other summands in between stay; `Sub` negates its right side. Where
    infinities of different branches cancelled to NaN, for an infinite input, the result may be infinite.
    """

    # No pattern: the branches may be any number of additions apart.
    ops = ("Add", "Sub")
    sources = ("Add", "Conv")
    needs = (("Conv",),)
    opsets = "7-"
    numerics = Numerics.ROUNDING
    finite = True

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for a summand on each side that reads the same value."""
        left, right = node.operand(0), node.operand(1)
        others = list(_summands(right, node)) if node.op == "Add" else [(right, ())]
        summands = list(_summands(left, node))
        if left is right or not any(value.made_by("Conv") for value, _ in (*summands, *others)):
            raise Decline
        tries = Tries()
        for (a, upper), (b, lower) in product(summands, others):
            with tries:
                total = _rebuilt(upper, _join(a, b, node, rw), rw)
                total = rw.op("Add", total, _without(lower, rw)) if lower else total
                break
        else:
            raise tries.declined
        return rw.replace(node, [total])


def _summands(value: Value, reader: Node, path: Path = ()) -> Iterator[tuple[Value, Path]]:
    """The summands of `value`, through additions that nothing else reads."""
    node = value.made_by("Add")
    if node is None or not value.one_use or node.graph is not reader.graph or len(path) == _DEEPEST:
        yield value, path
        return
    for index in (0, 1):
        yield from _summands(node.operand(index), reader, (*path, (node, index)))


def _rebuilt(path: Path, value: Value, rw: Rewriter) -> Value:
    """The sum with `value` as the summand at the end of the path."""
    for node, index in reversed(path):
        operands = list(node.inputs)
        operands[index] = value
        value = rw.op("Add", *operands)
    return value


def _without(path: Path, rw: Rewriter) -> Value:
    """The sum without the summand at the end of the path."""
    last, index = path[-1]
    return _rebuilt(path[:-1], last.operand(1 - index), rw)


def _join(a: Value, b: Value, root: Node, rw: Rewriter) -> Value:
    """One convolution for two summands; declines without a reason if they share no input."""
    x = _input(a, root)
    nodes = [None if value is x else value.producer for value in (a, b)]
    convs = [node for node in nodes if node and node.op == "Conv"]
    if _input(b, root) is not x or not convs or convs[0].operand(0) is not x:
        raise Decline
    like = Branch.of(convs[0])
    one, two = (Branch.of(node) if node in convs else like.passing_on(node) for node in nodes)
    total = one.plus(two.negated() if root.op == "Sub" else two)
    weight = convs[0].operand(1)
    dtype = weight.array().dtype
    kernel, bias = narrowed_weights(total.kernel, dtype), narrowed(total.bias, dtype, "biases")
    return rw.op(
        "Conv", x, rw.constant(kernel, like=weight), rw.constant(bias, like=convs[0].input(2) or f"{x.name}_bias"),
        kernel_shape=total.size, strides=total.strides, dilations=total.dilations, pads=total.before + total.after,
        group=total.group,
    )  # fmt: skip


def _input(value: Value, reader: Node) -> Value:
    """The input of the linear branch that ends in `value`; the value itself if it is no such branch."""
    node = value.made_by("Conv", "BatchNormalization")
    return node.operand(0) if node is not None and value.one_use and node.graph is reader.graph else value
