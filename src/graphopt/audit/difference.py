"""The differences between two models: operators, nodes, interface, constants, metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any
from zlib import crc32

import onnx

from graphopt.audit.inspection import all_graphs, nodes
from graphopt.ir import Graph, Model, Node, Source, Tensor, Value, shown_op
from graphopt.ir.messages import as_text
from graphopt.ir.types import type_name
from graphopt.verify.interface import differences, interface_of, spec_of


@dataclass(slots=True)
class NodeChange:
    """A node that computes the same value in both models, differently.

    Attributes:
        value: name of its first output.
        before: its operator and inputs in the first model, and its attributes if only those differ.
        after: the same for the second model.
    """

    value: str
    before: str
    after: str


@dataclass(slots=True)
class Diff:
    """The differences between two models.

    Attributes:
        ops: operators whose counts differ, with both counts.
        removed: nodes of the first model whose outputs no node of the second computes.
        added: nodes of the second model whose outputs no node of the first computes.
        changed: nodes with the same first output that differ.
        interface: differences of inputs and outputs; breaking ones are marked.
        constants_removed: initializers only in the first model, with their types.
        constants_added: initializers only in the second model.
        constants_changed: initializers with the same name and different contents.
        opsets: domains whose version changed, with both versions (0: not imported).
        metadata: metadata keys that changed.
        other: other differences, in words: versions, names, documentation, stated types.
        bytes: total size of the initializers of each model.
    """

    ops: dict[str, tuple[int, int]] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    changed: list[NodeChange] = field(default_factory=list)
    interface: list[str] = field(default_factory=list)
    constants_removed: dict[str, str] = field(default_factory=dict)
    constants_added: dict[str, str] = field(default_factory=dict)
    constants_changed: dict[str, str] = field(default_factory=dict)
    opsets: dict[str, tuple[int, int]] = field(default_factory=dict)
    metadata: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    bytes: tuple[int, int] = (0, 0)

    @property
    def empty(self) -> bool:
        """Whether nothing changed."""
        data = self.to_dict()
        return not any(value for name, value in data.items() if name != "bytes")

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def diff(before: Source | Model, after: Source | Model) -> Diff:
    """Compare the text of two models; nothing is run.

    Raises:
        ModelError: one of them cannot be read.
    """
    old, new = _as_read(before), _as_read(after)
    old_proto, new_proto = old.proto, new.proto
    found = Diff()
    found.ops = _counts(old, new)
    _compare_nodes(old, new, found)
    _compare_inner(old, new, found)
    _compare_constants(old, new, found)
    found.interface = [
        f"{d.message} (breaking)" if d.breaking else d.message
        for d in differences(interface_of(old_proto), interface_of(new_proto))
    ]
    domains = sorted({o.domain for proto in (old_proto, new_proto) for o in proto.opset_import})
    versions = {domain: (old.opset(domain), new.opset(domain)) for domain in domains}
    found.opsets = {domain or "ai.onnx": pair for domain, pair in versions.items() if pair[0] != pair[1]}
    keys = sorted({*old.metadata, *new.metadata}, key=as_text)
    found.metadata = [as_text(key) for key in keys if old.metadata.get(key) != new.metadata.get(key)]
    found.other = [*_headers(old_proto, new_proto), *_renamed(old, new), *_remarks(old_proto, new_proto)]
    return found


def _as_read(source: Source | Model) -> Model:
    """The view of a model whose protos state all that it has: a changed one is written and read again."""
    view = source if isinstance(source, Model) else Model.load(source)
    return Model.load(view.flush(), opaque=view.opaque) if view.changed else view


def _counts(old: Model, new: Model) -> dict[str, tuple[int, int]]:
    before, after = (Counter(shown_op(node.op) for node in model.nodes()) for model in (old, new))
    ops = sorted({*before, *after}, key=lambda op: (-abs(before[op] - after[op]), op))
    return {op: (before[op], after[op]) for op in ops if before[op] != after[op]}


def _compare_nodes(old: Model, new: Model, found: Diff) -> None:
    before, after = _by_output(old), _by_output(new)
    found.removed = [describe(node) for key, node in before.items() if key not in after]
    found.added = [describe(node) for key, node in after.items() if key not in before]
    for key, node in before.items():
        other = after.get(key)
        if other is not None and _signature(node) != _signature(other):
            found.changed.append(NodeChange(key[1], *_change(node, other)))


def _change(node: Node, other: Node) -> tuple[str, str]:
    """Both nodes, one line each, in a form in which they differ."""
    before, after = describe(node), describe(other)
    if before != after:
        return before, after
    first, second = stated(node), stated(other)
    names = [
        name for name in sorted({*first, *second})
        if (name in first) != (name in second) or frozen(first[name]) != frozen(second[name])
    ]  # fmt: skip
    one, two = (f"{before} <{', '.join(_attribute(name, each) for name in names)}>" for each in (first, second))
    return one, two


def _attribute(name: str, attributes: dict[str, Any]) -> str:
    if name not in attributes:
        return f"{name} left out"
    value = attributes[name]
    if isinstance(value, Tensor):
        return f"{name} = {_tensor_type(value)} of checksum {crc32(repr(value.key()).encode()):08x}"
    if isinstance(value, onnx.AttributeProto):
        value = f"@{value.ref_attr_name}" if value.ref_attr_name else "?"
    return f"{name} = {value}"


def _headers(old: onnx.ModelProto, new: onnx.ModelProto) -> list[str]:
    """Differences of model-level fields."""
    pairs = [
        (title.replace("_", " "), getattr(old, title), getattr(new, title))
        for title in ("ir_version", "producer_name", "producer_version", "domain", "model_version")
    ]
    pairs.append(("graph name", old.graph.name, new.graph.name))
    shown = [(title, *(as_text(each) if isinstance(each, bytes) else each for each in ends)) for title, *ends in pairs]
    return [f"{title}: {a or 'none'} -> {b or 'none'}" for title, a, b in shown if a != b]


def _renamed(old: Model, new: Model) -> list[str]:
    before, after = _by_output(old), _by_output(new)
    pairs = [(node.name, after[key].name) for key, node in before.items() if key in after]
    return [f"node {a or 'without a name'} -> {b or 'without a name'}" for a, b in pairs if a != b]


def _remarks(old: onnx.ModelProto, new: onnx.ModelProto) -> list[str]:
    """Differences that affect no result, as counts."""
    counted = [(title, Counter(find(old)), Counter(find(new))) for title, find in _REMARKS.items()]
    return [f"{title}: {(a - b).total()} gone, {(b - a).total()} new" for title, a, b in counted if a != b]


def _parts(model: onnx.ModelProto) -> list[Any]:
    """Everything below the model that has documentation and metadata."""
    parts: list[Any] = [*model.functions, *nodes(model)]
    for graph in all_graphs(model):
        parts += [graph, *graph.input, *graph.output, *graph.initializer]
    return parts


def _docs(model: onnx.ModelProto) -> list[str]:
    return [part.doc_string for part in (model, *_parts(model)) if part.doc_string]


def _entries(model: onnx.ModelProto) -> list[tuple[str, str]]:
    return [(entry.key, entry.value) for part in _parts(model) for entry in part.metadata_props]


def _devices(model: onnx.ModelProto) -> list[bytes]:
    of_nodes = (each for node in nodes(model) for each in node.device_configurations)
    return _written([*model.configuration, *of_nodes])


def _types(model: onnx.ModelProto) -> list[bytes]:
    holders: list[Any] = [*all_graphs(model), *model.functions]
    return _written(info for each in holders for info in each.value_info)


def _written(messages: Iterable[Any]) -> list[bytes]:
    return [each.SerializeToString(deterministic=True) for each in messages]


_REMARKS: dict[str, Callable[[onnx.ModelProto], list[Any]]] = {
    "documentation strings": _docs,
    "metadata of graph and nodes": _entries,
    "device configurations": _devices,
    "stated types of inner values": _types,
    "quantization annotations": lambda m: _written(
        each for graph in all_graphs(m) for each in graph.quantization_annotation
    ),
    "training information": lambda m: _written(m.training_info),
    "functions": lambda m: [f"{f.domain}::{f.name}:{f.overload}" for f in m.functions],
}


def _compare_inner(old: Model, new: Model, found: Diff) -> None:
    """Compare the inputs and outputs of subgraphs and functions, in order; their nodes do not include them."""
    before, after = _inner(old), _inner(new)
    for place, graph in before.items():
        other = after.get(place)
        if other is not None and _heading(graph) != _heading(other):
            name = _first(graph.owner) if graph.owner is not None else graph.name
            found.changed.append(NodeChange(name, _heading(graph), _heading(other)))


def _inner(model: Model) -> dict[str, Graph]:
    return {place_of(graph): graph for graph in model.graphs() if graph is not model.graph}


def _heading(graph: Graph) -> str:
    """The inputs and outputs of a subgraph, or those of a function with its opsets, in one line."""
    proto = graph.proto
    inputs, outputs = (", ".join(value.name for value in values) for values in (graph.inputs, graph.outputs))
    if isinstance(proto, onnx.GraphProto):
        inputs, outputs = (", ".join(f"{each.name}: {spec_of(each.name, each.type)}" for each in values)
                           for values in (proto.input, proto.output))  # fmt: skip
    if graph.owner is not None:
        key = next(key for key, each in graph.owner.subgraphs.items() if each is graph)
        return f"{_first(graph.owner)}.{key}({inputs}) gives {outputs}"
    attributes, opsets = "", ""
    if isinstance(proto, onnx.FunctionProto):
        defaults = (str(onnx.helper.printable_attribute(each)) for each in proto.attribute_proto)
        attributes = ", ".join([*proto.attribute, *defaults])
        opsets = ", ".join(sorted(f"{each.domain or 'ai.onnx'} {each.version}" for each in proto.opset_import))
    return f"function {graph.name}({inputs}) <{attributes}> of {opsets} gives {outputs}"


def _by_output(model: Model) -> dict[tuple[str, str], Node]:
    """Nodes by graph and first output name; subgraphs are identified by the output of their owner."""
    return {(place_of(node.graph), _first(node)): node for node in model.nodes()}


def place_of(graph: Graph) -> str:
    """The place of a graph: the name of a function, for a subgraph the output of its owner, "" for the main graph."""
    if graph.owner is not None:
        key = next((k for k, g in graph.owner.subgraphs.items() if g is graph), "")
        return f"{place_of(graph.owner.graph)}/{_first(graph.owner)}.{key}"
    return graph.name if graph.is_function else ""


def _first(node: Node) -> str:
    return next((v.name for v in node.outputs if v is not None), f"{node.op} {node.name}")


def describe(node: Node) -> str:
    """A node as one line."""
    inputs = ", ".join(v.name if v is not None else "" for v in node.inputs)
    outputs = ", ".join(v.name for v in node.outputs if v is not None)
    return f"{outputs} = {shown_op(node.op)}({inputs})"


def _signature(node: Node) -> Hashable:
    inputs = tuple(v.name if v is not None else "" for v in node.inputs)
    outputs = tuple(v.name if v is not None else "" for v in node.outputs)
    attributes = tuple(sorted((name, frozen(value)) for name, value in stated(node).items() if not _graph(value)))
    return node.op, inputs, outputs, attributes


def _graph(value: Any) -> bool:
    return isinstance(value, Graph) or (isinstance(value, onnx.AttributeProto) and value.type == value.GRAPH)


def stated(node: Node) -> dict[str, Any]:
    """The attributes of a node that differ from their defaults."""
    schema = node.schema
    defaults = schema.defaults if schema is not None else {}
    return {name: value for name, value in node.attrs.items() if name not in defaults or defaults[name] != value}


def frozen(value: Any) -> str:
    """An attribute as comparable text."""
    if isinstance(value, Tensor):
        return repr(value.key())
    if isinstance(value, onnx.AttributeProto):
        return value.SerializeToString(deterministic=True).hex()
    return repr(value)


def _compare_constants(old: Model, new: Model, found: Diff) -> None:
    before, after = _constants(old), _constants(new)
    first, second = _sparse(old), _sparse(new)
    shown = _labels({**before, **after, **first, **second})
    for key, value in before.items():
        if key not in after:
            found.constants_removed[shown[key]] = _type(value)
        elif _differ(value, after[key]):
            found.constants_changed[shown[key]] = f"{_type(value)} -> {_type(after[key])}"
    found.constants_added = {shown[key]: _type(value) for key, value in after.items() if key not in before}
    found.bytes = (_total(before), _total(after))
    for key, tensor in first.items():
        if key not in second:
            found.constants_removed[shown[key]] = _sparse_type(tensor)
        elif tensor.SerializeToString(deterministic=True) != second[key].SerializeToString(deterministic=True):
            found.constants_changed[shown[key]] = f"{_sparse_type(tensor)} -> {_sparse_type(second[key])}"
    found.constants_added |= {shown[key]: _sparse_type(tensor) for key, tensor in second.items() if key not in first}


def _labels(keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Labels of constants: names, with the place of the subgraph if a name occurs in several graphs."""
    keys = list(keys)
    often = Counter(name for _, name in keys)
    return {
        (place, name): f"{name} in {place.removeprefix('/')}" if place and often[name] > 1 else name
        for place, name in keys
    }  # fmt: skip


def _sparse(model: Model) -> dict[tuple[str, str], onnx.SparseTensorProto]:
    protos = ((place_of(graph), graph.proto) for graph in model.graphs())
    return {
        (place, tensor.values.name): tensor
        for place, proto in protos if isinstance(proto, onnx.GraphProto) for tensor in proto.sparse_initializer
    }  # fmt: skip


def _sparse_type(tensor: onnx.SparseTensorProto) -> str:
    return f"sparse {type_name(tensor.values.data_type)}[{','.join(map(str, tensor.dims))}]"


def _constants(model: Model) -> dict[tuple[str, str], Value]:
    return {(place_of(graph), v.name): v for graph in model.graphs() for v in graph.initializers}


def _differ(a: Value, b: Value) -> bool:
    assert a.tensor is not None
    assert b.tensor is not None
    if (a.tensor.dtype, a.tensor.dims) != (b.tensor.dtype, b.tensor.dims):
        return True
    return a.tensor.key() != b.tensor.key()


def _type(value: Value) -> str:
    assert value.tensor is not None
    return _tensor_type(value.tensor)


def _tensor_type(tensor: Tensor) -> str:
    return f"{type_name(tensor.dtype)}[{','.join(map(str, tensor.dims))}]"


def _total(constants: dict[tuple[str, str], Value]) -> int:
    return sum(v.tensor.nbytes for v in constants.values() if v.tensor is not None)
