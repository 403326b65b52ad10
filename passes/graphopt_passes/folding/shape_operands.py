"""Operands that state a shape, replaced by equivalent constants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from graphopt.analysis.shapes import Shape, ShapeAnalysis, Size, at_least, divide
from graphopt.errors import Decline
from graphopt.ir import Graph, Node
from graphopt.operators.axes import from_front

_MOST_TIMES = 1 << 12
"""Upper bound of a scale, so that float32 represents the result's size."""


def _known(node: Node, index: int, analysis: ShapeAnalysis) -> tuple[Shape, list[Size]]:
    """The shape of an operator's data operand, and the elements of the operand that states sizes."""
    return analysis.dims(node.operand(0)), _list(node, index, analysis, [])


def reshape_target(node: Node, analysis: ShapeAnalysis) -> np.ndarray:
    """A constant for the shape operand of `Reshape`: 0 copies a dimension, a single -1 is inferred.

    If it contains 0 for a dynamic size, it requires `allowzero` = 0.
    """
    source, target = _known(node, 1, analysis)
    allow_zero = bool(node.attr("allowzero", 0))
    if allow_zero and 0 in target:
        raise Decline
    wanted = [
        size if isinstance(size, int) else 0 if source[axis : axis + 1] == (size,) else None
        for axis, size in enumerate(target)
    ]
    if -1 in wanted and (None in wanted or (allow_zero and 0 in wanted)):
        _settle_inferred(wanted, analysis.shape(node.result))
    result = [-1 if size is None else size for size in wanted]
    if result.count(-1) > 1:
        raise Decline("{} dimensions depend on dynamic sizes, expected at most 1", result.count(-1))
    # If the original has a -1, it already fails if another dimension is 0, unless `allowzero` is set: then ONNX
    # Runtime infers it from the dimensions that are not 0.
    fails_too = -1 in target and not allow_zero
    if -1 in result and not fails_too and (0 in result or not allow_zero) and not _rest_is_some(result, source):
        raise Decline("another dimension may be 0, for which -1 is invalid")
    return np.asarray(result, np.int64)


def _settle_inferred(wanted: list[int | None], shape: Shape | None) -> None:
    """Replace the -1 in `wanted` with its size if that is fixed, so that another dimension may be inferred."""
    axis = wanted.index(-1)
    size = shape[axis] if shape is not None and len(shape) == len(wanted) else None
    if isinstance(size, int) and size > 0:
        wanted[axis] = size


def _rest_is_some(target: Sequence[int], source: Shape) -> bool:
    """Whether all dimensions but the inferred one are known to be positive."""
    copied = [*source, *[0] * len(target)]
    return all(size == -1 or size > 0 or at_least(dim, 1) for size, dim in zip(target, copied, strict=False))


def never_empty(graph: Graph, analysis: ShapeAnalysis) -> set[str]:
    """Symbols of dimensions that are at least 1 in every successful run: otherwise a `Reshape` with -1 fails.

    With `allowzero` it does not fail, at least in ONNX Runtime. Only valid if all nodes of the graph run.
    """
    found: set[str] = set()
    for node in graph:
        if node.op != "Reshape" or node.attr("allowzero", 0) or len(node.inputs) < 2:
            continue
        try:
            source, target = _known(node, 1, analysis)
        except Decline:
            continue
        if target.count(-1) != 1:
            continue
        for axis, size in enumerate(target):
            copied = source[axis] if axis < len(source) else None
            if size in (0, copied):
                found |= _factors(copied if size == 0 and copied is not None else size)
    return found


def _factors(size: Size) -> set[str]:
    """The named symbols of which a size is a product; empty for other sizes."""
    if isinstance(size, int) or size.const or len(size.terms) != 1:
        return set()
    return {atom.name for atom in size.terms[0][0] if atom.name is not None}


def expand_target(node: Node, analysis: ShapeAnalysis) -> np.ndarray:
    """A constant for the shape operand of `Expand`: 1 where the data already has the dynamic size."""
    source, target = _known(node, 1, analysis)
    offset = len(target) - len(source)
    result = []
    for at, size in enumerate(target):
        if isinstance(size, int):
            result.append(size)
        elif at >= offset and source[at - offset] == size:
            result.append(1)
        else:
            raise Decline("it expands to a dynamic size along axis {}", at)
    return np.asarray(result, np.int64)


def slice_ends(node: Node, analysis: ShapeAnalysis) -> np.ndarray:
    """A constant for the `ends` operand of `Slice`: the largest integer for the dynamic size of an axis."""
    source, ends = _known(node, 2, analysis)
    axes = _list(node, 3, analysis, list(range(len(ends))))
    steps = _list(node, 4, analysis, [1] * len(ends))
    fixed = [axis for axis in axes if isinstance(axis, int)]
    if not len(fixed) == len(steps) == len(ends) or node.operand(2).dtype is None:
        raise Decline
    from_front(fixed, len(source), node.operand(0).name)
    kind = np.int32 if node.operand(2).dtype == TensorProto.INT32 else np.int64
    result = []
    for axis, step, end in zip(fixed, steps, ends, strict=True):
        if isinstance(end, int):
            result.append(end)
        elif isinstance(step, int) and step > 0 and source[axis] == end:
            result.append(int(np.iinfo(kind).max))
        else:
            raise Decline("it slices axis {} at a dynamic position", axis % len(source))
    return np.asarray(result, kind)


def resize_scales(node: Node, analysis: ShapeAnalysis) -> np.ndarray:
    """Constant scales for a `Resize` to computed sizes that are integer multiples of the image's, or fixed.

    Scales must be exact in float32: the runtime divides sizes in float32, and multiplies by scales in the other form.
    """
    source, sizes = _known(node, 3, analysis)
    if node.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Decline("it keeps the aspect ratio")
    if node.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        raise Decline("it uses tf_crop_and_resize")
    axes = node.attr("axes") or tuple(range(len(source)))
    if len(axes) != len(sizes):
        raise Decline
    from_front(axes, len(source), node.operand(0).name)
    return np.asarray([_factor(source[axis], size) for axis, size in zip(axes, sizes, strict=True)], np.float32)


def _factor(before: Size, after: Size) -> float:
    """The exact factor between two sizes; declines if there is none."""
    if isinstance(before, int) and isinstance(after, int):
        factor = float(np.float32(after / before)) if before > 0 and after > 0 else 0.0
        if not factor or before * factor != after:
            raise Decline("the ratio of {} to {} is not exact in float32", after, before)
        return factor
    times = 1 if before == after else divide(after, before)
    if not isinstance(times, int) or not 0 < times < _MOST_TIMES:
        raise Decline("it resizes to a dynamic size")
    return float(times)


def _list(node: Node, index: int, analysis: ShapeAnalysis, default: list[Size]) -> list[Size]:
    """The elements of an optional input, or the default."""
    value = node.input(index)
    sizes = default if value is None else analysis.sizes(value)
    if sizes is None:
        raise Decline
    return sizes
