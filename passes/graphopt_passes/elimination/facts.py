"""Lists of integers, for rules that are not ported to `Node.ints` yet."""

from __future__ import annotations

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch

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
