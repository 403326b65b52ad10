"""Gathers of all elements in row-major order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from graphopt.analysis.shapes import Shape, ShapeAnalysis, Size, at_least
from graphopt.analysis.shapes.positions import PositionAnalysis, Positions, of_numbers, wide
from graphopt.ir.types import element_count
from graphopt.operators import Reshape
from graphopt.operators.axes import from_front, of_ones
from graphopt.rewrite import Decline, Graph, GraphPass, Model, Node, Rewriter, Value
from graphopt_passes.fusion.reshapes import RESHAPES

_COUNTS = frozenset({"Range", "Slice"})
"""Operators that computed indices start from."""

_GATHERS = ("Gather", "GatherND")

_MOST_BYTES = 1 << 20
"""Most bytes of indices that are examined."""


class ReplaceGatherWithReshape(GraphPass):
    """Replace a `Gather` or `GatherND` of all elements in row-major order with a `Reshape`, or with its operand.

    Exporters index by ranges for attention masks and for pooling; ranges along several axes, broadcast against each
    other, then enumerate the whole tensor. Sizes may be dynamic.
    """

    ops = _GATHERS
    opsets = "11-"

    def run_model(self, model: Model, rw: Rewriter) -> None:
        """Analyse the model once, if it has gathers whose indices are computed from ranges."""
        graphs = {graph for graph in model.graphs() if self.knows_opset(graph.opset()) and _may_count(graph)}
        if not graphs:
            return
        analysis = rw.shapes()
        positions = PositionAnalysis(analysis)
        for graph in self.entered(model, rw):
            for node in graph.listed() if graph in graphs else ():
                if node.op in self.ops and not node.removed:
                    with rw.attempt(node):
                        _rewrite(node, analysis, positions, rw)


def _may_count(graph: Graph) -> bool:
    """Whether the graph has computed indices and ranges, or a constant index with one number per element."""
    nodes = graph.listed()
    gathers = [node for node in nodes if node.op in _GATHERS]
    computed = any(node.operand(1).producer for node in gathers) and any(node.op in _COUNTS for node in nodes)
    return computed or any(map(_has_constant_index, gathers))


def _has_constant_index(node: Node) -> bool:
    """Whether the index is a constant that may enumerate data that is not constant."""
    data, tensor = node.operand(0), node.operand(1).constant_tensor
    if data.is_const or data.shape is None or tensor is None or not tensor.dims:
        return False
    taken, axis = tensor.numel, node.attr("axis", 0)
    if node.op == "GatherND":
        depth = tensor.dims[-1]
        return taken == element_count(data.shape[:depth]) * depth
    return taken == data.dim(axis) and len(tensor.dims) > 1


def _rewrite(node: Node, analysis: ShapeAnalysis, positions: PositionAnalysis, rw: Rewriter) -> None:
    data, index = node.operand(0), node.operand(1)
    if data.is_const or (node.op == "Gather" and index.is_const and index.rank in (0, 1)):
        raise Decline  # constant data, or indices along one axis, which other passes handle
    before, at = analysis.dims(data), analysis.dims(index)
    after = _all_of(node, before, at, positions) if node.op == "Gather" else _all_nd(node, before, at, positions)
    for source in _same_order(data):
        with suppress(Decline):
            value = _reshaped(source, after, analysis, rw)
            rw.replace(node, [value], detail=f"all of {source.name}, in its order")
            return
    raise Decline("it selects all of {}, but its shape cannot be written as a constant", data.name)


def _all_of(node: Node, before: Shape, at: Shape, positions: PositionAnalysis) -> Shape:
    """The result shape of a `Gather` of all elements in order; declines for others."""
    (axis,) = from_front((node.attr("axis", 0),), len(before), node.operand(0).name)
    found = positions.of(node.operand(1))
    if found is None:
        raise Decline
    if not positions.covers(found, at, before[axis]):
        raise Decline("{} does not enumerate axis {} in order", node.operand(1).name, axis)
    return before[:axis] + at + before[axis + 1 :]


def _all_nd(node: Node, before: Shape, at: Shape, positions: PositionAnalysis) -> Shape:
    """The result shape of a `GatherND` of all elements in order; declines for others."""
    if node.attr("batch_dims", 0):
        raise Decline("batch_dims is not 0")
    if not at or not isinstance(at[-1], int) or at[-1] > len(before):
        raise Decline
    columns = _columns(node.operand(1), positions)
    if len(columns) != at[-1]:
        raise Decline
    start: Size = 0
    steps: list[Size] = [0] * (len(at) - 1)
    stride: Size = 1
    for column, dim in zip(reversed(columns), reversed(before[: len(columns)]), strict=True):
        if not all(at_least(number, 0) for number in (column.start, *column.steps)):
            raise Decline("an index may be negative")
        start = start + column.start * stride
        steps = [one + two * stride for one, two in zip(steps, column.steps[:-1], strict=True)]
        stride = stride * dim
    if not positions.covers(Positions(start, tuple(steps)), at[:-1], stride):
        raise Decline("{} does not enumerate the first {} axes in order", node.operand(1).name, len(columns))
    return at[:-1] + before[len(columns) :]


def _columns(index: Value, positions: PositionAnalysis) -> list[Positions]:
    """The columns of an index: the operands of a `Concat`, or the index itself if it has one column."""
    if index.is_const:
        return _constant_columns(index)
    shape = positions.shapes.shape(index) or ()
    joined = index.made_by("Concat")
    is_list = joined is not None and joined.attr("axis") in (-1, len(shape) - 1)
    found: list[Positions] = []
    for part in joined.operands if joined is not None and is_list else [index]:
        known = positions.of(part)
        if known is None or positions.shapes.shape(part) != (*shape[:-1], 1):
            raise Decline
        found.append(known)
    return found


def _constant_columns(index: Value) -> list[Positions]:
    array = index.const(_MOST_BYTES)
    if array is None or not array.size:
        raise Decline
    columns = np.split(array, array.shape[-1], axis=-1)
    found = [positions for column in columns if (positions := of_numbers(column))]
    if len(found) < len(columns):
        raise Decline
    return found


def _same_order(data: Value) -> Iterator[Value]:
    """The value, and the operands of the reshapes that compute it."""
    yield data
    while (reshape := data.made_by(*RESHAPES)) and reshape.graph is data.graph:
        data = reshape.operand(0)
        yield data


def _reshaped(source: Value, after: Shape, analysis: ShapeAnalysis, rw: Rewriter) -> Value:
    """Reshape a value; declines if no constant can state the shape."""
    before = analysis.dims(source)
    if before == after:
        return source
    if wide(before) == wide(after):
        with suppress(Decline):
            return of_ones(source, before, after).write(rw)
    named = analysis.to_dims(after)
    if named is None or any(not isinstance(dim, int) for dim in before):
        raise Decline
    return Reshape.to(source, named).write(rw)
