"""Shared by all NumPy kernels: their signature, `Unsupported`, and operands that vary over opsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphopt.ir import Node, Value

Array = np.ndarray[Any, Any]
Kernel = Callable[[Node, list[Array | None]], Array | list[Array]]


class Unsupported(Exception):  # noqa: N818 - an answer, not an error
    """A kernel declines; the message says why."""


def need(args: list[Array | None], index: int) -> Array:
    """The operand at an index.

    Raises:
        Unsupported: it is omitted.
    """
    value = args[index] if index < len(args) else None
    if value is None:
        raise Unsupported(f"input {index} is missing")
    return value


def given(args: list[Array | None], index: int) -> Array | None:
    """The operand at an index, None if it is omitted."""
    return args[index] if index < len(args) else None


def ints(node: Node, args: list[Array | None], name: str) -> list[int] | None:
    """A list of integers, like axes or pads, from an attribute or an input, depending on the opset.

    Raises:
        Unsupported: it is an input whose elements are not plain integers.
    """
    told = node.stated(name)
    if isinstance(told, Value):
        return plain_ints(need(args, node.inputs.index(told)))
    return None if told is None else [int(v) for v in told]


def plain_ints(array: Array) -> list[int]:
    """The elements as Python integers.

    Raises:
        Unsupported: one is symbolic.
    """
    if array.dtype != object:
        return [int(v) for v in array.reshape(-1)]
    elements = array.reshape(-1).tolist()
    if not all(type(v) is int for v in elements):
        raise Unsupported("an element is symbolic")
    return elements


def normal_axis(axis: int, rank: int) -> int:
    """The axis counted from the front.

    Raises:
        Unsupported: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise Unsupported(f"axis {axis} of a tensor of rank {rank}")
    return axis % rank


def normal_axes(axes: list[int], rank: int) -> list[int]:
    """Axes counted from the front.

    Raises:
        Unsupported: one does not exist or is repeated.
    """
    normal = [normal_axis(axis, rank) for axis in axes]
    if len(set(normal)) != len(normal):
        raise Unsupported(f"axes {axes} repeat")
    return normal


def box(result: Any, dtype: Any) -> Array:
    """The result as an array: NumPy returns a scalar for rank 0."""
    if isinstance(result, np.ndarray):
        return result
    array = np.empty((), dtype)
    array[()] = result
    return array
