"""Inlining: copying the contents of a subgraph, or of a function, into the graph that uses it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import onnx

from graphopt.analysis.purity import is_removable
from graphopt.errors import Decline
from graphopt.ir import Graph, Node, TensorType, Value, ValueType
from graphopt.ir.devices import devices_of
from graphopt.ir.flush import IR_WITH_FREE_INITIALIZERS
from graphopt.ir.messages import copy_fields, copy_text
from graphopt.ir.order import append
from graphopt.records import dataclass
from graphopt.rewrite.legality import is_visible, reads

if TYPE_CHECKING:
    from graphopt.rewrite.rewriter import Rewriter
    from graphopt.rewrite.rule import Fired

Operand = Value | None

_IDENTITY_OF_ANYTHING = 16
"""From this opset on `Identity` supports sequences and optionals."""

_LARGE = 1 << 10
"""From this many bytes on, a constant graph output is an `Identity` of an initializer, which others may read."""

_REFERRING = "referring "

_RESTATED = frozenset({
    "initializer", "input", "node", "output", "quantization_annotation", "sparse_initializer", "value_info",
})  # fmt: skip
"""The fields of a graph that name values."""


def adopt(
    rw: Rewriter, source: Graph, given: Mapping[Value, Operand] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> list[Operand]:  # fmt: skip
    """Copy the nodes of a branch, body or function into the present graph, pending; its initializers become constants.

    Nodes and values get fresh names, and the present node's documentation and metadata if they have none. Subgraphs are
    copied too; values that they capture from `source` are replaced by the copies. Values that `source` captures are
    read as before, and must be visible in the present graph.

    Args:
        rw: the gate, begun at a node of the graph to copy into.
        source: the subgraph or the function.
        given: replacements of its inputs, None for an omitted one; other values in it are replaced, not copied.
        attributes: for a function, the values of the attributes that its nodes refer to.

    Returns:
        The replacements of the outputs of `source`, which may be captured values.

    Raises:
        Decline: it cannot be copied.
    """
    # A branch sees all names that its enclosing graph sees. Others may be copied to where their names are taken.
    foreign = bool(given) or source.is_function
    _check_copy(source, foreign)
    referred = (attributes or {}) if source.is_function else None
    copier = Copier(dict(given or {}), foreign=foreign, attributes=referred)
    for value in source.initializers:
        if value not in copier.values and value.tensor is not None:
            copier.values[value] = rw.constant(value.tensor, like=value)
    for node in source:
        if not node.outputs or any(v is not None and v not in copier.values for v in node.outputs):
            copy = copier.node(node, rw.graph, named=False)
            copy._origin = _told(copy._origin, rw._origin)
            rw.add_pending(copy)
    return [copier.values.get(value, value) for value in source.outputs]


def _told(inner: onnx.NodeProto | None, owner: Node | None) -> onnx.NodeProto | None:
    """A proto with the documentation and metadata of a copied node, completed by its owner's."""
    outer = None if owner is None else owner._proto if owner._proto is not None else owner._origin
    if outer is None or not (outer.metadata_props or outer.HasField("doc_string")):
        return inner
    told = onnx.NodeProto()
    for each in (outer, inner):
        if each is not None:
            copy_text(each, told, "doc_string")
    own = [] if inner is None else list(inner.metadata_props)
    known = {entry.key for entry in own}
    told.metadata_props.extend([*(entry for entry in outer.metadata_props if entry.key not in known), *own])
    return told


def constants_of(rw: Rewriter, source: Graph) -> dict[Value, Operand]:
    """One constant per initializer and `Constant` node of a graph, which several copies by `adopt` share."""
    shared: dict[Value, Operand] = {}
    made = (value for node in source if node.op == "Constant" for value in node.outputs)
    for value in (*source.initializers, *made):
        tensor = value.constant_tensor if value is not None else None
        if value is not None and tensor is not None:
            shared[value] = rw.constant(tensor, like=value)
    return shared


def replace_by(rw: Rewriter, node: Node, results: Sequence[Operand], detail: str = "") -> Fired:
    """Replace a node with adopted values.

    Args:
        rw: the gate, begun at the node.
        node: the node to remove.
        results: the value that `adopt` or `trimmed` returned for each of its outputs.
        detail: a remark for the event.

    Raises:
        Decline: a value cannot replace an output.
    """
    fired = rw.replace(node, stand_ins(rw, node, results), detail)
    rw.stale_types = True  # copied subgraphs have not been inferred yet, even if the types of results are known
    return fired


def stand_ins(rw: Rewriter, node: Node, results: Sequence[Operand]) -> list[Operand]:
    """The replacement of each output of a node whose subgraph was adopted.

    If a graph output would be an existing value, an `Identity` or `Constant` is inserted: an `Identity` if another copy
    may output the same large constant.

    Args:
        rw: the gate, begun at the node.
        node: the node to remove.
        results: the value that `adopt` returned for each of its outputs.

    Raises:
        Decline: a value cannot replace an output.
    """
    values: list[Operand] = []
    for old, new in zip(node.outputs, results, strict=False):
        if old is None or not (old.users or old.output_count):
            values.append(None)
        elif new is None:
            raise Decline("{} would become an omitted input", old.name)
        elif new.name and not all(is_visible(new, user.graph) for user in old.users):
            raise Decline("{} is shadowed where {} is read", new.name, old.name)
        elif not old.output_count or (not new.name and new.producer is not None and new not in values):
            values.append(new)
        elif not new.name and new.tensor is not None and new.tensor.nbytes < _LARGE:
            values.append(rw.op("Constant", value=new.tensor))
        else:
            _check_identity(new, old.type, node.graph)
            values.append(rw.op("Identity", new))
    return values


def _check_identity(value: Value, value_type: ValueType | None, graph: Graph) -> None:
    """Check that `Identity` supports a value of a type."""
    if isinstance(value_type, onnx.TypeProto) and graph.opset() < _IDENTITY_OF_ANYTHING:
        raise Decline("{} is not a tensor, as Identity requires at this opset", value.name)


def check_effects(node: Node, source: Graph) -> None:
    """Check that replacing `node` with a copy of `source` loses no side effect.

    Copies that no used output depends on are dropped, which is wrong for an operator that may have side effects.

    Raises:
        Decline: there is such an operator.
    """
    outputs = [inner for old, inner in zip(node.outputs, source.outputs, strict=False) if old is not None and old.uses]
    needed: set[Node] = set()
    stack = [v.producer for v in outputs]
    while stack:
        producer = stack.pop()
        if producer is not None and producer.graph is source and producer not in needed:
            needed.add(producer)
            stack.extend(v.producer for v in reads(producer))
    lost = next((inner for inner in source if inner not in needed and not is_removable(inner)), None)
    if lost is not None:
        raise Decline("{} may have side effects", lost.op)


def _check_copy(source: Graph, foreign: bool) -> None:
    """Check that a graph can be copied without loss."""
    inner = inner_graphs(source)
    for graph in (source, *inner):
        if any(value.is_sparse for value in graph.values.values()):
            raise Decline("graph {} has a sparse initializer", graph.name)
        if any("[" in key for node in graph.owners for key in node.subgraphs):
            raise Decline("graph {} has an operator with a list of graphs", graph.name)
    for graph in (source, *(inner if foreign else ())):
        if isinstance(graph._proto, onnx.GraphProto) and graph._proto.quantization_annotation:
            raise Decline("graph {} has quantization annotations", graph.name)
    for graph in inner if foreign else ():
        if source.model.ir_version < IR_WITH_FREE_INITIALIZERS and any(True for _ in graph.initializers):
            raise Decline("before IR version 4 initializers of inner graphs cannot be renamed")


def inner_graphs(graph: Graph) -> list[Graph]:
    """All subgraphs of a graph, at any depth."""
    inner = [subgraph for node in graph.owners for subgraph in node.subgraphs.values()]
    return [*inner, *(deeper for subgraph in inner for deeper in inner_graphs(subgraph))]


@dataclass(frozen=True, slots=True)
class Trim:
    """The parts of a subgraph that a copy omits.

    Attributes:
        inputs: indices of inputs, which no copied node may read.
        outputs: indices of outputs.
        nodes: nodes, which no copied node may read.
    """

    inputs: Collection[int] = ()
    outputs: Collection[int] = ()
    nodes: Collection[Node] = ()


def trimmed(
    rw: Rewriter, node: Node, trims: Mapping[str, Trim], *, inputs: Sequence[Operand], outputs: int,
    given: Mapping[Value, Operand] | None = None, **attrs: Any,
) -> list[Operand]:  # fmt: skip
    """Copy a node with subgraphs, pending, without some of their inputs, outputs and nodes.

    Args:
        rw: the gate, begun at the node.
        node: the node.
        trims: the parts of each subgraph to omit.
        inputs: the operands of the new node.
        outputs: its number of outputs.
        given: replacements of omitted inputs of subgraphs.
        **attrs: attributes that differ.

    Returns:
        The outputs.

    Raises:
        Decline: a subgraph cannot be copied without loss.
    """
    for graph in node.subgraphs.values():
        _check_copy(graph, foreign=True)
        if rw.model.ir_version < IR_WITH_FREE_INITIALIZERS and any(graph.initializers):
            raise Decline("before IR version 4 initializers of inner graphs cannot be moved")
    new = Node(node.op_type, node.domain, node.graph)
    new._origin = node._proto if node._proto is not None else node._origin
    new._devices = devices_of(node, inputs, node.outputs if outputs == len(node.outputs) else ())
    new._attrs = {name: value for name, value in {**node.attrs, **attrs}.items() if value is not None}
    new.inputs = list(inputs)
    new.outputs = [Value("", node.graph, new, index) for index in range(outputs)]
    copier = Copier(dict(given or {}), foreign=bool(given))
    new.subgraphs = {key: copier.graph(graph, new, trims.get(key)) for key, graph in node.subgraphs.items()}
    rw.add_pending(new)
    return list(new.outputs)


@dataclass(slots=True)
class Copier:
    """Copies nodes and subgraphs that refer to each other.

    Attributes:
        values: the copy of each value; other values are used as they are.
        foreign: whether the copies go to where other names are visible, or there are several: inner values get fresh
            names, and symbolic dimensions, which may mean another size in each copy, are dropped.
        attributes: the values of referenced attributes; None if references stay.
    """

    values: dict[Value, Operand] = field(default_factory=dict)
    foreign: bool = False
    attributes: Mapping[str, Any] | None = None

    def node(self, node: Node, graph: Graph, *, named: bool) -> Node:
        """Copy a node for `graph`, without linking it."""
        copy = Node(node.op_type, node.domain, graph)
        copy.op, copy.overload = node.op, node.overload
        copy._origin = node._proto if node._proto is not None else node._origin
        copy._devices = devices_of(node)
        copy._attrs = dict(node.attrs)
        if copy.op.startswith(_REFERRING) and self.attributes is not None:
            self._resolve(copy, self.attributes)
        copy.inputs = [None if value is None else self.values.get(value, value) for value in node.inputs]
        self._end_inputs(copy, len(node.inputs))
        copy.outputs = [None if v is None else self._value(v, graph, v.name if named else "") for v in node.outputs]
        for index, value in enumerate(copy.outputs):
            if value is not None:
                value.producer, value.index = copy, index
        if named and not self.foreign:
            copy.name = node.name
        if node.subgraphs:
            copy.subgraphs = {key: self.graph(inner, copy) for key, inner in node.subgraphs.items()}
        return copy

    def _end_inputs(self, copy: Node, before: int) -> None:
        """Drop omitted inputs at the end, except those that an operator such as `Loop` requires to be listed."""
        schema = copy.schema
        least = before if schema is None else schema.min_inputs
        while len(copy.inputs) > least and copy.inputs[-1] is None:
            copy.inputs.pop()

    def _resolve(self, copy: Node, attributes: Mapping[str, Any]) -> None:
        """Replace references to the function's attributes with their values; those that are not given are omitted."""
        while copy.op.startswith(_REFERRING):
            copy.op = copy.op.removeprefix(_REFERRING)
        attrs: dict[str, Any] = {}
        for name, value in copy.attrs.items():
            refers = isinstance(value, onnx.AttributeProto) and value.ref_attr_name
            meant = attributes.get(refers) if refers else value
            if meant is not None:
                attrs[name] = meant
        copy._attrs = attrs

    def _value(self, value: Value, graph: Graph, name: str) -> Value:
        fresh = graph.model.fresh_name(name) if name and self.foreign else name
        copy = self.values[value] = Value(fresh, graph)
        copy.type = _lasting(value.type) if self.foreign else value.type
        return copy

    def graph(self, graph: Graph, owner: Node, trim: Trim | None = None) -> Graph:
        """Copy a subgraph; uses of captured values are counted when its owner is linked.

        Args:
            graph: the subgraph.
            owner: the node of which it will be an attribute.
            trim: the parts to omit.
        """
        stub = graph._proto
        restated = self.foreign or trim is not None
        trim = trim or Trim()
        if restated and isinstance(stub, onnx.GraphProto):
            stub = onnx.GraphProto()
            copy_fields(graph._proto, stub, _RESTATED)
        copy = Graph(owner.graph.model, graph.name, stub, owner.graph.opsets, parent=owner.graph, owner=owner)
        copy.changed = True
        for value in (*(v for i, v in enumerate(graph.inputs) if i not in trim.inputs), *graph.initializers):
            if value not in self.values:
                twin = self._value(value, copy, value.name)
                copy.values[twin.name] = twin
                twin._info, twin.tensor, twin.is_input = value._info, value.tensor, value.is_input
        kept = (self.values[value] for index, value in enumerate(graph.inputs) if index not in trim.inputs)
        copy.inputs = [twin for twin in kept if twin is not None]
        for node in graph:
            if node not in trim.nodes and not self._is_given(node):
                self._append(copy, self.node(node, copy, named=True))
        for index, value in enumerate(graph.outputs):
            if index not in trim.outputs:
                self._put_out(value, copy)
        if restated:
            _declare(graph, copy, trim)
        return copy

    def _is_given(self, node: Node) -> bool:
        """Whether a node is a constant that has a replacement already."""
        return node.op == "Constant" and node.result in self.values

    def _put_out(self, before: Value, copy: Graph) -> None:
        after = self.values.get(before) or before
        if after.graph is copy:
            after.output_count += 1
            after._info = before._info
        elif before in self.values:
            # The captured value has a new name, but a graph output must keep its own.
            _check_identity(after, before.type or after.type, copy)
            node = Node("Identity", "", copy)
            name = copy.model.fresh_name(before.name) if self.foreign or before.name in copy.values else before.name
            local = Value(name, copy, node)
            local.type, local.output_count = after.type, 1
            node.inputs, node.outputs = [after], [local]
            self._append(copy, node)
            after = local
        copy.outputs.append(after)

    def _append(self, graph: Graph, node: Node) -> None:
        append(graph, node)
        if node.subgraphs:
            graph.owners[node] = None
        for value in node.outputs:
            if value is not None:
                graph.values[value.name] = value
        for value in node.inputs:
            if value is not None and value.graph is graph:
                value.users[node] = value.users.get(node, 0) + 1


def _declare(graph: Graph, copy: Graph, trim: Trim) -> None:
    """Declare inputs and outputs of a copy under their new names."""
    before, after = graph._proto, copy._proto
    assert isinstance(before, onnx.GraphProto)
    assert isinstance(after, onnx.GraphProto)
    for entries, target, values, without in (
        (before.input, after.input, copy.inputs, trim.inputs),
        (before.output, after.output, copy.outputs, trim.outputs),
    ):
        kept = [entry for index, entry in enumerate(entries) if index not in without]
        for entry, value in zip(kept, values, strict=True):
            info = target.add()
            info.CopyFrom(entry)
            info.name = value.name
            value._info = info


def _lasting(value_type: ValueType | None) -> ValueType | None:
    """The part of a type that holds in every copy."""
    if not isinstance(value_type, TensorType) or value_type.shape is None:
        return value_type
    return TensorType(value_type.dtype, tuple(d if isinstance(d, int) else None for d in value_type.shape))
