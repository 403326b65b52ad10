"""Copying the contents of an inner graph, or of a function, to where they are used."""

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
from graphopt.ir.messages import copy_text
from graphopt.ir.order import append
from graphopt.records import dataclass
from graphopt.rewrite.legality import is_visible, reads

if TYPE_CHECKING:
    from graphopt.rewrite.rewriter import Rewriter
    from graphopt.rewrite.rule import Fired

Operand = Value | None

_IDENTITY_OF_ANYTHING = 16
"""From this opset on `Identity` takes sequences and optionals."""

_LARGE = 1 << 10
"""From so many bytes on a constant that is put out is an initializer behind an `Identity`, which others may read."""

_REFERRING = "referring "


def adopt(
    rw: Rewriter, source: Graph, given: Mapping[Value, Operand] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> list[Operand]:  # fmt: skip
    """Copy the nodes of a branch, body or function into the graph at hand, pending; its initializers become constants.

    Nodes and values get fresh names, and what is told of the node at hand where they tell nothing themselves. Subgraphs
    are copied with them; what they captured from `source` they capture from the copies. Values from outside of `source`
    are read as before, and must be visible here.

    Args:
        rw: the gate, begun at a node of the graph to copy into.
        source: the inner graph or the function.
        given: what stands for its inputs, None for one that is left out; whatever else is in it is not copied.
        attributes: for a function, the values of the attributes that its nodes refer to.

    Returns:
        What stands for the outputs of `source`, outer values included.

    Raises:
        Decline: it cannot be copied.
    """
    # A branch sees all that its surroundings see. Anything else may be brought where its inner names mean something.
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
    """What is told of a node of an inner graph: what it says itself, else what the node says that it came out of."""
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
    """One constant for each initializer and `Constant` node of a graph, for `adopt` to share between copies of it."""
    shared: dict[Value, Operand] = {}
    made = (value for node in source if node.op == "Constant" for value in node.outputs)
    for value in (*source.initializers, *made):
        tensor = value.constant_tensor if value is not None else None
        if value is not None and tensor is not None:
            shared[value] = rw.constant(tensor, like=value)
    return shared


def replace_by(rw: Rewriter, node: Node, results: Sequence[Operand], detail: str = "") -> Fired:
    """Let what was adopted take the place of a node.

    Args:
        rw: the gate, begun at the node.
        node: the node that goes away.
        results: what `adopt` or `trimmed` gave for each of its outputs.
        detail: a remark for the event.

    Raises:
        Decline: something cannot stand for an output.
    """
    fired = rw.replace(node, stand_ins(rw, node, results), detail)
    rw.stale_types = True  # inference has not seen the inside of copied subgraphs yet, whatever is known of results
    return fired


def stand_ins(rw: Rewriter, node: Node, results: Sequence[Operand]) -> list[Operand]:
    """What takes the place of each output of a node whose inner graph was adopted.

    Where a result is no new value, and the graph puts it out, an `Identity` or `Constant` stands between the two: where
    another copy may put out the same large constant, an `Identity`.

    Args:
        rw: the gate, begun at the node.
        node: the node that goes away.
        results: what `adopt` gave for each of its outputs.

    Raises:
        Decline: something cannot stand for an output.
    """
    values: list[Operand] = []
    for old, new in zip(node.outputs, results, strict=False):
        if old is None or not (old.users or old.output_count):
            values.append(None)
        elif new is None:
            raise Decline("{} would be an input that is left out", old.name)
        elif new.name and not all(is_visible(new, user.graph) for user in old.users):
            raise Decline("{} is hidden where {} is read", new.name, old.name)
        elif not old.output_count or (not new.name and new.producer is not None and new not in values):
            values.append(new)
        elif not new.name and new.tensor is not None and new.tensor.nbytes < _LARGE:
            values.append(rw.op("Constant", value=new.tensor))
        else:
            _check_identity(new, old.type, node.graph)
            values.append(rw.op("Identity", new))
    return values


def _check_identity(value: Value, value_type: ValueType | None, graph: Graph) -> None:
    """See that an `Identity` can put out a value of a type."""
    if isinstance(value_type, onnx.TypeProto) and graph.opset() < _IDENTITY_OF_ANYTHING:
        raise Decline("{} is no tensor, no Identity can put it out at this opset", value.name)


def check_effects(node: Node, source: Graph) -> None:
    """See that adopting `source` in the place of `node` loses nothing that happens in it.

    Copies that no used output depends on are dropped, which an operator that may do more must not be.

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
        raise Decline("{} may do more than compute its outputs", lost.op)


def _check_copy(source: Graph, foreign: bool) -> None:
    """See that a graph can be copied without losing something."""
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
    """All graphs inside of a graph, at any depth."""
    inner = [subgraph for node in graph.owners for subgraph in node.subgraphs.values()]
    return [*inner, *(deeper for subgraph in inner for deeper in inner_graphs(subgraph))]


@dataclass(frozen=True, slots=True)
class Trim:
    """What to leave out of a copy of a subgraph.

    Attributes:
        inputs: positions of inputs; nothing that is copied may read them.
        outputs: positions of outputs.
        nodes: nodes of it that nothing which is copied reads.
    """

    inputs: Collection[int] = ()
    outputs: Collection[int] = ()
    nodes: Collection[Node] = ()


def trimmed(
    rw: Rewriter, node: Node, trims: Mapping[str, Trim], *, inputs: Sequence[Operand], outputs: int,
    given: Mapping[Value, Operand] | None = None, **attrs: Any,
) -> list[Operand]:  # fmt: skip
    """A new node like one with subgraphs, pending, without some of their inputs, outputs and nodes.

    Args:
        rw: the gate, begun at the node.
        node: the node.
        trims: what to leave out of each subgraph.
        inputs: the operands of the new node.
        outputs: how many outputs it has.
        given: what stands for inputs of subgraphs that are left out.
        **attrs: attributes that differ.

    Returns:
        The outputs.

    Raises:
        Decline: a subgraph cannot be written without losing something.
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
    """Copies that refer to each other.

    Attributes:
        values: the copy of each value; what is not in it is used as it is.
        foreign: the copies go where other names are visible, or more than once: inner values get fresh names, and
            symbolic dimensions, which may mean another size in each copy, are forgotten.
        attributes: what attributes that nodes refer to stand for; None where they stay references.
    """

    values: dict[Value, Operand] = field(default_factory=dict)
    foreign: bool = False
    attributes: Mapping[str, Any] | None = None

    def node(self, node: Node, graph: Graph, *, named: bool) -> Node:
        """A copy of a node for `graph`, not linked into it."""
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
        """Drop what is left out at the end; but some operators, such as `Loop`, need the place of it."""
        schema = copy.schema
        least = before if schema is None else schema.min_inputs
        while len(copy.inputs) > least and copy.inputs[-1] is None:
            copy.inputs.pop()

    def _resolve(self, copy: Node, attributes: Mapping[str, Any]) -> None:
        """Put the function's attributes where the node refers to them; those that were not given are left out."""
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
        """A copy of a subgraph; uses of outer values are counted when its owner is linked.

        Args:
            graph: the subgraph.
            owner: the node that it will be an attribute of.
            trim: what to leave out of it.
        """
        stub = graph._proto
        restated = self.foreign or trim is not None
        trim = trim or Trim()
        if restated and isinstance(stub, onnx.GraphProto):
            stub = onnx.GraphProto(name=stub.name)
            copy_text(graph._proto, stub, "doc_string")
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
        """Whether something stands for a constant of an inner graph already."""
        return node.op == "Constant" and node.result in self.values

    def _put_out(self, before: Value, copy: Graph) -> None:
        after = self.values.get(before) or before
        if after.graph is copy:
            after.output_count += 1
            after._info = before._info
        elif before in self.values:
            # The outer value has a new name, and what a graph puts out has to keep its own.
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
    """State inputs and outputs of a copy under their new names."""
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
    """What of a type holds in every copy."""
    if not isinstance(value_type, TensorType) or value_type.shape is None:
        return value_type
    return TensorType(value_type.dtype, tuple(d if isinstance(d, int) else None for d in value_type.shape))
