"""Gathers that take every element in the order in which it is stored."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from graphopt.analysis.shapes import Shape, ShapeAnalysis, Size
from graphopt.analysis.shapes.positions import PositionAnalysis, Positions, of_numbers, wide
from graphopt.ir import Graph, Model, Node, Value
from graphopt.rewrite import GraphPass, Mismatch, Rewriter
from graphopt_passes.elimination.facts import normal_axes
from graphopt_passes.fusion.reshapes import RESHAPES, constant_target, insert_or_remove_ones

_COUNTS = frozenset({"Range", "Slice"})
"""Where positions come from when they are not constant."""


_MOST_BYTES = 1 << 20
"""Indices that take more are not looked at."""


class ReplaceGatherWithReshape(GraphPass):
    """Turn `Gather` and `GatherND` that take all elements in their order into a reshape, or into nothing.

    This is what is left of indexing by ranges, which exporters write for attention masks and for pooling: the indices
    along several axes, broadcast against each other, count through the whole tensor. Sizes may be dynamic.
    """

    name = "replace_gather_with_reshape"
    opsets = "11-"

    def run_model(self, model: Model, rw: Rewriter) -> None:
        """Analyse the model once, if it has gathers whose indices are computed from ranges."""
        graphs = [graph for graph in model.graphs() if _may_count(graph)]
        if not graphs:
            return
        analysis = ShapeAnalysis(model, zero_sizes=True)
        positions = PositionAnalysis(analysis)
        for graph in reversed(graphs):
            if graph.owner is not None and graph.owner.removed:
                continue
            rw.enter(graph, self.name)
            for node in graph:
                if node.op in ("Gather", "GatherND") and self.knows_opset(graph.opset()):
                    rw.begin(self.name, node)
                    with rw.attempt(node):
                        problem = _rewrite(node, analysis, positions, rw)
                        if isinstance(problem, Mismatch):
                            rw.decline("{}", problem, node=node)


def _may_count(graph: Graph) -> bool:
    """Whether an index is computed where there are ranges, or a constant of as many numbers as elements."""
    gathers = [node for node in graph if node.op in ("Gather", "GatherND") and node.input(1) is not None]
    return any(map(_has_constant_index, gathers)) or (
        any(node.inputs[1].producer is not None for node in gathers if node.inputs[1] is not None)
        and any(node.op in _COUNTS for node in graph)
    )


def _has_constant_index(node: Node) -> bool:
    """Whether the index is a constant that may count through the whole of something that is none."""
    data, index = node.input(0), node.input(1)
    tensor = index.constant_tensor if index is not None else None
    if data is None or data.is_const or data.shape is None or tensor is None or not tensor.dims:
        return False
    taken, axis = tensor.numel, node.attr("axis", 0)
    if node.op == "GatherND":
        return (
            taken == math.prod(dim for dim in data.shape[: tensor.dims[-1]] if isinstance(dim, int)) * tensor.dims[-1]
        )
    return -len(data.shape) <= axis < len(data.shape) and taken == data.shape[axis] and len(tensor.dims) > 1


def _rewrite(node: Node, analysis: ShapeAnalysis, positions: PositionAnalysis, rw: Rewriter) -> Mismatch | None:
    data, index, result = node.input(0), node.input(1), node.outputs[0]
    if data is None or index is None or result is None or data.is_const:
        return None
    if node.op == "Gather" and index.is_const and index.rank in (0, 1):
        return None  # a part of the axis, or all of it as it is
    before, at = analysis.shape(data), analysis.shape(index)
    if before is None or at is None:
        return None
    after = _all_of(node, before, at, positions) if node.op == "Gather" else _all_nd(node, before, at, positions)
    if after is None:
        return None
    for source in _same_order(data):
        value = _reshaped(source, after, analysis, rw)
        if value is not None:
            rw.replace(node, [value], detail=f"all of {source.name}, in its order")
            return None
    return Mismatch("it takes all of {}, but no constant shape says how", data.name)


def _all_of(node: Node, before: Shape, at: Shape, positions: PositionAnalysis) -> Shape | None:
    """The shape of the result of a `Gather`, if it takes everything in order."""
    axes = normal_axes((node.attr("axis", 0),), len(before))
    found = positions.of(node.input(1))
    if axes is None or found is None or not positions.covers(found, at, before[axes[0]]):
        return None
    return before[: axes[0]] + at + before[axes[0] + 1 :]


def _all_nd(node: Node, before: Shape, at: Shape, positions: PositionAnalysis) -> Shape | None:
    """The shape of the result of a `GatherND`, if it takes everything in order."""
    if node.attr("batch_dims", 0) or not at or not isinstance(at[-1], int) or at[-1] > len(before):
        return None
    columns = _columns(node.input(1), positions)
    if columns is None or len(columns) != at[-1]:
        return None
    start: Size = 0
    steps: list[Size] = [0] * (len(at) - 1)
    stride: Size = 1
    for column, dim in zip(reversed(columns), reversed(before[: len(columns)]), strict=True):
        if any(not _is_natural(number) for number in (column.start, *column.steps)):
            return None  # a negative index would count from the end
        start = start + column.start * stride
        steps = [one + two * stride for one, two in zip(steps, column.steps[:-1], strict=True)]
        stride = stride * dim
    if not positions.covers(Positions(start, tuple(steps)), at[:-1], stride):
        return None
    return at[:-1] + before[len(columns) :]


def _is_natural(size: Size) -> bool:
    """Whether a size is 0 or made of sizes only, so that no run makes it negative."""
    if isinstance(size, int):
        return size >= 0
    if size.const < 0 or any(factor < 0 for _, factor in size.terms):
        return False
    return all(atom.low is not None and atom.low >= 0 for product, _ in size.terms for atom in product)


def _columns(index: Value | None, positions: PositionAnalysis) -> list[Positions] | None:
    """What each of the last axis of an index holds: the parts of a `Concat`, or the whole where it is of size 1."""
    shape = positions.shapes.shape(index) if index is not None else None
    if index is None or shape is None:
        return None
    if index.is_const:
        return _constant_columns(index)
    producer, parts = index.producer, [index]
    if producer is not None and producer.op == "Concat" and producer.attr("axis") in (-1, len(shape) - 1):
        parts = [value for value in producer.inputs if value is not None]
    found: list[Positions] = []
    for part in parts:
        own, known = positions.shapes.shape(part), positions.of(part)
        if own is None or known is None or own != (*shape[:-1], 1):
            return None
        found.append(known)
    return found


def _constant_columns(index: Value) -> list[Positions] | None:
    array = index.const(_MOST_BYTES)
    if array is None or not array.size:
        return None
    found = [of_numbers(array[..., column : column + 1]) for column in range(array.shape[-1])]
    return [column for column in found if column is not None] if None not in found else None


def _same_order(data: Value) -> Iterator[Value]:
    """The value, and those that it is a reshape of."""
    while True:
        yield data
        producer = data.producer
        source = producer.input(0) if producer is not None and producer.op in RESHAPES else None
        if source is None or producer is None or producer.graph is not data.graph:
            return
        data = source


def _reshaped(source: Value, after: Shape, analysis: ShapeAnalysis, rw: Rewriter) -> Value | None:
    """A value in another shape; None where that cannot be told by a constant."""
    before = analysis.shape(source)
    if before is None:
        return None
    if before == after:
        return source
    if wide(before) == wide(after):
        simple = insert_or_remove_ones(source, before, after, rw)
        if simple is not None:
            return simple
    named = analysis.to_dims(after)
    if any(not isinstance(dim, int) for dim in before) or named is None:
        return None
    target = constant_target(source, named)
    if target is None:
        return None
    made: Value = rw.op("Reshape", source, np.array(target, np.int64))
    return made
