"""Changes that can be taken back: each primitive of `ir.edit` together with its inverse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphopt.ir import Graph, Model, Node, Value, edit
from graphopt.ir.order import next_node

_REORDERING = frozenset({edit.restore_initializer, edit.restore_labels})
"""Inverses after which initializers may stand in another order than before."""


class Journal:
    """Applies primitive changes and remembers how to undo them.

    Attributes:
        log: how to undo each change, in order.
        undone: how often changes were taken back.

    A pass that fails is undone as a whole: `mark()` before it, `undo(mark)` when it raised. The log is the model's:
    what `ir.edit` marks as changed, and the names that are given out, are in it too. An entry is a function with its
    arguments and holds as much as it changed, never a whole list of inputs: many nodes may feed one.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.log = model._undo
        self.undone = 0
        self._forgotten = 0

    def mark(self) -> int:
        """The present position, to return to."""
        return len(self.log)

    def state(self) -> int:
        """A number that grows with every change."""
        return self._forgotten + len(self.log)

    def undo(self, mark: int) -> None:
        """Take back every change since `mark`, last first."""
        log, reordered = self.log, False
        self.undone += len(log) > mark
        while len(log) > mark:
            inverse, *arguments = log.pop()
            left = len(log)
            inverse(*arguments)
            del log[left:]  # an inverse may note changes of its own
            reordered = reordered or inverse in _REORDERING
        for graph in self._model.graphs() if reordered else ():
            edit.reorder_initializers(graph)

    def forget(self) -> None:
        """Accept all changes so far."""
        self._forgotten += len(self.log)
        self.log.clear()

    def insert_before(self, node: Node, anchor: Node | None) -> None:
        """Link a new node; its subgraphs come with it, and use what they capture."""
        edit.restore(node, anchor)
        self.log.append((edit.remove, node))

    def remove(self, node: Node) -> None:
        """Unlink a node whose outputs have no uses."""
        anchor = next_node(node)
        edit.remove(node)
        self.log.append((edit.restore, node, anchor))

    def set_input(self, node: Node, index: int, value: Value | None) -> None:
        """Let an input read another value."""
        length, before = len(node.inputs), node.input(index)
        edit.set_input(node, index, value)
        if len(node.inputs) != length:
            self.log.append((edit.shorten_inputs, node, length))
        self.log.append((edit.set_input, node, index, before))

    def replace_uses(self, old: Value, new: Value) -> list[Node]:
        """Let all readers of `old` read `new`; returns them."""
        moved = edit.replace_uses(old, new)
        self.log.append((edit.restore_uses, old, new, moved))
        return [node for node, _ in moved]

    def take_over_output(self, old: Value, new: Value) -> None:
        """Give the place and name of a graph output to another value."""
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
        """Take in an initializer that was built beforehand."""
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
        """Note what is known of a value's type."""
        edit.set_type(value, value_type)

    def import_domain(self, domain: str, version: int) -> None:
        """Import an operator domain in every graph that does not yet."""
        edit.import_domain(self._model, domain, version)

    def set_opset(self, graph: Graph, domain: str, version: int) -> None:
        """Let the main graph or a function read its operators as another version has them."""
        edit.set_opset(graph, domain, version)

    def set_ir_version(self, version: int) -> None:
        """State another IR version."""
        edit.set_ir_version(self._model, version)

    def cut_inputs(self, node: Node, least: int) -> None:
        """Cut off inputs that are left out at the end, down to a number of them."""
        length = len(node.inputs)
        while length > least and node.inputs[length - 1] is None:
            length -= 1
        if length < len(node.inputs):
            self.log.append((edit.extend_inputs, node, len(node.inputs)))
            edit.shorten_inputs(node, length)
            edit.touch(node)

    def set_metadata(self, key: str, text: str) -> None:
        """State something in the model's metadata."""
        edit.set_metadata(self._model, key, text)
