"""Primitive changes of the view. Only the `Rewriter` calls these: it checks, reports and keeps events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import onnx

from graphopt.errors import EngineError
from graphopt.ir.graph import Graph, Node, Value
from graphopt.ir.tensor import Tensor

_GAP = 1 << 20
"""Distance between the order numbers of neighbours, so that insertion seldom renumbers."""


def mark_changed(graph: Graph | None) -> None:
    """Note that a graph, and so every graph around it, must be written anew."""
    while graph is not None and not graph.changed:
        graph.changed = True
        graph = graph.owner.graph if graph.owner is not None else None


def append(graph: Graph, node: Node) -> None:
    """Put a node at the end of its graph without noting a change (used while loading)."""
    last = graph.last
    node.prev = last
    if last is None:
        graph.first = node
    else:
        last.next = node
        node.order = last.order + _GAP
    graph.last = node
    graph._count += 1


def insert_before(node: Node, anchor: Node | None) -> None:
    """Put a node before `anchor`, or at the end of its graph when that is None; its inputs become uses."""
    _link(node, anchor)
    if node.subgraphs:
        node.graph.owners[node] = None
    for value in node.inputs:
        if value is not None:
            value.users[node] = value.users.get(node, 0) + 1
    for value in node.outputs:
        if value is not None:
            node.graph.values[value.name] = value
    mark_changed(node.graph)


def _link(node: Node, anchor: Node | None) -> None:
    graph = node.graph
    node.next = None
    if anchor is None:
        append(graph, node)
        return
    before = previous_node(anchor)
    node.prev, node.next = before, anchor
    anchor.prev = node
    if before is None:
        graph.first = node
    else:
        before.next = node
    graph._count += 1
    low = before.order if before is not None else anchor.order - 2 * _GAP
    node.order = (low + anchor.order) // 2
    if node.order in (low, anchor.order):
        renumber(graph)


def previous_node(node: Node) -> Node | None:
    """The node before, among those still in the graph."""
    before = node.prev
    while before is not None and before.removed:
        before = before.prev
    return before


def next_node(node: Node) -> Node | None:
    """The node behind, among those still in the graph."""
    after = node.next
    while after is not None and after.removed:
        after = after.next
    return after


def renumber(graph: Graph) -> None:
    """Give the nodes evenly spaced order numbers."""
    for number, node in enumerate(graph):
        node.order = number * _GAP


def remove(node: Node) -> None:
    """Take a node out of its graph. Its outputs must have no uses left.

    Raises:
        EngineError: an output is still used.
    """
    graph = node.graph
    for value in node.outputs:
        if value is None:
            continue
        if value.users or value.output_count:
            raise EngineError(f"{value.name!r} is still used, its producer {node.op} cannot be removed")
        del graph.values[value.name]
    for value in node.inputs:
        if value is not None:
            value.users.pop(node, None)
    if node.subgraphs:
        for subgraph in node.subgraphs.values():
            _release(subgraph)
        graph.owners.pop(node, None)
    before, after = previous_node(node), next_node(node)
    if before is None:
        graph.first = after
    else:
        before.next = after
    if after is None:
        graph.last = before
    else:
        after.prev = before
    node.removed = True
    graph._count -= 1
    if not graph.changed:
        mark_changed(graph)


def restore(node: Node, anchor: Node | None) -> None:
    """Undo `remove`: put a node back before the one that followed it."""
    node.removed = False
    insert_before(node, anchor)
    for subgraph in node.subgraphs.values():
        _retain(subgraph)


def _release(graph: Graph) -> None:
    """Drop the uses that a discarded subgraph makes of outer values."""
    for output in graph.outputs:
        if output.graph is not graph:
            output.output_count -= 1
    for node in graph:
        for value in node.inputs:
            if value is not None and value.graph is not graph:
                _drop_use(value, node)
        for subgraph in node.subgraphs.values():
            _release(subgraph)
        node.removed = True


def _retain(graph: Graph) -> None:
    """The inverse of `_release`."""
    for output in graph.outputs:
        if output.graph is not graph:
            output.output_count += 1
    node = graph.first
    while node is not None:
        node.removed = False
        for value in node.inputs:
            if value is not None and value.graph is not graph:
                value.users[node] = value.users.get(node, 0) + 1
        for subgraph in node.subgraphs.values():
            _retain(subgraph)
        node = node.next


def _drop_use(value: Value, node: Node) -> None:
    left = value.users[node] - 1
    if left:
        value.users[node] = left
    else:
        del value.users[node]


def set_input(node: Node, index: int, value: Value | None) -> None:
    """Let an input of a node read another value; None leaves it out."""
    while len(node.inputs) <= index:
        node.inputs.append(None)
    old = node.inputs[index]
    if old is value:
        return
    if old is not None:
        _drop_use(old, node)
    node.inputs[index] = value
    if value is not None:
        value.users[node] = value.users.get(node, 0) + 1
    touch(node)


def drop_trailing_inputs(node: Node) -> None:
    """Shorten the input list by its trailing absent entries."""
    while node.inputs and node.inputs[-1] is None:
        node.inputs.pop()
    touch(node)


def touch(node: Node) -> None:
    """Note that a node must be written anew."""
    node.changed = True
    mark_changed(node.graph)


def rename_node(node: Node, name: str) -> None:
    """Give a node another name."""
    node.name = name
    touch(node)


def set_attrs(node: Node, changes: dict[str, Any]) -> None:
    """Set attributes; None removes one."""
    attrs = dict(node.attrs)
    for name, value in changes.items():
        if value is None:
            attrs.pop(name, None)
        else:
            attrs[name] = value
    node._attrs = attrs
    node._tensor = None
    node.attrs_changed = True
    touch(node)


def replace_uses(old: Value, new: Value) -> list[Node]:
    """Let every reader of `old` read `new`; graph outputs stay as they are. Returns the readers."""
    users = new.users
    for node, count in old.users.items():
        node.inputs = [new if value is old else value for value in node.inputs]
        users[node] = users.get(node, 0) + count
        node.changed = True
        if not node.graph.changed:
            mark_changed(node.graph)
    readers = list(old.users)
    old.users.clear()
    return readers


def take_over_output(old: Value, new: Value) -> None:
    """Put `new` out in the place of `old`, under the name of `old`; `old` gets a fresh name."""
    graph = old.graph
    name = old.name
    for owner in _graphs_putting_out(old):
        owner.outputs = [new if value is old else value for value in owner.outputs]
        mark_changed(owner)
    new.output_count += old.output_count
    old.output_count = 0
    info = old.info
    rename(old, graph.model.fresh_name(name))
    rename(new, name)
    new.info = info
    old.info = None


@dataclass(slots=True)
class OutputState:
    """What `take_over_output` changes, to be put back."""

    old: Value
    new: Value
    names: tuple[str, str]
    counts: tuple[int, int]
    infos: tuple[onnx.ValueInfoProto | None, onnx.ValueInfoProto | None]
    outputs: list[tuple[Graph, list[Value]]]

    @classmethod
    def of(cls, old: Value, new: Value) -> OutputState:
        """The state before the change."""
        return cls(
            old, new, (old.name, new.name), (old.output_count, new.output_count), (old.info, new.info),
            [(graph, graph.outputs) for graph in _graphs_putting_out(old)],
        )  # fmt: skip

    def restore(self) -> None:
        """Put it back."""
        for graph, outputs in self.outputs:
            graph.outputs = outputs
        for value, count in zip((self.old, self.new), self.counts, strict=True):
            value.output_count = count
            value.graph.values.pop(value.name, None)
        for value, name, info in zip((self.old, self.new), self.names, self.infos, strict=True):
            rename(value, name)
            value.info = info


def _graphs_putting_out(value: Value) -> list[Graph]:
    if sum(out is value for out in value.graph.outputs) == value.output_count:
        return [value.graph]
    return [g for g in value.graph.model.graphs() if any(out is value for out in g.outputs)]


def rename(value: Value, name: str) -> None:
    """Give a value another name; whoever mentions it is written anew."""
    graph = value.graph
    if graph.values.get(value.name) is value:
        del graph.values[value.name]
    value.name = name
    value.info = None
    graph.values[name] = value
    if value.producer is not None:
        touch(value.producer)
    for node in value.users:
        touch(node)
    mark_changed(graph)


def swap_names(a: Value, b: Value) -> None:
    """Exchange the names, and what is declared under them, of two values of one graph."""
    name_a, name_b, info_a, info_b = a.name, b.name, a.info, b.info
    values = a.graph.values
    values.pop(name_a, None)
    values.pop(name_b, None)
    rename(a, name_b)
    rename(b, name_a)
    a.info, b.info = info_b, info_a


def add_initializer(graph: Graph, name: str, tensor: Tensor) -> Value:
    """A new initializer of a graph."""
    value = Value(name, graph)
    value.tensor = tensor
    graph.values[name] = value
    mark_changed(graph)
    return value


def remove_initializer(value: Value) -> None:
    """Drop an initializer that nothing uses and that is no graph input.

    Raises:
        EngineError: it is used, or it is part of the interface.
    """
    if value.users or value.output_count or value.is_input:
        raise EngineError(f"initializer {value.name!r} is used or an input, it cannot be removed")
    del value.graph.values[value.name]
    value.tensor = None
    mark_changed(value.graph)


def restore_initializer(value: Value, tensor: Tensor | None) -> None:
    """Undo `remove_initializer`."""
    value.tensor = tensor
    value.graph.values[value.name] = value
    mark_changed(value.graph)
