"""Changes that can be taken back: each primitive of `ir.edit` together with its inverse."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from graphopt.ir import Graph, Node, Tensor, Value, edit


class Journal:
    """Applies primitive changes and remembers how to undo them.

    A pass that fails is undone as a whole: `mark()` before it, `undo(mark)` when it raised.
    """

    def __init__(self) -> None:
        self._inverses: list[Callable[[], object]] = []

    def mark(self) -> int:
        """The present position, to return to."""
        return len(self._inverses)

    def undo(self, mark: int) -> None:
        """Take back every change since `mark`, last first."""
        while len(self._inverses) > mark:
            self._inverses.pop()()

    def forget(self) -> None:
        """Accept all changes so far."""
        self._inverses.clear()

    def insert_before(self, node: Node, anchor: Node | None) -> None:
        """Link a new node; its subgraphs come with it, and use what they capture."""
        edit.restore(node, anchor)
        self._inverses.append(partial(edit.remove, node))

    def remove(self, node: Node) -> None:
        """Unlink a node whose outputs have no uses."""
        anchor = edit.next_node(node)
        edit.remove(node)
        self._inverses.append(partial(edit.restore, node, anchor))

    def set_input(self, node: Node, index: int, value: Value | None) -> None:
        """Let an input read another value."""
        before = list(node.inputs)
        edit.set_input(node, index, value)
        self._inverses.append(partial(_restore_inputs, node, before))

    def replace_uses(self, old: Value, new: Value) -> list[Node]:
        """Let all readers of `old` read `new`; returns them."""
        # The gate replaces these lists, it never changes them: no copies are needed.
        before = [node.inputs for node in old.users]
        readers = edit.replace_uses(old, new)
        self._inverses.append(partial(_restore_readers, readers, before))
        return readers

    def take_over_output(self, old: Value, new: Value) -> None:
        """Give the place and name of a graph output to another value."""
        state = edit.OutputState.of(old, new)
        edit.take_over_output(old, new)
        self._inverses.append(state.restore)

    def set_attrs(self, node: Node, changes: dict[str, Any]) -> None:
        """Set attributes; None removes one."""
        before: dict[str, Any] = {name: node.attrs.get(name) for name in changes}
        edit.set_attrs(node, changes)
        self._inverses.append(partial(edit.set_attrs, node, before))

    def rename_node(self, node: Node, name: str) -> None:
        """Give a node another name."""
        before = node.name
        edit.rename_node(node, name)
        self._inverses.append(partial(edit.rename_node, node, before))

    def add_initializer(self, graph: Graph, name: str, tensor: Tensor) -> Value:
        """A new initializer."""
        value = edit.add_initializer(graph, name, tensor)
        self._inverses.append(partial(edit.remove_initializer, value))
        return value

    def adopt_initializer(self, value: Value) -> None:
        """Take in an initializer that was built beforehand."""
        edit.restore_initializer(value, value.tensor)
        self._inverses.append(partial(edit.remove_initializer, value))

    def swap_names(self, old: Value, new: Value) -> None:
        """Exchange the names of two values of one graph."""
        edit.swap_names(old, new)
        self._inverses.append(partial(edit.swap_names, old, new))

    def remove_initializer(self, value: Value) -> None:
        """Drop an unused initializer."""
        tensor = value.tensor
        edit.remove_initializer(value)
        self._inverses.append(partial(edit.restore_initializer, value, tensor))

    def remove_function(self, function: Graph) -> None:
        """Drop a model-local function."""
        functions = function.model.functions
        position = functions.index(function)
        del functions[position]
        self._inverses.append(partial(functions.insert, position, function))

    def set_type(self, value: Value, value_type: Any) -> None:
        """Note what is known of a value's type."""
        self._inverses.append(partial(setattr, value, "type", value.type))
        value.type = value_type


def _restore_inputs(node: Node, inputs: list[Value | None]) -> None:
    for index in range(len(node.inputs)):
        edit.set_input(node, index, None)
    for index, value in enumerate(inputs):
        edit.set_input(node, index, value)
    del node.inputs[len(inputs) :]


def _restore_readers(readers: list[Node], before: list[list[Value | None]]) -> None:
    for node, inputs in zip(readers, before, strict=True):
        _restore_inputs(node, inputs)
