"""Operators that work along some axes, on permuted inputs: they work along others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch
from graphopt_passes.elimination.facts import int_list
from graphopt_passes.fusion.transposes.permuted import MOST_BYTES, Perm, Permuted, Sources, first

REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd", "ReduceSum",
    "ReduceSumSquare",
)  # fmt: skip
"""Not the largest and the smallest: which one runtimes find beside NaN depends on the order."""


def concat(node: Node, sources: Sources, perm: Perm) -> Permuted | Mismatch:
    """Concatenation: along the same axis where it lies now."""
    axis = node.attr("axis")
    if axis is None or not -len(perm) <= axis < len(perm):
        return Mismatch("the axis is not known")
    inputs: list[Value | np.ndarray | None] = []
    for value in node.inputs:
        source: Value | np.ndarray | None = sources.get(value) if value is not None else None
        if source is None:
            array = value.const(MOST_BYTES) if value is not None else None
            if array is None or array.dtype == object or array.ndim != len(perm):
                return Mismatch("not all that is joined is transposed alike")
            source = np.ascontiguousarray(array.transpose(np.argsort(perm)))
        inputs.append(source)
    return Permuted(inputs, {**node.attrs, "axis": perm[axis]}, perm)


def slows(axes: Sequence[int], perm: Perm) -> bool:
    """Whether the axis that lies closest together is worked along before, and is not afterwards.

    Args:
        axes: what is worked along, counted from the front.
        perm: the permutation.
    """
    last = len(perm) - 1
    return last in axes and last not in [perm[axis] for axis in axes]


SLOWER = Mismatch("it would work along an axis whose elements lie apart")
"""Why such an operator stays."""


def softmax(node: Node, sources: Sources, perm: Perm) -> Permuted | Mismatch:
    """Softmax and its like, unless they were along the axis that lies closest together and would not be."""
    axis, x = node.attr("axis", -1), first(node, sources)
    if isinstance(x, Mismatch):
        return x
    if node.graph.opset() < 13 or not -len(perm) <= axis < len(perm):
        return Mismatch("before opset 13 {} works along all axes from one on", node.op)
    axis %= len(perm)
    return SLOWER if slows([axis], perm) else Permuted([x], {**node.attrs, "axis": perm[axis]}, perm)


def left(gone: Sequence[int], perm: Perm) -> Perm:
    """The permutation of the axes that stay when some of the input's go.

    Args:
        gone: those that go, counted from the front.
        perm: the permutation of all.
    """
    kept = [perm[axis] for axis in range(len(perm)) if axis not in gone]
    return tuple(sorted(kept).index(axis) for axis in kept)


def _normal(node: Node, axes: tuple[int, ...], rank: int) -> list[int] | Mismatch:
    if any(not -rank <= axis < rank for axis in axes) or len({axis % rank for axis in axes}) < len(axes):
        return Mismatch("the axes of {} do not exist", node.op)
    return sorted(axis % rank for axis in axes)


def _with_axes(
    node: Node, x: Value, axes: list[int], since: int, index: int, **attrs: Any
) -> tuple[list[Value | np.ndarray | None], dict[str, Any]]:
    """Inputs and attributes with other axes, in either opset form."""
    kept = {**node.attrs, **attrs}
    if node.graph.opset() < since:
        return [x, *node.inputs[1:]], {**kept, "axes": tuple(axes)}
    rest = [*node.inputs[1:], *[None] * index][: max(index, len(node.inputs) - 1)]
    inputs: list[Value | np.ndarray | None] = [x, *rest]
    inputs[index] = np.array(axes, np.int64)
    return inputs, kept


def reduction(node: Node, sources: Sources, perm: Perm) -> Permuted | Mismatch:
    """Reductions, with the same exception."""
    x, rank = first(node, sources), len(perm)
    since = 13 if node.op == "ReduceSum" else 18
    axes = int_list(node, "axes", 1, since)
    if isinstance(x, Mismatch):
        return x
    if isinstance(axes, Mismatch):
        return axes
    if not axes:
        return Mismatch("it reduces all axes, or none")
    normal = _normal(node, axes, rank)
    if isinstance(normal, Mismatch):
        return normal
    if slows(normal, perm):
        return SLOWER
    inputs, attrs = _with_axes(node, x, sorted(perm[axis] for axis in normal), since, 1)
    return Permuted(inputs, attrs, perm if node.attr("keepdims", 1) else left(normal, perm))


def pad(node: Node, sources: Sources, perm: Perm) -> Permuted | Mismatch:
    """Pads for each axis."""
    x, rank = first(node, sources), len(perm)
    pads = int_list(node, "pads", 1, 11)
    if isinstance(x, Mismatch):
        return x
    if pads is None or isinstance(pads, Mismatch) or node.graph.opset() < 2:
        return Mismatch("the pads are not constant")
    if node.input(3) is not None or len(pads) != 2 * rank:
        return Mismatch("it pads certain axes only")
    moved = [0] * (2 * rank)
    for axis, source in enumerate(perm):
        moved[source], moved[rank + source] = pads[axis], pads[rank + axis]
    if node.graph.opset() < 11:
        return Permuted([x], {**node.attrs, "pads": tuple(moved)}, perm)
    return Permuted([x, np.array(moved, np.int64), *node.inputs[2:]], dict(node.attrs), perm)


def sliced(node: Node, sources: Sources, perm: Perm) -> Permuted | Mismatch:
    """Cuts of certain axes."""
    x, axes = first(node, sources), int_list(node, "axes", 3, 10)
    if isinstance(x, Mismatch):
        return x
    if axes is None or isinstance(axes, Mismatch):
        return Mismatch("the axes of the slice are not known")
    rank = len(perm)
    if any(not -rank <= axis < rank for axis in axes):
        return Mismatch("the axes of {} do not exist", node.op)
    inputs, attrs = _with_axes(node, x, [perm[axis % rank] for axis in axes], 10, 3)
    return Permuted(inputs, attrs, perm)


def squeeze(node: Node, sources: Sources, perm: Perm) -> Permuted | Mismatch:
    """Axes of size 1 that go."""
    x, axes = first(node, sources), int_list(node, "axes", 1, 13)
    if isinstance(x, Mismatch):
        return x
    if not axes or isinstance(axes, Mismatch):
        return Mismatch("the axes of size 1 are not known")
    normal = _normal(node, axes, len(perm))
    if isinstance(normal, Mismatch):
        return normal
    inputs, attrs = _with_axes(node, x, sorted(perm[axis] for axis in normal), 13, 1)
    return Permuted(inputs, attrs, left(normal, perm))


def unsqueeze(node: Node, sources: Sources, perm: Perm) -> Permuted | Mismatch:
    """Axes of size 1 that come, which the result then has in front."""
    x, axes = first(node, sources), int_list(node, "axes", 1, 13)
    if isinstance(x, Mismatch):
        return x
    if not axes or isinstance(axes, Mismatch):
        return Mismatch("the new axes are not known")
    rank = len(perm) + len(axes)
    normal = _normal(node, axes, rank)
    if isinstance(normal, Mismatch):
        return normal
    # The new axes come first: where they stand among others does not matter to memory.
    count = len(normal)
    rest = iter(perm)
    after = tuple(normal.index(axis) if axis in normal else count + next(rest) for axis in range(rank))
    inputs, attrs = _with_axes(node, x, list(range(count)), 13, 1)
    return Permuted(inputs, attrs, after)
