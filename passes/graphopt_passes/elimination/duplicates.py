"""Equal initializers."""

from __future__ import annotations

from collections.abc import Hashable

from onnx import TensorProto

from graphopt.rewrite import Decline, Graph, GraphPass, Model, Rewriter, Value
from graphopt.rewrite.legality import is_visible

Layout = tuple[int, tuple[int, ...]]

_SMALL = 1 << 12
"""Tensors up to this many bytes are compared in full at once."""
_SHORT = 1 << 10
"""Most bytes of a list of sizes, axes or positions; a longer one is a table."""
_INTEGERS = (TensorProto.INT64, TensorProto.INT32)


class EliminateDuplicateInitializer(GraphPass):
    """Merge equal initializers; bodies capture those of enclosing graphs.

    Equal means the same element type, dimensions and bytes, so 0.0 and -0.0 differ, and every element type works. Only
    initializers that share type and dimensions with another are read. Overridable initializers and graph outputs stay,
    as do short integer lists in a body: shape inference does not read captured initializers, and a shape may depend on
    such a list.
    """

    peers = {
        "onnxoptimizer": "eliminate_duplicate_initializer",
        "onnxruntime": "ConstantSharing",
        "onnxslim": "weight_tying",
        "onnxscript": "DeduplicateInitializersPass",
    }

    def run_model(self, model: Model, rw: Rewriter) -> None:
        scopes: dict[Graph, dict[Layout, list[Value]]] = {}
        for graph in list(model.graphs()):
            rw.enter(graph)
            scopes[graph] = _by_layout(graph)
            if scopes[graph]:
                _merge(graph, scopes, rw)


def _by_layout(graph: Graph) -> dict[Layout, list[Value]]:
    """The initializers of a graph that may be merged, by layout; those that must stay come first."""
    groups: dict[Layout, list[Value]] = {}
    outputs = False
    for value in graph.values.values():
        tensor = value.tensor
        if not tensor:
            continue
        # An output stays, but others may be replaced by it.
        is_output = value.output_count > 0 and value.is_const and value.name not in value.graph.annotated
        if is_output or not value.is_anchored:
            layout, outputs = (tensor.dtype, tensor.dims), outputs or is_output
            if layout in groups:
                groups[layout].append(value)
            else:
                groups[layout] = [value]
    for group in groups.values() if outputs else ():
        group.sort(key=lambda value: not value.output_count)
    return groups


def _merge(graph: Graph, scopes: dict[Graph, dict[Layout, list[Value]]], rw: Rewriter) -> None:
    outer = []
    scope = graph.parent
    while scope is not None:
        outer.append(scopes[scope])
        scope = scope.parent
    for layout, own in scopes[graph].items():
        above: list[Value] = []
        for groups in outer:
            above += [value for value in groups.get(layout, ()) if is_visible(value, graph)]
        if above or len(own) > 1:
            scopes[graph][layout] = _distinct(own, above, rw)


def _distinct(own: list[Value], above: list[Value], rw: Rewriter) -> list[Value]:
    """Merge equal initializers of one layout; returns the distinct ones."""
    probes: dict[Hashable, list[Value]] = {}
    for value in (*above, *own):
        probes.setdefault(_probe(value), []).append(value)
    merged: set[Value] = set()
    for alike in probes.values():
        seen: dict[Hashable, Value] = {}
        for value in alike if len(alike) > 1 else ():
            assert value.tensor is not None
            key = value.tensor.key()
            if key not in seen:
                seen[key] = value
                continue
            kept = seen[key]
            if value.graph is not own[0].graph or value.is_anchored:
                continue
            with rw.attempt(next(iter(value.users), None)):
                if kept.graph is not value.graph and _may_be_sizes(value):
                    raise Decline("{} may hold sizes, which shape inference reads only within one graph", value.name)
                rw.merge_constant(value, kept)
                merged.add(value)
    return [value for value in own if value not in merged] if merged else own


def _may_be_sizes(value: Value) -> bool:
    """Whether an initializer is an integer or a short list of them: sizes, axes, positions."""
    tensor = value.tensor
    return tensor is not None and tensor.dtype in _INTEGERS and len(tensor.dims) <= 1 and tensor.nbytes <= _SHORT


def _probe(value: Value) -> Hashable:
    """A few bytes of a large tensor: weights of different layers seldom share their first and last bytes."""
    return value.tensor.sample() if value.tensor is not None and value.tensor.nbytes > _SMALL else b""
