"""Removes doubtful shapes from the standard's inference, along with everything that it derives from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import onnx

from graphopt.analysis.disagreements import ENTRIES, Doubts, Facts, Known, doubts
from graphopt.ir import Graph, Node, Value
from graphopt.ir.types import without_sizes

STOP = "Unsure"
"""An operator unknown to inference, inserted after a doubtful result, with its certain type declared."""


class _Scope:
    """The inferred types of a graph's values, read on first use."""

    def __init__(self, graph: Graph, inferred: onnx.GraphProto, parent: _Scope | None) -> None:
        self.graph = graph
        self.inferred = inferred
        self.parent = parent
        self._types: dict[str, onnx.TypeProto] | None = None

    def type(self, value: Value) -> onnx.TypeProto | None:
        """The inferred type of a value of this graph, or of an enclosing one."""
        scope: _Scope | None = self
        while scope is not None and scope.graph is not value.graph:
            scope = scope.parent
        if scope is None:
            return None
        if scope._types is None:
            graph = scope.inferred
            stated = (*graph.value_info, *graph.output, *graph.input)  # inputs last: their types are the most precise
            scope._types = {info.name: info.type for info in stated}
        return scope._types.get(value.name)

    def shape(self, value: Value | None) -> Known:
        """The shape of a value as far as it is known."""
        if value is None:
            return None
        tensor = value.constant_tensor
        if tensor is not None:
            return tensor.dims
        found = self.type(value)
        return None if found is None else _shape(found)


class _Shapes(Sequence[Known]):
    """The shapes of some values, read on demand: most entries of the table need a node's attributes only."""

    def __init__(self, values: Sequence[Value | None], scope: _Scope) -> None:
        self._values, self._scope = values, scope

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, at: Any) -> Any:
        return self._scope.shape(self._values[at])


def _shape(found: onnx.TypeProto) -> Known:
    if not found.HasField("tensor_type"):
        return None
    tensor = found.tensor_type
    if not tensor.HasField("shape"):
        return None
    dims = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim]
    return (*dims,)


def stop_doubts(graph: Graph, proto: onnx.GraphProto, inferred: onnx.GraphProto) -> bool:
    """Insert stops after doubtful results, for another run of inference.

    Args:
        graph: the graph.
        proto: the input of inference, which is changed.
        inferred: the result of inference.

    Returns:
        Whether stops were inserted, so that inference has to run again.
    """
    return _stop(graph, proto, _Scope(graph, inferred, None))


def _stop(graph: Graph, proto: onnx.GraphProto, scope: _Scope) -> bool:
    found = False
    concerned = [(at, node) for at, node in enumerate(graph) if node.op in ENTRIES or node.subgraphs]
    if not concerned:
        return False
    places: Sequence[int] = range(len(graph))
    if len(proto.node) > len(graph):
        places = [at for at, each in enumerate(proto.node) if each.op_type != STOP]
    stops: list[tuple[int, onnx.NodeProto]] = []
    for number, node in concerned:
        target = proto.node[places[number]]
        inner = dict(_bodies(node, target, scope.inferred.node[places[number]], scope))
        for name, (body, body_scope) in inner.items():
            found |= _stop(node.subgraphs[name], body, body_scope)
        if node.op in ENTRIES:
            claims = _Shapes(node.outputs, scope)
            for index, axes in _by_output(_doubts_of(node, claims, scope, inner), claims).items():
                value = node.outputs[index]
                if value is not None and index < len(target.output) and target.output[index] == value.name:
                    stops.append(
                        (places[number] + 1, _stopped(proto, target, index, _certain(scope.type(value), axes)))
                    )
        for index, certain in _grown(node, target, scope) if node.op == "Loop" else ():
            stops.append((places[number] + 1, _stopped(proto, target, index, certain)))
    for at, stop in reversed(stops):
        proto.node.insert(at, stop)
    return found or bool(stops)


def _grown(node: Node, target: onnx.NodeProto, scope: _Scope) -> Iterator[tuple[int, onnx.TypeProto]]:
    """The final states of a `Loop` that are no tensors: inference claims the sizes of the initial elements for them."""
    for index, value in enumerate(node.outputs):
        claimed = scope.type(value) if value is not None and target.output[index] == value.name else None
        certain = claimed and without_sizes(claimed)
        if claimed and certain and not claimed.HasField("tensor_type") and certain != claimed:
            yield index, certain


def _bodies(
    node: Node, target: onnx.NodeProto, result: onnx.NodeProto, scope: _Scope
) -> Iterator[tuple[str, tuple[onnx.GraphProto, _Scope]]]:
    results = {a.name: a.g for a in result.attribute if a.type == onnx.AttributeProto.GRAPH}
    for attribute in target.attribute:
        graph = node.subgraphs.get(attribute.name)
        if graph is not None and attribute.name in results:
            yield attribute.name, (attribute.g, _Scope(graph, results[attribute.name], scope))


def _doubts_of(
    node: Node, claims: Sequence[Known], scope: _Scope, inner: dict[str, tuple[onnx.GraphProto, _Scope]]
) -> Doubts:
    branches: dict[str, Sequence[Known]] = {
        name: _Shapes(node.subgraphs[name].outputs, body) for name, (_, body) in inner.items()
    }
    return doubts(Facts(node, _Shapes(node.inputs, scope), claims, branches))


def _by_output(found: Doubts, claims: Sequence[Known]) -> dict[int, set[int] | None]:
    """The axes in doubt by output, None for the whole shape; without axes for which nothing is claimed."""
    result: dict[int, set[int] | None] = {}
    for index, axis in found:
        claim = claims[index]
        if claim is None:
            continue
        if axis is None:
            result[index] = None
        elif axis < len(claim) and claim[axis] is not None:
            axes = result.setdefault(index, set())
            if axes is not None:
                axes.add(axis)
    return result


def _certain(found: onnx.TypeProto | None, axes: set[int] | None) -> onnx.TypeProto:
    certain = onnx.TypeProto()
    if found is not None:
        certain.CopyFrom(found)
    if axes is None:
        certain.tensor_type.ClearField("shape")
    for axis in axes or ():
        certain.tensor_type.shape.dim[axis].Clear()
    return certain


def _stopped(proto: onnx.GraphProto, node: onnx.NodeProto, index: int, certain: onnx.TypeProto) -> onnx.NodeProto:
    """The stop after an output of a node, which is renamed."""
    name = node.output[index]
    node.output[index] = f"{name} of {node.op_type}, unsure"
    for info in proto.output:
        if info.name == name:
            info.type.CopyFrom(certain)
            break
    else:
        proto.value_info.add(name=name, type=certain)
    return onnx.NodeProto(op_type=STOP, input=[node.output[index]], output=[name])
