"""Operands that say how a tensor is to be shaped, written as constants where that means the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from graphopt.analysis.shapes import Shape, ShapeAnalysis, Size, at_least
from graphopt.ir import Graph, Node
from graphopt.rewrite import Mismatch
from graphopt_passes.elimination.facts import normal_axes


def reshape_target(node: Node, analysis: ShapeAnalysis) -> np.ndarray | Mismatch | None:
    """A constant for the shape operand of `Reshape`: 0 copies a dimension, one -1 takes what is left.

    Args:
        node: the `Reshape`.
        analysis: what is known of the model.

    Returns:
        The constant, to be read with `allowzero` 0 when it replaces an expression by 0; a `Mismatch` when the
        shape cannot be said without computing it; None when nothing is known of it.
    """
    x, target = node.input(0), analysis.sizes(node.input(1))
    source = analysis.shape(x) if x is not None else None
    allow_zero = bool(node.attr("allowzero", 0))
    if target is None or source is None or (allow_zero and 0 in target):
        return None
    wanted = [_reshape_element(size, source, axis) for axis, size in enumerate(target)]
    if -1 in wanted and (None in wanted or (allow_zero and 0 in wanted)):
        _settle_inferred(wanted, analysis.shape(node.outputs[0]) if node.outputs[0] is not None else None)
    open_axes = [axis for axis, size in enumerate(wanted) if size is None or size == -1]
    if len(open_axes) > 1:
        return Mismatch("{} dimensions depend on dynamic sizes in a way of their own", len(open_axes))
    result = [-1 if size is None else size for size in wanted]
    # With a -1 of its own the original fails already where the rest is empty, unless it allows zeros: then ONNX
    # Runtime infers from the dimensions that are not 0.
    fails_too = -1 in target and not allow_zero
    if -1 in result and not fails_too and (0 in result or not allow_zero) and not _rest_is_some(result, source):
        return Mismatch("the dimensions beside the dynamic one may be empty, a -1 would fail then")
    return np.asarray(result, np.int64)


def _settle_inferred(wanted: list[int | None], shape: Shape | None) -> None:
    """Write the dimension that -1 stands for, where it is fixed, so that another may be inferred."""
    axis = wanted.index(-1)
    size = shape[axis] if shape is not None and len(shape) == len(wanted) else None
    if isinstance(size, int) and size > 0:
        wanted[axis] = size


def _reshape_element(size: Size, source: Shape, axis: int) -> int | None:
    """A number that stands for one element of the target; None when only -1 could."""
    if isinstance(size, int):
        return size
    return 0 if axis < len(source) and source[axis] == size else None


def _rest_is_some(target: Sequence[int], source: Shape) -> bool:
    """Whether all dimensions but the inferred one are certainly not 0."""
    return all(
        size == -1 or size > 0 or (axis < len(source) and at_least(source[axis], 1))
        for axis, size in enumerate(target)
    )  # fmt: skip


def never_empty(graph: Graph, analysis: ShapeAnalysis) -> set[str]:
    """Names of dimensions that are at least 1 in every run that succeeds: a `Reshape` with -1 fails otherwise.

    One that allows zeros does not, at least in ONNX Runtime.

    Args:
        graph: the main graph, all of which is run.
        analysis: what is known of the model.
    """
    found: set[str] = set()
    for node in graph:
        x, target = node.input(0), analysis.sizes(node.input(1)) if node.op == "Reshape" else None
        source = analysis.shape(x) if x is not None else None
        if target is None or source is None or target.count(-1) != 1 or node.attr("allowzero", 0):
            continue
        for axis, size in enumerate(target):
            copied = source[axis] if axis < len(source) else None
            if size in (0, copied):
                found |= _factors(copied if size == 0 and copied is not None else size)
    return found


def _factors(size: Size) -> set[str]:
    """The named symbols that a size is a product of; empty when it is no product."""
    if isinstance(size, int) or size.const or len(size.terms) != 1:
        return set()
    return {atom.name for atom in size.terms[0][0] if atom.name is not None}


def expand_target(node: Node, analysis: ShapeAnalysis) -> np.ndarray | Mismatch | None:
    """A constant for the shape operand of `Expand`: 1 where the input has the dimension already.

    Args:
        node: the `Expand`.
        analysis: what is known of the model.
    """
    x, target = node.input(0), analysis.sizes(node.input(1))
    source = analysis.shape(x) if x is not None else None
    if target is None or source is None:
        return None
    offset = len(target) - len(source)
    result = []
    for at, size in enumerate(target):
        if isinstance(size, int):
            result.append(size)
        elif at >= offset and source[at - offset] == size:
            result.append(1)
        else:
            return Mismatch("it expands to a dynamic size along axis {}", at)
    return np.asarray(result, np.int64)


def slice_ends(node: Node, analysis: ShapeAnalysis) -> np.ndarray | Mismatch | None:
    """A constant for the ends of `Slice`: the largest integer where an axis is cut at its own end.

    Args:
        node: the `Slice`, of opset 10 or later.
        analysis: what is known of the model.
    """
    x, operand = node.input(0), node.input(2)
    source = analysis.shape(x) if x is not None else None
    ends = analysis.sizes(operand)
    if source is None or ends is None or operand is None or operand.dtype is None:
        return None
    axes, steps = _slice_axes(node, analysis, len(ends), len(source))
    if axes is None or steps is None:
        return None
    kind = np.int32 if operand.dtype == TensorProto.INT32 else np.int64
    result = []
    for axis, step, end in zip(axes, steps, ends, strict=True):
        if isinstance(end, int):
            result.append(end)
        elif isinstance(step, int) and step > 0 and source[axis] == end:
            result.append(int(np.iinfo(kind).max))
        else:
            return Mismatch("it cuts axis {} at a dynamic place", axis)
    return np.asarray(result, kind)


def _slice_axes(
    node: Node, analysis: ShapeAnalysis, count: int, rank: int
) -> tuple[list[int] | None, list[Size] | None]:
    """The axes that a slice cuts, in its own order, and the steps; None where not known."""
    axes: list[Size] | None = list(range(count))
    steps: list[Size] | None = [1] * count
    if node.input(3) is not None:
        axes = analysis.sizes(node.input(3))
    if node.input(4) is not None:
        steps = analysis.sizes(node.input(4))
    if axes is None or steps is None or not len(axes) == len(steps) == count:
        return None, None
    fixed = tuple(axis for axis in axes if isinstance(axis, int))
    if len(fixed) != count or normal_axes(fixed, rank) is None:
        return None, None
    return [axis % rank for axis in fixed], steps
