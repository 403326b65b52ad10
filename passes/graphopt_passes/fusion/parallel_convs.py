"""Re-parameterization: parallel linear branches that meet in an addition."""

from __future__ import annotations

from collections.abc import Iterator

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.fusion.branches import (
    Branch,
    add_branches,
    branch_input,
    identity_branch,
    read_convolution_branch,
)
from graphopt_passes.fusion.convolution import narrowed

Path = tuple[tuple[Node, int], ...]
"""Additions from the top down to a summand, each with the position of the next one."""

_DEEPEST = 6
"""Additions on the way to a summand; a longer chain is taken up from its lower end."""


class FuseParallelConvs(OpRule):
    """Join convolutions of the same value whose results are added into one convolution.

    A normalization of that value, or the value itself, counts as a convolution too, so a block of 3x3, 1x1 and
    identity branches becomes one `Conv`. Smaller kernels are laid into larger ones, and fewer groups are taken where
    that takes no more multiplications than before. Other summands in between stay; `Sub` counts the right side
    negative. Where an infinite input gave NaN, as infinities of different branches cancelled, it may give an infinity.
    """

    name = "fuse_parallel_convs"
    ops = ("Add", "Sub")
    opsets = "7-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for a summand on each side that reads the same value."""
        left, right = node.input(0), node.input(1)
        if left is None or right is None or left is right:
            return None
        outcome: Outcome = None
        others = list(_summands(right, node)) if node.op == "Add" else [(right, ())]
        summands = list(_summands(left, node))
        if not any(_is_conv(value) for value, _ in (*summands, *others)):
            return None
        for a, upper in summands:
            for b, lower in others:
                joined = _join(a, b, node, rw)
                if joined is None:
                    continue
                if isinstance(joined, Mismatch):
                    outcome = joined
                    continue
                total = _rebuilt(upper, joined, rw)
                if lower:
                    rest = _without(lower, rw)
                    total = rw.op("Add", total, rest)
                return rw.replace(node, [total])
        return outcome


def _is_conv(value: Value) -> bool:
    return value.producer is not None and value.producer.op == "Conv"


def _summands(value: Value, reader: Node, path: Path = ()) -> Iterator[tuple[Value, Path]]:
    """What is added up in `value`, through additions that nothing else reads."""
    node = value.producer
    inside = node is not None and node.op == "Add" and value.one_use and node.graph is reader.graph
    if node is None or not inside or len(path) == _DEEPEST:
        yield value, path
        return
    for index in (0, 1):
        below = node.inputs[index]
        if below is not None:
            yield from _summands(below, reader, (*path, (node, index)))


def _rebuilt(path: Path, value: Value, rw: Rewriter) -> Value:
    """The sum with another value at the end of the path."""
    for node, index in reversed(path):
        operands = list(node.inputs)
        operands[index] = value
        value = rw.op("Add", *operands)
    return value


def _without(path: Path, rw: Rewriter) -> Value:
    """The sum without the value at the end of the path."""
    last, index = path[-1]
    left = last.inputs[1 - index]
    assert left is not None
    return _rebuilt(path[:-1], left, rw)


def _join(a: Value, b: Value, root: Node, rw: Rewriter) -> Value | Mismatch | None:
    """One convolution for two summands; None when they have nothing in common."""
    if not (_is_conv(a) or _is_conv(b)):
        return None
    x = branch_input(a, root)
    if x is None or branch_input(b, root) is not x:
        return None
    nodes = [None if value is x else value.producer for value in (a, b)]
    convs = [node for node in nodes if node is not None and node.op == "Conv"]
    if not convs:
        return None
    if convs[0].input(0) is not x:
        return None
    branches = _read(nodes, convs[0])
    if isinstance(branches, Mismatch):
        return branches
    one, two = branches
    total = add_branches(one, two.negated() if root.op == "Sub" else two)
    if isinstance(total, Mismatch):
        return total
    return _emitted(total, x, convs[0], rw)


def _read(nodes: list[Node | None], conv: Node) -> list[Branch] | Mismatch:
    model = read_convolution_branch(conv)
    if isinstance(model, Mismatch):
        return model
    found = []
    for node in nodes:
        if node is conv:
            branch: Branch | Mismatch = model
        elif node is not None and node.op == "Conv":
            branch = read_convolution_branch(node)
        else:
            branch = identity_branch(model, node)
        if isinstance(branch, Mismatch):
            return branch
        found.append(branch)
    return found


def _emitted(branch: Branch, x: Value, like: Node, rw: Rewriter) -> Value | Mismatch:
    weight = like.inputs[1]
    array = weight.const() if weight is not None else None
    assert array is not None
    kernel, bias = narrowed(branch.kernel, array.dtype), narrowed(branch.bias, array.dtype)
    if kernel is None or bias is None:
        return Mismatch("the sum of the weights leaves the range of their element type")
    result: Value = rw.op(
        "Conv", x, rw.constant(kernel, like=weight), rw.constant(bias, like=like.input(2) or f"{x.name}_bias"),
        kernel_shape=branch.size, strides=branch.strides, dilations=branch.dilations,
        pads=branch.before + branch.after, group=branch.group,
    )  # fmt: skip
    return result
