"""Folding of shape arithmetic, with dynamic sizes as symbols."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import combinations

import numpy as np
from onnx import TensorProto

from graphopt.analysis.purity import is_removable
from graphopt.analysis.shapes import ShapeAnalysis, Size
from graphopt.analysis.shapes.engine import DATA_RULES
from graphopt.ir import Dim, Graph, Model, Node, Tensor, TensorType, Value
from graphopt.operators import Shape
from graphopt.rewrite import GraphPass, Rewriter
from graphopt_passes.folding.shape_operands import (
    expand_target,
    never_empty,
    reshape_target,
    resize_scales,
    slice_ends,
)
from graphopt_passes.folding.store import store

_INTEGERS = frozenset({TensorProto.INT64, TensorProto.INT32})

_OPERANDS = {
    "Expand": (1, expand_target), "Reshape": (1, reshape_target), "Resize": (3, resize_scales),
    "Slice": (2, slice_ends),
}  # fmt: skip
"""Operators with an operand that states a shape: its index, and the function that computes a constant for it."""

_INSTEAD = {"Resize": 2}
"""The index at which the constant is set, if it is another operand: `scales` instead of `sizes`."""


class FoldShapes(GraphPass):
    """Fold shape arithmetic, with dynamic sizes as symbols.

    Small tensors with the same contents in every run become constants. The shape of `Reshape` becomes a constant with 0
    and -1, that of `Expand` one with 1, the end of `Slice` the largest integer, if equivalent for all sizes, including
    0; the sizes of `Resize` become scales, for example if only the batch is dynamic. Equal computed sizes are merged,
    and inferred shapes are stored in value types. No equality of dynamic dimensions is assumed that holds in some runs
    only.
    """

    ops = ("Shape", "Size")  # without these, no tensor holds sizes, and other passes fold all there is
    peers = {"onnxsim": "constant_folding", "onnxruntime": "ReshapeFusion", "onnxscript": "FoldConstantsPass"}

    def run_model(self, model: Model, rw: Rewriter) -> None:
        if not any(node.op in self.ops for node in model.nodes()):
            return
        analysis = _analyse(model, rw)
        interface = frozenset(dim for value in model.graph.inputs for dim in value.shape or () if isinstance(dim, str))
        for graph in self.entered(model, rw):
            self._state_types(graph, analysis, interface, rw)
            self._fold(graph, analysis, rw)
            self._fix_operands(graph, analysis, rw)
            self._merge(graph, analysis, rw)
        rw.enter(model.graph)
        self._read_off(model.graph, analysis, rw)

    def _state_types(self, graph: Graph, analysis: ShapeAnalysis, interface: frozenset[str], rw: Rewriter) -> None:
        for node in graph.listed():
            for value in node.results:
                if known := _refined(value, analysis, interface):
                    rw.state_type(value, known)

    def _fold(self, graph: Graph, analysis: ShapeAnalysis, rw: Rewriter) -> None:
        """Fold constants, in reverse order, so that nodes that become dead are gone before they are visited."""
        for node in reversed(graph):
            results = _contents(node, analysis) if node.op in DATA_RULES and not node.removed else None
            if results is not None and is_removable(node):
                with rw.attempt(node):
                    store(rw, node, results)

    def _fix_operands(self, graph: Graph, analysis: ShapeAnalysis, rw: Rewriter) -> None:
        for node in graph.listed():
            if node.op not in _OPERANDS or node.removed:
                continue
            index, target = _OPERANDS[node.op]
            operand = node.input(index)
            if operand is None or operand.is_const:
                continue
            with rw.attempt(node):
                array = target(node, analysis)
                copies = node.op == "Reshape" and bool(node.attr("allowzero", 0)) and 0 in array
                fixed = {index: None, _INSTEAD.get(node.op, index): array}
                rw.set_inputs(node, fixed, "a fixed shape", **({"allowzero": None} if copies else {}))

    def _merge(self, graph: Graph, analysis: ShapeAnalysis, rw: Rewriter) -> None:
        """Merge values that hold the same sizes."""
        first: dict[Hashable, Value] = {}
        for node, value, key in _computed(graph, analysis):
            known = first.setdefault(key, value)
            if known.producer is None or known.producer.removed:
                first[key] = value
            elif known is not value and is_removable(node):
                with rw.attempt(node):
                    rw.replace(node, [known], detail=f"{known.name} holds the same sizes")

    def _read_off(self, graph: Graph, analysis: ShapeAnalysis, rw: Rewriter) -> None:
        """Replace computed sizes that are adjacent in the shape of a value with a `Shape` of it."""
        places = _places(graph, analysis)
        for node, value, (_, _, sizes) in _computed(graph, analysis):
            if node.op == "Shape" or value.rank != 1 or value.dtype != TensorProto.INT64 or not is_removable(node):
                continue
            place = places.get(sizes)
            source = None if place is None else place.x.producer
            if place is not None and (source is None or source.order < node.order):
                with rw.attempt(node):
                    rw.replace(node, [place.write(rw)])


def _analyse(model: Model, rw: Rewriter) -> ShapeAnalysis:
    """Analyse a model whose sizes may be 0, except those that are positive in every successful run."""
    analysis = rw.shapes()
    names = never_empty(model.graph, analysis)
    if not names:
        return analysis
    analysis = ShapeAnalysis(zero_sizes=True)
    for name in names:
        if symbol := analysis.symbols.named(name).symbol:
            symbol.low = 1
    for graph in (model.graph, *model.functions):
        analysis.visit(graph)
    return analysis


def _refined(value: Value, analysis: ShapeAnalysis, interface: frozenset[str]) -> TensorType | None:
    """The type of a value refined by the analysis; None if it adds nothing."""
    known = value.type
    found = analysis.shape(value)
    if not isinstance(known, TensorType) or found is None:
        return None
    if known.shape is None:
        return TensorType(known.dtype, analysis.to_dims(found))
    if len(known.shape) != len(found):
        return None
    better = zip(known.shape, analysis.to_dims(found) or (), strict=True)
    shape = tuple(_more_telling(old, new, interface) for old, new in better)
    return None if shape == known.shape else TensorType(known.dtype, shape)


def _more_telling(old: Dim, new: Dim, interface: frozenset[str]) -> Dim:
    """The more precise of two forms of one dimension: a number, then a symbol of the interface, then any symbol."""
    if isinstance(old, int) or new is None:
        return old
    return new if isinstance(new, int) or old is None or (new in interface and old not in interface) else old


def _contents(node: Node, analysis: ShapeAnalysis) -> list[np.ndarray | None] | None:
    """The contents of each used output, if the same in every run; None if one is unknown."""
    results: list[np.ndarray | None] = []
    for value in node.outputs:
        if value is None or not (value.users or value.output_count):
            results.append(None)
            continue
        data = analysis.data(value)
        if data is None or data.dtype.kind == "O" or Tensor.from_array(data).dtype != value.dtype:
            return None
        results.append(data)
    return results if any(array is not None for array in results) else None


def _places(graph: Graph, analysis: ShapeAnalysis) -> dict[tuple[Size, ...], Shape]:
    """Map adjacent sizes to a part of the shape of a graph input, or of the operand of a `Shape`."""
    places: dict[tuple[Size, ...], Shape] = {}
    for value in dict.fromkeys((*graph.inputs, *(node.operand(0) for node in graph if node.op == "Shape"))):
        shape = analysis.shape(value) or ()
        for start, end in combinations(range(len(shape) + 1), 2):
            places.setdefault(shape[start:end], Shape(value, start, end if end - start < len(shape) else None))
    return places


def _computed(
    graph: Graph, analysis: ShapeAnalysis
) -> Iterator[tuple[Node, Value, tuple[int, tuple[int, ...], tuple[Size, ...]]]]:
    """The nodes that compute dynamic sizes, with their results and a key of their contents."""
    for node in graph:
        value = node.outputs[0] if len(node.outputs) == 1 and node.op in DATA_RULES else None
        if value is None or value.dtype not in _INTEGERS:
            continue
        data, sizes = analysis.data(value), analysis.sizes(value)
        if data is not None and sizes is not None and data.dtype.kind == "O":
            yield node, value, (value.dtype, data.shape, tuple(sizes))
