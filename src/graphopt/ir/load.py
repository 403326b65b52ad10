"""Construction of the view from protos: every field that rules use is read here, once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from sys import intern
from typing import Any

import numpy as np
import onnx

from graphopt.errors import ModelError
from graphopt.ir.attributes import GRAPH_KINDS
from graphopt.ir.contents import HOLDING_TENSORS, check_attribute, check_sparse, check_tensor
from graphopt.ir.external import Folders, Opaque, tensor_from_proto
from graphopt.ir.graph import Graph, Node
from graphopt.ir.model import Model
from graphopt.ir.order import append, renumber
from graphopt.ir.schema import CONTRIB_DOMAINS, CONTRIB_KINDS, COUNTS, FLAGS, UNSAID, OpInfo, has_its_operands
from graphopt.ir.seal import SealedDict
from graphopt.ir.sealing import seal_graph
from graphopt.ir.slices import FileSlice
from graphopt.ir.tensor import Tensor
from graphopt.ir.value import Value
from graphopt.system.collector import paused_gc

_GRAPH_OPS = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""The standard operators with graph attributes; for all that the standard does not know every attribute is checked."""

Elsewhere = Mapping[int, FileSlice | np.ndarray[Any, Any]]
"""Contents of initializers that are not in their protos, by the index of the initializer."""


def build(proto: onnx.ModelProto, folders: Folders, elsewhere: Elsewhere, opaque: Opaque | None = None) -> Model:
    """The view over a model.

    Args:
        proto: the model; it is kept and must not be changed by others.
        folders: where external data may be; none for a model that is not from a file.
        elsewhere: the data of initializers of the main graph whose data is not in the proto.
        opaque: which external data is not read: its tensors stay references.

    Raises:
        ModelError: the model is so invalid that no view can be built: an undefined name, a name defined
            twice, a cycle, unreadable external data.
    """
    model = Model(proto, folders[0] if folders else None)
    with paused_gc():
        model.opaque = opaque
        _Loader(model, folders, opaque).load(elsewhere)
        for graph in (model.graph, *model.functions):
            seal_graph(graph)
    model._undo.clear()
    return model


class _Loader:
    def __init__(self, model: Model, folders: Folders, opaque: Opaque | None) -> None:
        self.model = model
        self.folders = folders
        self.opaque = opaque
        self.local = {(_text(f.domain), _text(f.name)) for f in model._proto.functions}
        self.schemas: dict[tuple[tuple[str, int], ...], dict[str, OpInfo | None]] = {}
        """Schemas of operators, for each set of imports."""

    def load(self, elsewhere: Elsewhere) -> None:
        proto = self.model._proto
        opsets = _opsets(proto.opset_import)
        self.model.graph = Graph(self.model, _text(proto.graph.name), proto.graph, opsets)
        self._fill(self.model.graph, elsewhere)
        for name in trained_names(proto):
            value = self.model.graph.values.get(name)
            if value is not None:
                value.is_trained = True
        for function in proto.functions:
            name = f"{function.domain}::{function.name}" + (f":{function.overload}" if function.overload else "")
            graph = Graph(self.model, name, function, SealedDict({**opsets, **_opsets(function.opset_import)}))
            list.append(self.model.functions, graph)
            self._fill_function(graph, function)
        _check_depth(self.model)

    def _fill(self, graph: Graph, elsewhere: Elsewhere) -> None:
        proto = graph._proto
        assert isinstance(proto, onnx.GraphProto)
        self._inputs(graph, proto)
        self._initializers(graph, proto, elsewhere)
        self._nodes(graph, proto.node)
        self._infos(graph, proto)
        for info in proto.output:
            value = self._resolve(graph, info.name, "graph output")
            value.output_count += 1
            if value.graph is graph and not value.is_input:
                value._info = info
            graph.outputs.append(value)

    def _fill_function(self, graph: Graph, proto: onnx.FunctionProto) -> None:
        for name in proto.input:
            graph.inputs.append(self._define(graph, name))
            graph.inputs[-1].is_input = True
        self._nodes(graph, proto.node)
        self._infos(graph, proto)
        for name in proto.output:
            value = self._resolve(graph, name, "function output")
            value.output_count += 1
            graph.outputs.append(value)

    def _inputs(self, graph: Graph, proto: onnx.GraphProto) -> None:
        for info in proto.input:
            value = self._define(graph, info.name)
            value.is_input = True
            value._info = info
            graph.inputs.append(value)

    def _initializers(self, graph: Graph, proto: onnx.GraphProto, elsewhere: Elsewhere) -> None:
        values = graph.values
        for number, tensor in enumerate(proto.initializer):
            name = tensor.name
            value = values.get(name)
            if value is None:
                value = values[name] = Value(_text(name), graph)
            elif value.tensor is not None:
                raise ModelError(f"initializer {name!r} of graph {graph.name!r} is given twice")
            value._number = self.model.next_number()
            source = elsewhere.get(number) if elsewhere else None
            if isinstance(source, np.ndarray):
                value.tensor = Tensor(tensor.data_type, tuple(tensor.dims), proto=tensor, array=source)
                continue
            raw = check_tensor(tensor, f"tensor {name!r}", None if source is None else source.length)
            if raw is not None:
                value.tensor = Tensor(tensor.data_type, tuple(tensor.dims), proto=tensor)
                value.tensor.glance(raw)
            elif source is None:
                value.tensor = tensor_from_proto(tensor, self.folders, self.opaque)
            else:
                value.tensor = Tensor(tensor.data_type, tuple(tensor.dims), proto=tensor, source=source)
        for sparse in proto.sparse_initializer:
            name = sparse.values.name
            check_sparse(sparse, f"sparse tensor {name!r}")
            value = values.get(name) or self._define(graph, name)
            value.is_sparse = True

    def _infos(self, graph: Graph, proto: onnx.GraphProto | onnx.FunctionProto) -> None:
        values = graph.values
        for info in proto.value_info:
            value = values.get(info.name)
            if value is not None and not value.is_input:
                value._info = info

    def _define(self, graph: Graph, name: str) -> Value:
        if name in graph.values:
            raise ModelError(f"value {name!r} of graph {graph.name!r} is defined twice")
        value = graph.values[name] = Value(_text(name), graph)
        return value

    def _nodes(self, graph: Graph, protos: Iterable[onnx.NodeProto]) -> None:
        local = self.local
        values, schemas = graph.values, self.schemas.setdefault(tuple(graph.opsets.items()), {})
        wanted: list[tuple[Node, OpInfo | None, list[str]]] = []
        for proto in protos:
            op_type, domain, called, overload = proto.op_type, proto.domain, proto.name, proto.overload
            if type(op_type) is not str or type(domain) is not str or type(called) is not str:
                raise ModelError(f"operator, domain or name of node {called!r} is not valid UTF-8")
            op_type, domain = intern(op_type), intern(domain)
            node = Node(op_type, "" if domain == "ai.onnx" else domain, graph, proto)
            if domain:
                node.op = intern(node.op)
            node.name = called
            if overload or (local and (domain, op_type) in local):
                node.overload = overload
                node.op = f"{_CALL}{domain}::{op_type}:{overload}"
            op = node.op
            if op not in schemas:
                schemas[op] = None if op.startswith(_NO_SCHEMA) else node.schema
            schema, attributes = schemas[op], proto.attribute
            required = schema.required if schema is not None else ()
            if (attributes or required) and not _well_typed(node, schema, attributes):
                node.op, schema = f"malformed {op}", None
            append(graph, node)
            for index, name in enumerate(proto.output):
                if not name:
                    node.outputs.append(None)
                    continue
                if name in values:
                    raise ModelError(f"value {name!r} of graph {graph.name!r} is defined twice")
                value = values[name] = Value(name if type(name) is str else _text(name), graph, node, index)
                node.outputs.append(value)
            wanted.append((node, schema, list(proto.input)))
        self._link(graph, wanted)

    def _link(self, graph: Graph, wanted: list[tuple[Node, OpInfo | None, list[str]]]) -> None:
        values = graph.values
        sorted_so_far = True
        look_deeper = graph.in_function
        for node, schema, names in wanted:
            inputs = node.inputs
            for name in names:
                if not name:
                    inputs.append(None)
                    continue
                value = values.get(name)
                if value is None:
                    value = self._resolve(graph, name, "node input", node)
                elif value.producer is not None and value.producer.order >= node.order:
                    sorted_so_far = False
                users = value.users
                users[node] = users.get(node, 0) + 1
                inputs.append(value)
            if schema is not None and not (node.outputs and has_its_operands(node.op, schema, inputs)):
                node.op = f"malformed {node.op}"
            if node.domain or schema is None or node.op_type in _GRAPH_OPS or look_deeper:
                self._subgraphs(node)
        if not sorted_so_far or any(_reads_ahead(node) for node in graph.owners):
            sort(graph)

    def _subgraphs(self, node: Node) -> None:
        assert node._proto is not None
        for attribute in node._proto.attribute:
            if attribute.ref_attr_name:
                node.op = f"referring {node.op}"
            elif attribute.type == onnx.AttributeProto.GRAPH:
                self._subgraph(node, attribute.name, attribute.g)
            elif attribute.type == onnx.AttributeProto.GRAPHS:
                for number, proto in enumerate(attribute.graphs):
                    self._subgraph(node, f"{attribute.name}[{number}]", proto)

    def _subgraph(self, node: Node, key: str, proto: onnx.GraphProto) -> None:
        outer = node.graph
        graph = Graph(self.model, _text(proto.name), proto, outer.opsets, parent=outer, owner=node)
        if _graphs_around(graph) > _MOST_AROUND:
            raise ModelError(f"graphs are nested more than {_MOST_AROUND} deep, deeper than a file can hold")
        if not node.subgraphs:
            node.subgraphs = {}
            outer.owners[node] = None
        node.subgraphs[key] = graph
        self._fill(graph, {})

    def _resolve(self, graph: Graph, name: str, role: str, node: Node | None = None) -> Value:
        scope: Graph | None = graph
        while scope is not None:
            value = scope.values.get(name)
            if value is not None:
                return value
            scope = scope.parent
        where = f" of {node.op} node {node.name!r}" if node is not None else ""
        raise ModelError(f"{role} {name!r}{where} in graph {graph.name!r} is defined nowhere")


_MOST_AROUND = 31
"""Each nested graph takes three of the hundred levels that protobuf parses, and its contents some more."""


def _graphs_around(graph: Graph) -> int:
    count = 0
    while graph.parent is not None:
        graph, count = graph.parent, count + 1
    return count


def _well_typed(node: Node, schema: OpInfo | None, attributes: Iterable[onnx.AttributeProto]) -> bool:
    """Whether required attributes are given, and all have the types of the schema, counts >= 1 and flags 0 or 1.

    So no rule need check.

    Raises:
        ModelError: an attribute holds a tensor whose data does not match its dimensions.
    """
    is_call = node.op.startswith(_CALL)
    kinds = schema.attributes if schema is not None else {}
    if node.domain in CONTRIB_DOMAINS and not is_call:
        kinds = CONTRIB_KINDS
    fine = schema is None or not schema.required or schema.required <= {attribute.name for attribute in attributes}
    for attribute in attributes:
        kind, name = attribute.type, attribute.name
        if kind in HOLDING_TENSORS:
            check_attribute(attribute, f"attribute {name!r} of {node.op_type} node {node.name!r}")
        if attribute.ref_attr_name:
            fine = fine and node.graph.in_function  # outside functions a reference has no target
        elif is_call:
            continue  # a function may give any meaning to a name
        elif kinds.get(name if type(name) is str else _text(name), kind) != kind:
            fine = False
        elif schema is not None and kind in GRAPH_KINDS and name not in kinds:
            fine = False  # the graph may read values around it
        elif name in COUNTS:
            fine = fine and (_counts(attribute) or ((node.op, name) in UNSAID and attribute.i == 0))
        elif name in FLAGS and attribute.type == onnx.AttributeProto.INT:
            fine = fine and 0 <= attribute.i <= 1
    return fine


def _counts(attribute: onnx.AttributeProto) -> bool:
    """Whether the number, or every number, of a count attribute is at least 1."""
    return attribute.i >= 1 if attribute.type == onnx.AttributeProto.INT else min(attribute.ints, default=1) >= 1


def trained_names(proto: onnx.ModelProto) -> set[str]:
    """Every name that the training information of a model reads, initializes or updates.

    Its graphs see the initializers of the main graph, and its bindings assign new contents to them.
    """
    names: set[str] = set()
    for info in proto.training_info:
        for entry in (*info.initialization_binding, *info.update_binding):
            names.update((entry.key, entry.value))
        for graph in (info.initialization, info.algorithm):
            _mentioned(graph, names)
    return names


def _mentioned(graph: onnx.GraphProto, names: set[str]) -> None:
    names.update(entry.name for entries in (graph.input, graph.output, graph.initializer) for entry in entries)
    names.update(sparse.values.name for sparse in graph.sparse_initializer)
    for node in graph.node:
        names.update((*node.input, *node.output))
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _mentioned(attribute.g, names)
            for inner in attribute.graphs:
                _mentioned(inner, names)


_CALL = "call "
_NO_SCHEMA = (_CALL, "malformed ", "referring ")
"""Prefixes of `Node.op` for nodes to which no schema applies."""


def _text(name: str) -> str:
    """A name, checked: protobuf returns bytes if a string is not UTF-8.

    Raises:
        ModelError: it is not UTF-8.
    """
    if type(name) is not str:
        raise ModelError(f"name {name!r} is not valid UTF-8")
    return name


_DEEPEST = 100
"""Functions with deeper chains of calls are refused: recursive code would overflow its stack."""


def _check_depth(model: Model) -> None:
    """Refuse functions with chains of calls that are too deep.

    Raises:
        ModelError: a chain of calls is longer than `_DEEPEST`.
    """
    calls = {f.name: {name for node in _all_nodes(f) if (name := _called(node))} for f in model.functions}
    depths: dict[str, int] = {}
    for start, firsts in calls.items():
        path = [(start, iter(firsts))] if depths.setdefault(start, 1) == 1 else []
        while path:
            name, left = path[-1]
            called = next(left, None)
            if called is None:
                path.pop()
                called, name = name, path[-1][0] if path else ""
            elif called in calls and called not in depths:
                depths[called] = 1
                path.append((called, iter(calls[called])))
            if name and called in depths:
                depths[name] = max(depths[name], depths[called] + 1)
            if len(path) > _DEEPEST or depths.get(name, 0) > _DEEPEST:
                raise ModelError(f"functions call each other more than {_DEEPEST} deep, {name!r} among them")


def _called(node: Node) -> str:
    """The name of the function that a node calls, "" if it calls none."""
    kind, _, name = node.op.rpartition("referring ")[2].partition(" ")
    return name.removesuffix(":") if kind == "call" else ""


def _all_nodes(graph: Graph) -> Iterator[Node]:
    for node in graph:
        yield node
        for subgraph in node.subgraphs.values():
            yield from _all_nodes(subgraph)


def _opsets(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return SealedDict((("" if _text(o.domain) == "ai.onnx" else o.domain), o.version) for o in imports)


def shown_op(op: str) -> str:
    """The operator of a node for people; a call of a function is shown as the function's name."""
    return op[len(_CALL) :].removesuffix(":") if op.startswith(_CALL) else op


def captured_values(node: Node) -> Iterator[Value]:
    """Outer values that the subgraphs of a node read or have as outputs, with repetition."""
    for subgraph in node.subgraphs.values():
        yield from _captured(subgraph, subgraph)


def _captured(graph: Graph, top: Graph) -> Iterator[Value]:
    for inner in graph:
        yield from (v for v in inner.inputs if v is not None and _outside(v, top))
        for subgraph in inner.subgraphs.values():
            yield from _captured(subgraph, top)
    yield from (v for v in graph.outputs if _outside(v, top))


def _outside(value: Value, top: Graph) -> bool:
    scope: Graph | None = value.graph
    while scope is not None:
        if scope is top:
            return False
        scope = scope.parent
    return True


def _reads_ahead(node: Node) -> bool:
    graph = node.graph
    return any(
        v.graph is graph and v.producer is not None and v.producer.order >= node.order for v in captured_values(node)
    )


def sort(graph: Graph) -> None:
    """Sort the nodes topologically, keeping the given order as far as possible.

    Raises:
        ModelError: the nodes form a cycle.
    """
    import heapq  # few models need it: exporters write nodes in order

    waiting: dict[Node, int] = {}
    readers: dict[Node, list[Node]] = {}
    for node in graph:
        read = (v for v in (*node.inputs, *captured_values(node)) if v is not None and v.graph is graph)
        sources = {v.producer for v in read if v.producer is not None}
        waiting[node] = len(sources)
        for source in sources:
            readers.setdefault(source, []).append(node)
    ready = [(node.order, id(node), node) for node, count in waiting.items() if not count]
    heapq.heapify(ready)
    done: list[Node] = []
    while ready:
        node = heapq.heappop(ready)[2]
        done.append(node)
        for reader in readers.get(node, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, (reader.order, id(reader), reader))
    if len(done) != len(waiting):
        stuck = next(node for node, count in waiting.items() if count)
        raise ModelError(f"graph {graph.name!r} has a cycle through {stuck!r}")
    graph.first = graph.last = graph._listed = None
    graph._count = 0
    for node in done:
        node.prev = node.next = None
        append(graph, node)
    renumber(graph)
