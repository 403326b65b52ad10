"""Primitive changes of the view. Only the `Rewriter` calls these: it checks, reports and records events.

A primitive checks before it changes anything. `changed` marks go to the undo log of the model automatically;
everything else is undone by the inverse that `graphopt.rewrite.journal` records for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from graphopt.errors import EngineError
from graphopt.ir.graph import Graph, Node
from graphopt.ir.model import Model
from graphopt.ir.order import link, unlink
from graphopt.ir.seal import SealedDict, write
from graphopt.ir.sealing import seal_node, seal_value
from graphopt.ir.tensor import Tensor
from graphopt.ir.types import ValueType
from graphopt.ir.value import Value
from graphopt.records import dataclass

_MANY = 32
"""Nodes with more inputs, and graphs with more outputs, index the positions of each value."""

Places = Sequence[int]

_put = dict.__setitem__


def mark_changed(graph: Graph | None) -> None:
    """Mark a graph, and every graph around it, as changed: they must be serialized anew."""
    while graph is not None and not graph.changed:
        write(graph, "changed", True)
        graph.model._undo.append((write, graph, "changed", False))
        graph = graph.owner.graph if graph.owner is not None else None


def touch(node: Node) -> None:
    """Mark a node as changed: it must be serialized anew."""
    graph = node.graph
    if not node.changed:
        write(node, "changed", True)
        graph.model._undo.append((write, node, "changed", False))
    if not graph.changed:
        mark_changed(graph)


def insert_before(node: Node, anchor: Node | None) -> None:
    """Insert a node before `anchor`, or at the end of its graph if that is None, and add the uses by its inputs."""
    graph = node.graph
    seal_node(node)
    link(node, anchor)
    if node.subgraphs:
        _put(graph.owners, node, None)
    for value in node.inputs:
        if value is not None:
            _add_use(value, node)
    for value in node.outputs:
        if value is not None:
            _put(graph.values, value.name, value)
    mark_changed(graph)


def remove(node: Node) -> None:
    """Remove a node from its graph. Its outputs must have no uses.

    Raises:
        EngineError: an output is still used, or the node is already removed.
    """
    graph = node.graph
    if node.removed:
        raise EngineError(f"{node!r} is removed already")
    for value in node.outputs:
        if value is not None and (value.users or value.output_count):
            raise EngineError(f"{value.name!r} is still used, its producer {node.op} cannot be removed")
    for value in node.outputs:
        if value is not None:
            dict.__delitem__(graph.values, value.name)
    for value in node.inputs:
        if value is not None:
            dict.pop(value.users, node, None)
    if node.subgraphs:
        for subgraph in node.subgraphs.values():
            _release(subgraph)
        dict.pop(graph.owners, node, None)
    unlink(node)
    if not graph.changed:
        mark_changed(graph)


def restore(node: Node, anchor: Node | None) -> None:
    """Undo `remove`: insert a node before the node that followed it."""
    write(node, "removed", False)
    insert_before(node, anchor)
    for subgraph in node.subgraphs.values():
        _retain(subgraph)


def _release(graph: Graph) -> None:
    """Drop the uses of outer values by a removed subgraph."""
    for output in graph.outputs:
        if output.graph is not graph:
            write(output, "output_count", output.output_count - 1)
    for node in graph:
        for value in node.inputs:
            if value is not None and value.graph is not graph:
                _drop_use(value, node)
        for subgraph in node.subgraphs.values():
            _release(subgraph)
        write(node, "removed", True)


def _retain(graph: Graph) -> None:
    """The inverse of `_release`."""
    for output in graph.outputs:
        if output.graph is not graph:
            write(output, "output_count", output.output_count + 1)
    node = graph.first
    while node is not None:
        write(node, "removed", False)
        for value in node.inputs:
            if value is not None and value.graph is not graph:
                _add_use(value, node)
        for subgraph in node.subgraphs.values():
            _retain(subgraph)
        node = node.next


def _add_use(value: Value, node: Node, count: int = 1) -> None:
    users = value.users
    _put(users, node, users.get(node, 0) + count)


def _drop_use(value: Value, node: Node, count: int = 1) -> None:
    left = value.users[node] - count
    if left:
        _put(value.users, node, left)
    else:
        dict.__delitem__(value.users, node)


def set_input(node: Node, index: int, value: Value | None) -> None:
    """Set an input of a node; None omits it."""
    inputs = node.inputs
    while len(inputs) <= index:
        list.append(inputs, None)
        write(node, "_places", None)
    old = inputs[index]
    if old is value:
        return
    if old is not None:
        _drop_use(old, node)
    list.__setitem__(inputs, index, value)
    if value is not None:
        _add_use(value, node)
    if node._places is not None:
        node._places[old].remove(index)
        node._places.setdefault(value, []).append(index)
    touch(node)


def shorten_inputs(node: Node, length: int) -> None:
    """Truncate the input list of a node; the inputs cut off must be None."""
    list.__delitem__(node.inputs, slice(length, None))
    write(node, "_places", None)


def extend_inputs(node: Node, length: int) -> None:
    """Undo `shorten_inputs`."""
    list.extend(node.inputs, [None] * (length - len(node.inputs)))
    write(node, "_places", None)


def rename_node(node: Node, name: str) -> None:
    """Rename a node."""
    write(node, "name", name)
    touch(node)


def set_type(value: Value, value_type: ValueType | None) -> None:
    """Set the type of a value."""
    value.graph.model._undo.append((_restore_type, value, value._type, value._deferred))
    write(value, "_type", value_type)
    write(value, "_deferred", None)


def _restore_type(value: Value, known: Any, deferred: Any) -> None:
    write(value, "_type", known)
    write(value, "_deferred", deferred)


def set_attrs(node: Node, changes: Mapping[str, Any]) -> None:
    """Set attributes; None removes one."""
    attrs = {name: value for name, value in node.attrs.items() if name not in changes or changes[name] is not None}
    attrs.update({name: value for name, value in changes.items() if value is not None})
    restore_attrs(node, SealedDict(attrs), True)
    touch(node)


def restore_attrs(node: Node, attrs: dict[str, Any] | None, changed: bool) -> None:
    """Undo `set_attrs`."""
    write(node, "_attrs", attrs)
    write(node, "_tensor", None)
    write(node, "attrs_changed", changed)


def replace_uses(old: Value, new: Value) -> list[tuple[Node, Places]]:
    """Replace `old` with `new` in every node that reads it; graph outputs stay as they are.

    Returns:
        The readers, each with the input positions at which it read `old`.
    """
    moved = []
    for node in old.users:
        places = _take_places(node, old, new)
        for at in places:
            list.__setitem__(node.inputs, at, new)
        _add_use(new, node, len(places))
        if not (node.changed and node.graph.changed):
            touch(node)
        moved.append((node, places))
    dict.clear(old.users)
    return moved


def restore_uses(old: Value, new: Value, moved: list[tuple[Node, Places]]) -> None:
    """Undo `replace_uses`."""
    for node, places in moved:
        for at in places:
            list.__setitem__(node.inputs, at, old)
        write(node, "_places", None)
        _drop_use(new, node, len(places))
        _add_use(old, node, len(places))


def _take_places(node: Node, old: Value, new: Value) -> Places:
    """The input positions at which a node reads `old`; if the node has an index, they are moved to `new` in it."""
    inputs = node.inputs
    if len(inputs) <= _MANY:
        return tuple([at for at, value in enumerate(inputs) if value is old])
    known = node._places
    if known is None:
        known = _index(inputs)
        write(node, "_places", known)
    places = known.pop(old)
    known.setdefault(new, []).extend(places)
    return tuple(places)


def _index(values: Sequence[Value | None]) -> dict[Value | None, list[int]]:
    places: dict[Value | None, list[int]] = {}
    for at, value in enumerate(values):
        places.setdefault(value, []).append(at)
    return places


def take_over_output(old: Value, new: Value) -> list[tuple[Graph, Places]]:
    """Replace `old` with `new` as a graph output, under the name of `old`; `old` gets a fresh name.

    Returns:
        The graphs that have it as an output, each with the positions among its outputs.
    """
    graph = old.graph
    name = old.name
    changed = _put_out(old, new)
    info = old._info
    rename(old, graph.model.fresh_name(name))
    rename(new, name)
    write(new, "_info", info)
    write(old, "_info", None)
    return changed


def _put_out(old: Value, new: Value) -> list[tuple[Graph, Places]]:
    changed: list[tuple[Graph, Places]] = []
    for owner in _graphs_putting_out(old):
        known = owner._places
        assert known is not None
        places = known.pop(old)
        known.setdefault(new, []).extend(places)
        for at in places:
            list.__setitem__(owner.outputs, at, new)
        mark_changed(owner)
        changed.append((owner, tuple(places)))
    write(new, "output_count", new.output_count + old.output_count)
    write(old, "output_count", 0)
    return changed


def _graphs_putting_out(value: Value) -> list[Graph]:
    if len(_output_places(value.graph).get(value, ())) == value.output_count:
        return [value.graph]
    return [g for g in value.graph.model.graphs() if _output_places(g).get(value)]


def _output_places(graph: Graph) -> dict[Value | None, list[int]]:
    if graph._places is None:
        write(graph, "_places", _index(graph.outputs))
    assert graph._places is not None
    return graph._places


@dataclass(slots=True)
class OutputState:
    """The state that `take_over_output` changes, to be restored."""

    old: Value
    new: Value
    labels: tuple[Label, Label]
    counts: tuple[int, int]

    @classmethod
    def of(cls, old: Value, new: Value) -> OutputState:
        """The state before the change."""
        return cls(old, new, (Label.of(old), Label.of(new)), (old.output_count, new.output_count))

    def restore(self, changed: list[tuple[Graph, Places]]) -> None:
        """Restore it.

        Args:
            changed: the result of `take_over_output`.
        """
        for graph, places in changed:
            for at in places:
                list.__setitem__(graph.outputs, at, self.old)
            write(graph, "_places", None)
        for value, count in zip((self.old, self.new), self.counts, strict=True):
            write(value, "output_count", count)
        restore_labels((self.old, self.new), self.labels)


@dataclass(slots=True)
class Label:
    """A value's name, with the `ValueInfoProto` and the number that go with it."""

    name: str
    info: onnx.ValueInfoProto | None
    number: int

    @classmethod
    def of(cls, value: Value) -> Label:
        """The current label of a value."""
        return cls(value.name, value._info, value._number)


def restore_labels(values: Sequence[Value], labels: Sequence[Label]) -> None:
    """Undo renaming."""
    for value in values:
        if value.graph.values.get(value.name) is value:
            dict.__delitem__(value.graph.values, value.name)
    for value, label in zip(values, labels, strict=True):
        write(value, "name", label.name)
        write(value, "_info", label.info)
        write(value, "_number", label.number)
        _put(value.graph.values, label.name, value)


def rename(value: Value, name: str) -> None:
    """Rename a value; its producer and readers are serialized anew."""
    graph = value.graph
    if graph.values.get(value.name) is value:
        dict.__delitem__(graph.values, value.name)
    write(value, "name", name)
    write(value, "_info", None)
    _list(value)
    _touch_around(value)


def _touch_around(value: Value) -> None:
    """Mark the producer, the readers and the graph of a value as changed."""
    producer = value.producer
    if producer is not None and not (producer.changed and producer.graph.changed):
        touch(producer)
    for node in value.users:
        if not (node.changed and node.graph.changed):
            touch(node)
    if not value.graph.changed:
        mark_changed(value.graph)


def _list(value: Value) -> None:
    """Add a value to its graph under its name; initializers are written in the order of their numbers."""
    graph = value.graph
    _put(graph.values, value.name, value)
    if value.producer is None:
        write(value, "_number", graph.model.next_number())


def swap_names(a: Value, b: Value) -> None:
    """Swap the names, and the types declared under them, of two values of one graph."""
    new = ((a, b.name, b._info), (b, a.name, a._info))
    values = a.graph.values
    dict.pop(values, a.name, None)
    dict.pop(values, b.name, None)
    for value, name, info in new:
        write(value, "name", name)
        write(value, "_info", info)
        _list(value)
        _touch_around(value)


def remove_initializer(value: Value) -> None:
    """Remove an initializer that has no uses and is not a graph input.

    Raises:
        EngineError: it is used, or it is a graph input.
    """
    if value.users or value.output_count or value.is_input:
        raise EngineError(f"initializer {value.name!r} is used or an input, it cannot be removed")
    dict.__delitem__(value.graph.values, value.name)
    write(value, "tensor", None)
    mark_changed(value.graph)


def add_initializer(value: Value) -> None:
    """Add a value with contents to its graph."""
    seal_value(value)
    _list(value)
    mark_changed(value.graph)


def restore_initializer(value: Value, tensor: Tensor | None) -> None:
    """Undo `remove_initializer`."""
    write(value, "tensor", tensor)
    _put(value.graph.values, value.name, value)


def reorder_initializers(graph: Graph) -> None:
    """Sort the initializers by their numbers, after removed ones were restored at the end."""
    values = graph.values
    entries = [(name, value) for name, value in values.items() if value.tensor is not None]
    numbers = [value._number for _, value in entries]
    if numbers != sorted(numbers):
        entries.sort(key=lambda entry: entry[1]._number)
        for name, _ in entries:
            dict.__delitem__(values, name)
        dict.update(values, entries)


def import_domain(model: Model, domain: str, version: int) -> None:
    """Import an operator domain in every graph that does not import it yet."""
    log = model._undo
    for graph in model.graphs():
        if domain not in graph.opsets:
            _put(graph.opsets, domain, version)
            log.append((dict.pop, graph.opsets, domain, None))
    if not any(o.domain == domain for o in model._proto.opset_import):
        log.append((dict.pop, model.added_opsets, domain, None))
        _put(model.added_opsets, domain, version)


def set_opset(graph: Graph, domain: str, version: int) -> None:
    """Set the opset version of a domain for the main graph or a function, with all graphs inside."""
    graph.model._undo.append((_put, graph.opsets, domain, graph.opsets[domain]))
    _put(graph.opsets, domain, version)
    mark_changed(graph)


def set_ir_version(model: Model, version: int) -> None:
    """Set the IR version."""
    model._undo.append((write, model, "_ir_version", model._ir_version))
    write(model, "_ir_version", version)


def set_metadata(model: Model, key: str, text: str) -> None:
    """Set an entry of the model's metadata."""
    model._undo.append((_restore_dict, model.metadata, dict(model.metadata)))
    _put(model.metadata, key, text)


def _restore_dict(target: dict[str, str], entries: dict[str, str]) -> None:
    dict.clear(target)
    dict.update(target, entries)
