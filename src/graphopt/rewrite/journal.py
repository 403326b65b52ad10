"""The undo log: each primitive change of `ir.edit` together with its inverse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphopt.ir import Graph, Model, Node, Value, edit
from graphopt.ir.order import next_node

_REORDERING = frozenset({edit.restore_initializer, edit.restore_labels})
"""Inverses that may change the order of initializers."""


class Journal:
    """Applies primitive changes and records their inverses.

    Attributes:
        log: the inverse of each change, in order.
        undone: how often changes were undone.

    A pass that raises is undone as a whole: `mark()` before it, `undo(mark)` after it raised. The log belongs to the
    model, and includes the dirty marks of `ir.edit` and generated names. An entry is a function with its arguments, of
    the size of the change, never a whole list of inputs: a node may have many.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.log = model._undo
        self.undone = 0
        self._forgotten = 0

    def mark(self) -> int:
        """The present position in the log, for `undo`."""
        return len(self.log)

    def state(self) -> int:
        """A number that grows with every change."""
        return self._forgotten + len(self.log)

    def undo(self, mark: int) -> None:
        """Undo every change since `mark`, the last one first."""
        log, reordered = self.log, False
        self.undone += len(log) > mark
        while len(log) > mark:
            inverse, *arguments = log.pop()
            left = len(log)
            inverse(*arguments)
            del log[left:]  # an inverse may log changes itself
            reordered = reordered or inverse in _REORDERING
        for graph in self._model.graphs() if reordered else ():
            edit.reorder_initializers(graph)

    def forget(self) -> None:
        """Accept all changes so far."""
        self._forgotten += len(self.log)
        self.log.clear()

    def insert_before(self, node: Node, anchor: Node | None) -> None:
        """Link a new node with its subgraphs, whose captures count as uses."""
        edit.restore(node, anchor)
        self.log.append((edit.remove, node))

    def remove(self, node: Node) -> None:
        """Unlink a node whose outputs have no uses."""
        anchor = next_node(node)
        edit.remove(node)
        self.log.append((edit.restore, node, anchor))

    def set_input(self, node: Node, index: int, value: Value | None) -> None:
        """Make an input read another value."""
        length, before = len(node.inputs), node.input(index)
        edit.set_input(node, index, value)
        if len(node.inputs) != length:
            self.log.append((edit.shorten_inputs, node, length))
        self.log.append((edit.set_input, node, index, before))

    def replace_uses(self, old: Value, new: Value) -> list[Node]:
        """Make all readers of `old` read `new`; returns them."""
        moved = edit.replace_uses(old, new)
        self.log.append((edit.restore_uses, old, new, moved))
        return [node for node, _ in moved]

    def take_over_output(self, old: Value, new: Value) -> None:
        """Make another value the graph output in place of `old`, with its name."""
        state = edit.OutputState.of(old, new)
        self.log.append((state.restore, edit.take_over_output(old, new)))

    def set_attrs(self, node: Node, changes: Mapping[str, Any]) -> None:
        """Set attributes; None removes one."""
        before, changed = node._attrs, node.attrs_changed
        edit.set_attrs(node, changes)
        self.log.append((edit.restore_attrs, node, before, changed))

    def rename_node(self, node: Node, name: str) -> None:
        """Give a node another name."""
        before = node.name
        edit.rename_node(node, name)
        self.log.append((edit.rename_node, node, before))

    def adopt_initializer(self, value: Value) -> None:
        """Add an initializer that was built before."""
        edit.add_initializer(value)
        self.log.append((edit.remove_initializer, value))

    def swap_names(self, old: Value, new: Value) -> None:
        """Exchange the names of two values of one graph."""
        values = (old, new)
        labels = (edit.Label.of(old), edit.Label.of(new))
        edit.swap_names(old, new)
        self.log.append((edit.restore_labels, values, labels))

    def remove_initializer(self, value: Value) -> None:
        """Drop an unused initializer."""
        tensor = value.tensor
        edit.remove_initializer(value)
        self.log.append((edit.restore_initializer, value, tensor))

    def remove_function(self, function: Graph) -> None:
        """Drop a model-local function."""
        functions = self._model.functions
        position = functions.index(function)
        list.__delitem__(functions, position)
        self.log.append((list.insert, functions, position, function))

    def set_type(self, value: Value, value_type: Any) -> None:
        """Set the type of a value."""
        edit.set_type(value, value_type)

    def import_domain(self, domain: str, version: int) -> None:
        """Import an operator domain in every graph that does not import it yet."""
        edit.import_domain(self._model, domain, version)

    def set_opset(self, graph: Graph, domain: str, version: int) -> None:
        """Set the version of a domain in the main graph or a function."""
        edit.set_opset(graph, domain, version)

    def set_ir_version(self, version: int) -> None:
        """Set the IR version."""
        edit.set_ir_version(self._model, version)

    def cut_inputs(self, node: Node, least: int) -> None:
        """Remove omitted inputs at the end, down to `least` inputs."""
        length = len(node.inputs)
        while length > least and node.inputs[length - 1] is None:
            length -= 1
        if length < len(node.inputs):
            self.log.append((edit.extend_inputs, node, len(node.inputs)))
            edit.shorten_inputs(node, length)
            edit.touch(node)

    def set_metadata(self, key: str, text: str) -> None:
        """Set an entry of the model's metadata."""
        edit.set_metadata(self._model, key, text)
