"""Extracts a part of a model as a separate model."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import onnx

from graphopt.analysis.types import infer_types
from graphopt.errors import ModelError
from graphopt.ir import Graph, Model, Node, Value, captured_values
from graphopt.ir.types import encode_type


def typed(model: Model) -> Model:
    """The model after type inference."""
    infer_types(model)
    return model


def around(graph: Graph, nodes: Iterable[Node], steps: int) -> list[Node]:
    """Nodes of a graph and all nodes at most `steps` edges away from them, in order."""
    found = set(nodes)
    ring = set(found)
    for _ in range(steps):
        near = {user for node in ring for v in node.outputs if v is not None for user in v.users}
        near |= {v.producer for node in ring for v in node.inputs if v is not None and v.producer is not None}
        ring = {node for node in near if node.graph is graph} - found
        found |= ring
    return sorted(found, key=lambda node: node.order)


def upstream(node: Node) -> list[Node]:
    """A node and all nodes of its graph that it depends on, in order."""
    found = {node}
    stack = [node]
    while stack:
        for value in _read(stack.pop()):
            producer = value.producer
            if producer is not None and producer.graph is node.graph and producer not in found:
                found.add(producer)
                stack.append(producer)
    return sorted(found, key=lambda n: n.order)


def extract(model: Model, nodes: Collection[Node]) -> onnx.ModelProto:
    """A model of some nodes of the main graph: values from other nodes become inputs, constants are copied.

    Args:
        model: the model, with types inferred (`typed`), unchanged since it was loaded or flushed.
        nodes: the nodes to keep.

    Raises:
        ModelError: a value at the cut has no known type.
    """
    kept = set(nodes)
    for node in list(kept):
        kept.update(v.producer for v in _read(node) if v.is_const and v.producer is not None)
    ordered = sorted(kept, key=lambda node: node.order)
    proto = onnx.ModelProto()
    proto.ir_version = model.proto.ir_version
    proto.opset_import.extend(model.proto.opset_import)
    proto.functions.extend(model.proto.functions)
    graph = proto.graph
    graph.name = "part"
    seen: set[Value] = set()
    for node in ordered:
        for value in _read(node):
            if value in seen or value.producer in kept or value.graph is not model.graph:
                continue
            seen.add(value)
            _admit(value, graph)
        assert node.proto is not None
        graph.node.add().CopyFrom(node.proto)
    for node in ordered:
        for result in node.outputs:
            if result is not None and (result.output_count or any(_top(u) not in kept for u in result.users)):
                graph.output.add().CopyFrom(_info(result))
    return proto


def _admit(value: Value, graph: onnx.GraphProto) -> None:
    tensor = value.tensor
    if tensor is None:
        graph.input.add().CopyFrom(_info(value))
        return
    tensor.fill(graph.initializer.add(), value.name)
    if value.is_input:
        graph.input.add().CopyFrom(_info(value))


def _info(value: Value) -> onnx.ValueInfoProto:
    if value.type is None:
        raise ModelError(f"the type of {value.name} is not known, so the model cannot be cut there")
    info = onnx.ValueInfoProto(name=value.name)
    info.type.CopyFrom(encode_type(value.type))
    return info


def _read(node: Node) -> list[Value]:
    return [v for v in (*node.inputs, *captured_values(node)) if v is not None]


def _top(node: Node) -> Node:
    """The node of the main graph that is or contains a node."""
    while node.graph.owner is not None:
        node = node.graph.owner
    return node
