"""Shapes of the elements of sequences whose construction is known."""

from __future__ import annotations

from graphopt.analysis.kernels import Unsupported
from graphopt.analysis.kernels.base import normal_axis
from graphopt.analysis.shapes.dim import Size
from graphopt.analysis.shapes.engine import MAX_ELEMENTS, Rule, Shape, ShapeAnalysis
from graphopt.ir import Node, Value


def _sequence_at(analysis: ShapeAnalysis, node: Node) -> Shape | None:
    sequence, position = node.inputs
    index = _constant(analysis, position)
    source = sequence.producer if sequence is not None else None
    if source is None or index is None:
        return None
    if source.op == "SequenceConstruct":
        count = len(source.inputs)
        value = source.inputs[index] if -count <= index < count else None
        return None if value is None else analysis.shape(value)
    return _piece(analysis, source, index) if source.op == "SplitToSequence" else None


def _constant(analysis: ShapeAnalysis, value: Value | None) -> int | None:
    elements = analysis.sizes(value)
    return elements[0] if elements is not None and len(elements) == 1 and isinstance(elements[0], int) else None


def _piece(analysis: ShapeAnalysis, split: Node, index: int) -> Shape:
    """The shape of one part of a `SplitToSequence`."""
    shape = analysis.need(split, 0)
    axis = normal_axis(split.attr("axis", 0), len(shape))
    stated = split.input(1)
    if stated is None:
        return shape[:axis] + ((1,) if split.attr("keepdims", 1) else ()) + shape[axis + 1 :]
    elements, rank = analysis.sizes(stated), analysis.rank(stated)
    if elements is None or rank is None:
        raise Unsupported("the sizes of the pieces are unknown")
    return (*shape[:axis], _piece_size(shape[axis], elements, rank, index), *shape[axis + 1 :])


def _piece_size(dim: Size, elements: list[Size], rank: int, index: int) -> Size:
    if rank == 0:
        size = elements[0]
        if not isinstance(size, int) or not isinstance(dim, int) or size < 1:
            raise Unsupported("the number of pieces is unknown")
        if dim > size * MAX_ELEMENTS:
            raise Unsupported("there are too many pieces")
        elements = [min(size, dim - start) for start in range(0, dim, size)]
    if not -len(elements) <= index < len(elements):
        raise Unsupported("no such piece")
    return elements[index]


RULES: dict[str, Rule] = {"SequenceAt": _sequence_at}
