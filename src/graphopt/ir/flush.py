"""Serialization of the view: protos that no rewrite touched are copied as read, all others are written anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx
from onnx import NodeProto

from graphopt.ir.attributes import encode_attribute
from graphopt.ir.devices import names_of, state
from graphopt.ir.graph import Graph, Node
from graphopt.ir.messages import copy_fields, copy_text
from graphopt.ir.model import Model
from graphopt.ir.schema import op_schema
from graphopt.ir.seal import is_sealed, unwrapped
from graphopt.ir.tensor import Tensor
from graphopt.ir.types import GENERATED, TensorType, encode_type
from graphopt.ir.value import Value
from graphopt.system.collector import paused_gc

IR_WITH_FREE_INITIALIZERS = 4
"""The first IR version in which an initializer need not be a graph input."""


@paused_gc()
def flush(model: Model) -> onnx.ModelProto:
    """The model as a proto with all its weights, those from files included."""
    source = model._proto
    inplace = model.inplace and not is_sealed()  # while a pass runs its changes may still be undone
    if not model.changed and not model.lifted:
        if inplace:
            return source
        result = onnx.ModelProto()
        result.CopyFrom(source)
        return result
    result = source if inplace else onnx.ModelProto()
    if not inplace:
        copy_fields(source, result, {"graph", "functions", "opset_import", "metadata_props"})
        result.opset_import.extend(source.opset_import)
    if result.ir_version != model.ir_version:
        result.ir_version = model.ir_version
    _write_versions(model.graph, result)
    for domain, version in model.added_opsets.items():
        result.opset_import.add(domain=domain, version=version)
    _write_metadata(model, result)
    write_graph(model.graph, result.graph)
    _write_functions(model, result, inplace=inplace)
    if inplace:
        model.added_opsets.clear()
    return result


def _write_versions(graph: Graph, target: onnx.ModelProto | onnx.FunctionProto) -> None:
    """Update the changed versions of domains that are imported already."""
    for entry in target.opset_import:
        version = graph.opset("" if entry.domain == "ai.onnx" else entry.domain)
        if entry.version != version:
            entry.version = version


def without_initializers(model: Model, names: set[str]) -> onnx.ModelProto:
    """The flushed model without the named initializers of the main graph, all of them among `stored`."""
    values = model.graph.values
    hidden = {name: values[name].tensor for name in names}
    for name in names:
        values[name].tensor = None
    was = model.graph.changed, model.inplace
    model.graph.changed, model.inplace = True, False
    try:
        return flush(model)
    finally:
        model.graph.changed, model.inplace = was
        for name, tensor in hidden.items():
            values[name].tensor = tensor


def _write_metadata(model: Model, result: onnx.ModelProto) -> None:
    before = {p.key: p.value for p in model._proto.metadata_props}  # the last entry of a repeated key counts
    kept = [p for p in model._proto.metadata_props if model.metadata.get(p.key) == before[p.key]]
    known = {p.key for p in kept}
    copies = [onnx.StringStringEntryProto.FromString(p.SerializeToString()) for p in kept]
    del result.metadata_props[:]
    result.metadata_props.extend(copies)
    for key, value in model.metadata.items():
        if key not in known:
            result.metadata_props.add(key=key, value=value)


def _write_functions(model: Model, result: onnx.ModelProto, *, inplace: bool) -> None:
    written = []
    for graph in model.functions:
        source = graph._proto
        assert isinstance(source, onnx.FunctionProto)
        if not graph.changed:
            written.append(source)
            continue
        proto = onnx.FunctionProto()
        proto.CopyFrom(source)
        _write_nodes(graph, proto)
        _write_versions(graph, proto)
        known = {"" if o.domain == "ai.onnx" else o.domain for o in source.opset_import}
        for domain in sorted(_domains(graph) - known):
            if graph.opset(domain):  # the model's version: readers let a function inherit no imports
                proto.opset_import.add(domain=domain, version=graph.opset(domain))
        written.append(proto)
    if inplace:
        written = [onnx.FunctionProto.FromString(p.SerializeToString()) for p in written]
        del result.functions[:]
    result.functions.extend(written)


def _domains(graph: Graph) -> set[str]:
    """The domains of the operators in a graph, inner graphs included."""
    inner = (subgraph for node in graph.owners for subgraph in node.subgraphs.values())
    return {node.domain for node in graph}.union(*map(_domains, inner))


def write_graph(graph: Graph, target: onnx.GraphProto) -> None:
    """Write a graph into `target`: an empty proto, or the proto that the graph was read from."""
    source = graph._proto
    assert isinstance(source, onnx.GraphProto)
    if target is not source:
        copy_fields(source, target, {"node", "initializer", "sparse_initializer", "value_info"})
    _write_initializers(graph, source, target)
    _write_value_info(graph, source, target)
    _write_nodes(graph, target)


def _write_nodes(graph: Graph, target: onnx.GraphProto | onnx.FunctionProto) -> None:
    nodes = [emit(node) for node in graph]
    if graph.changed or target is not graph._proto:
        del target.node[:]
        target.node.extend(_constants_for_old_ir(graph))
        target.node.extend(nodes)


def stored(graph: Graph) -> Iterator[Value]:
    """The initializers written as initializers; before IR 4 these must be inputs, and new ones become `Constant`."""
    proto = graph._proto
    if graph.model.ir_version >= IR_WITH_FREE_INITIALIZERS or not isinstance(proto, onnx.GraphProto):
        return graph.initializers
    given = {tensor.name: tensor for tensor in proto.initializer}
    return (v for v in graph.initializers if v.tensor and v.name in given and v.tensor.came_as(given[v.name]))


def _constants_for_old_ir(graph: Graph) -> list[NodeProto]:
    """The `Constant` nodes for initializers that are not `stored`."""
    if graph.model.ir_version >= IR_WITH_FREE_INITIALIZERS or graph.is_function:
        return []
    nodes, known = [], set(stored(graph))
    for value in graph.initializers:
        if value.tensor is not None and value not in known:
            node = NodeProto(op_type="Constant", output=[value.name])
            node.attribute.append(encode_attribute("value", value.tensor))
            nodes.append(node)
    return nodes


def _write_initializers(graph: Graph, source: onnx.GraphProto, target: onnx.GraphProto) -> None:
    alive = {v.name: v.tensor for v in graph.initializers}
    sparse = [s for s in source.sparse_initializer if (v := graph.values.get(s.values.name)) and v.is_sparse]
    known: set[str] = set()
    if target is source:
        kept = [(tensor := alive.get(t.name)) is not None and tensor.came_as(t) for t in source.initializer]
        gone = [i for i, stays in enumerate(kept) if not stays]
        known.update(t.name for t in source.initializer)
        known.difference_update(source.initializer[i].name for i in gone)
        for index in reversed(gone):
            del target.initializer[index]
        if len(sparse) != len(source.sparse_initializer):
            sparse = [onnx.SparseTensorProto.FromString(s.SerializeToString()) for s in sparse]
            del target.sparse_initializer[:]
            target.sparse_initializer.extend(sparse)
    else:
        target.sparse_initializer.extend(sparse)
        for proto in source.initializer:
            tensor = alive.get(proto.name)
            if tensor is not None and tensor.came_as(proto):
                known.add(proto.name)
                _write_tensor(tensor, proto.name, target.initializer.add())
    if graph.model.ir_version < IR_WITH_FREE_INITIALIZERS:
        return
    for name, tensor in alive.items():
        if name not in known and tensor is not None:
            _write_tensor(tensor, name, target.initializer.add())


def _write_tensor(tensor: Tensor, name: str, target: onnx.TensorProto) -> None:
    original = tensor._proto
    if original is not None and tensor.source is None:
        target.CopyFrom(original)
        target.name = name
    else:
        tensor.fill(target, name)


def _write_value_info(graph: Graph, source: onnx.GraphProto, target: onnx.GraphProto) -> None:
    values = graph.values
    kept = []
    for info in source.value_info:
        value = values.get(info.name)
        # An entry that names no value is useless, but in an unchanged graph it is kept.
        if value is None and graph.changed:
            continue
        if value is not None and value._info is None and not value.is_input:
            continue
        kept.append(info)
    kept += _types_nobody_infers(graph, {info.name for info in kept})
    if target is not source:
        target.value_info.extend(kept)
    elif len(kept) != len(source.value_info) or graph.changed:
        kept = [onnx.ValueInfoProto.FromString(info.SerializeToString()) for info in kept]
        del target.value_info[:]
        target.value_info.extend(kept)


def _types_nobody_infers(graph: Graph, stated: set[str]) -> list[onnx.ValueInfoProto]:
    """The output types of new operators outside the standard, which no type inference can give the next reader."""
    stated = stated | {value.name for value in graph.outputs}
    found = []
    for node in graph:
        if node.proto is not None or not node.domain or node.schema is not None or node.op.startswith("call "):
            continue
        for value in node.outputs:
            known = value.type if value is not None else None
            if value is None or value.name in stated or not isinstance(known, TensorType):
                continue
            info = onnx.ValueInfoProto(name=value.name, type=encode_type(known))
            if not any(dim.dim_param.startswith(GENERATED) for dim in info.type.tensor_type.shape.dim):
                found.append(info)
    return found


def emit(node: Node) -> NodeProto:
    """The proto of a node: the original one if the node did not change."""
    proto = node._proto
    changed_inside = bool(node.subgraphs) and any(graph.changed for graph in node.subgraphs.values())
    if proto is not None and not node.changed and not changed_inside:
        return proto
    result = NodeProto()
    if proto is None:
        _describe(node, result)
    else:
        result.CopyFrom(proto)
        if node.name != proto.name:
            result.name = node.name
        del result.input[:], result.output[:]
    result.input.extend(names_of(node.inputs))
    result.output.extend(names_of(node.outputs))
    if node._devices is not None:
        state(node._devices, result, elsewhere=True)
    elif proto is not None and proto.device_configurations:
        state(proto, result)
    if node.attrs_changed or changed_inside:
        del result.attribute[:]
        _write_attributes(node, result)
    return result


def _describe(node: Node, result: NodeProto) -> None:
    result.op_type = node.op_type
    result.domain = node.domain
    result.name = node.name
    result.overload = node.overload
    if node._origin is not None:
        copy_text(node._origin, result, "doc_string")
        result.metadata_props.extend(node._origin.metadata_props)


def _write_attributes(node: Node, result: NodeProto) -> None:
    originals = {a.name: a for a in node._proto.attribute} if node._proto is not None else {}
    decoded = node._attrs
    kinds: dict[str, int] = {}
    if decoded is not None:
        schema = op_schema(node.op_type, node.domain, node.graph.opset(node.domain))
        kinds = schema.attributes if schema is not None else {}
    names = list(originals) if decoded is None else list(decoded)
    for name in names:
        graph = node.subgraphs.get(name)
        original = originals.get(name)
        if graph is not None and graph.changed:
            attribute = result.attribute.add()
            if original is not None:
                copy_fields(original, attribute, {"g"})
            attribute.name, attribute.type = name, onnx.AttributeProto.GRAPH
            write_graph(graph, attribute.g)
        elif original is not None and (
            decoded is None or not node.attrs_changed or _unchanged(original, decoded[name], kinds.get(name))
        ):
            copy = result.attribute.add()
            copy.CopyFrom(original)
            _flush_graph_list(node, name, copy)
        elif decoded is not None:
            result.attribute.append(encode_attribute(name, decoded[name], kinds.get(name)))


def _flush_graph_list(node: Node, name: str, attribute: onnx.AttributeProto) -> None:
    for number, target in enumerate(attribute.graphs):
        graph = node.subgraphs.get(f"{name}[{number}]")
        if graph is not None and graph.changed:
            target.Clear()
            write_graph(graph, target)


def _unchanged(original: onnx.AttributeProto, value: Any, kind: int | None) -> bool:
    """Whether an attribute is unchanged; 3 differs from 3.0. `kind` is the type in the operator's current schema."""
    if isinstance(value, onnx.AttributeProto):
        return bool(unwrapped(value) == original)
    if isinstance(value, Tensor):
        return value._proto is not None and bool(value._proto == original.t)
    return encode_attribute(original.name, value, kind or original.type).SerializeToString() == _bare(original)


def _bare(original: onnx.AttributeProto) -> bytes:
    copy = onnx.AttributeProto()
    copy.CopyFrom(original)
    copy.ClearField("doc_string")
    return bytes(copy.SerializeToString())
