"""What eliminations ask of values: known integers, known shapes, names that others rely on."""

from __future__ import annotations

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, Outcome, Rewriter
from graphopt.rewrite.legality import check_types

_MOST_BYTES = 1 << 12
"""Lists of axes, pads and sizes are shorter than this."""


def constant_ints(value: Value) -> tuple[int, ...] | Mismatch:
    """The integers that a constant holds, or why they are not known.

    Args:
        value: a value that stands for a short list of integers.
    """
    array = value.const(_MOST_BYTES)
    if array is None or array.dtype.kind not in "iu":
        return Mismatch("{} is not constant", value.name)
    return tuple(int(number) for number in array.reshape(-1))


def int_list(node: Node, name: str, index: int, since: int) -> tuple[int, ...] | Mismatch | None:
    """A list of integers that was attribute `name` before opset `since` and is input `index` from there on.

    Args:
        node: the node.
        name: the attribute.
        index: the position of the input.
        since: the first opset with the input.

    Returns:
        The integers; a `Mismatch` when they are not constant; None when left out.
    """
    if node.graph.opset() < since:
        found = node.attr(name)
        return None if found is None else tuple(int(number) for number in found)
    value = node.input(index)
    return None if value is None else constant_ints(value)


def made_by(value: Value | None, *ops: str) -> Node | None:
    """The node that computes a value, when it is one of some operators; None when not.

    Args:
        value: the value, None being one that is left out.
        *ops: keys of operators.
    """
    node = value.producer if value is not None else None
    return node if node is not None and node.op in ops else None


def same_shape(a: Value, b: Value) -> bool:
    """Whether both shapes are known and equal: every dimension is the same number or the same symbol."""
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return False
    return all(p is not None and p == q for p, q in zip(a.shape, b.shape, strict=True))


def normal_axes(axes: tuple[int, ...], rank: int) -> tuple[int, ...] | None:
    """Axes counted from the front and in order; None when one does not exist or repeats."""
    if any(not -rank <= axis < rank for axis in axes):
        return None
    normal = sorted(axis % rank for axis in axes)
    return tuple(normal) if len(set(normal)) == len(normal) else None


def all_equal(value: Value, number: float) -> bool:
    """Whether a constant holds `number` everywhere, and at least once; its first element decides most cases."""
    array = value.const()
    if array is None or not array.size or bool(array.item(0) != number) or array.dtype == object:
        return False
    return array.size == 1 or bool(np.all(array == number))


def pass_on(node: Node, x: Value, rw: Rewriter) -> Outcome:
    """Let a value stand for what a node computes, or an `Identity` of it where both have names that must stay.

    Args:
        node: a node of one output, the last of several that together do nothing.
        x: the value.
        rw: the gate.
    """
    try:
        return rw.replace(node, [x])
    except Decline:
        check_types(node.result, x)
        return rw.replace(node, [rw.op("Identity", x)])
