"""Output shapes of reductions, and of operators with an operand that states the result's size."""

from __future__ import annotations

import math

from graphopt.analysis.disagreements import comes_to_one_size
from graphopt.analysis.kernels import Unsupported
from graphopt.analysis.kernels.base import normal_axes, normal_axis
from graphopt.analysis.shapes.dim import Expr, Size, at_least
from graphopt.analysis.shapes.engine import Rule, Shape, ShapeAnalysis
from graphopt.analysis.shapes.fractions import FloatElement
from graphopt.analysis.shapes.movement import fixed, listed
from graphopt.ir import Node, Value


def _reduce(analysis: ShapeAnalysis, node: Node) -> Shape:
    shape = analysis.need(node, 0)
    keep = bool(node.attr("keepdims", 1))
    try:
        stated = listed(analysis, node, "axes")
    except Unsupported:
        if not keep:
            raise
        return tuple(1 if dim == 1 else analysis.fresh() for dim in shape)
    if not stated:
        if node.attr("noop_with_empty_axes", 0):
            return shape
        axes = list(range(len(shape)))
    else:
        axes = normal_axes(fixed(stated), len(shape))
    if keep:
        return tuple(1 if a in axes else d for a, d in enumerate(shape))
    return tuple(d for a, d in enumerate(shape) if a not in axes)


def _arg(analysis: ShapeAnalysis, node: Node) -> Shape:
    shape = analysis.need(node, 0)
    axis = normal_axis(node.attr("axis", 0), len(shape))
    return shape[:axis] + ((1,) if node.attr("keepdims", 1) else ()) + shape[axis + 1 :]


def _top_k(analysis: ShapeAnalysis, node: Node) -> list[Shape | None]:
    shape = analysis.need(node, 0)
    axis = normal_axis(node.attr("axis", -1), len(shape))
    given = node.stated("k")
    stated: list[Size] | None = analysis.sizes(given) if isinstance(given, Value) else [given]
    count = stated[0] if stated and at_least(stated[0], 0) else analysis.fresh()
    result: Shape = (*shape[:axis], count, *shape[axis + 1 :])
    return [result, result]


def _resize(analysis: ShapeAnalysis, node: Node) -> Shape:
    shape = analysis.need(node, 0)
    opset = node.graph.opset()
    first = 1 if opset < 11 or node.op == "Upsample" else 2
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch" or node.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise Unsupported("the size depends on more than sizes and scales")
    stated = node.attr("axes") if opset >= 18 else None
    axes = normal_axes(list(range(len(shape)) if stated is None else stated), len(shape))
    result: list[Size] = list(shape)
    sizes = node.input(first + 1) if first == 2 else None
    if sizes is not None and analysis.shape(sizes) != (0,):
        elements: list[Size] | None = analysis.sizes(sizes)
        elements = elements or [analysis.fresh() for _ in axes]
        elements = [e if at_least(e, 0) else analysis.fresh() for e in elements]
    else:
        elements = _scaled(analysis, node, [shape[a] for a in axes], first)
    for axis, size in zip(axes, elements, strict=True):
        result[axis] = size
    return tuple(result)


def _scaled(analysis: ShapeAnalysis, node: Node, dims: list[Size], index: int) -> list[Size]:
    given = node.stated("scales") if node.op == "Upsample" else node.input(index)
    if isinstance(given, tuple):
        factors = list(given)
    else:
        scales = analysis.data(given) if given is not None else None
        if scales is None or scales.size != len(dims):
            return [analysis.fresh() for _ in dims]
        factors = scales.reshape(-1).tolist()
    return [_scale(analysis, dim, factor) for dim, factor in zip(dims, factors, strict=True)]


_FINEST = 16
"""Largest denominator of a scale that is followed for a dynamic size, which leaves room for sizes up to 2**20."""


def _scale(analysis: ShapeAnalysis, dim: Size, factor: float | Expr | FloatElement) -> Size:
    """`floor(dim * factor)`, if the product is exact in float32 or rounds down to the same size."""
    if not isinstance(factor, (int, float)) or not math.isfinite(factor) or factor <= 0:
        return analysis.fresh()
    if isinstance(dim, int):
        return math.floor(dim * factor) if comes_to_one_size(dim, factor) else analysis.fresh()
    over, under = float(factor).as_integer_ratio()
    if under > _FINEST or over > 1 << 20:
        return analysis.fresh()
    return analysis.symbols.floor_div(dim * over, under)


def _compress(analysis: ShapeAnalysis, node: Node) -> Shape:
    axis = node.attr("axis")
    if axis is None:
        return (analysis.fresh(),)
    shape = analysis.need(node, 0)
    axis = normal_axis(axis, len(shape))
    return (*shape[:axis], analysis.fresh(), *shape[axis + 1 :])


REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip

RULES: dict[str, Rule] = {
    **dict.fromkeys(REDUCTIONS, _reduce),
    "ArgMax": _arg,
    "ArgMin": _arg,
    "Compress": _compress,
    "Resize": _resize,
    "TopK": _top_k,
    "Upsample": _resize,
}
