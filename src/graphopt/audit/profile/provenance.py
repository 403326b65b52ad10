"""The original nodes that a node of an optimized model replaces."""

from __future__ import annotations

import re
from collections.abc import Iterable

from graphopt.ir import Model, Node, Value

NCHWC = "com.microsoft.nchwc"
_REORDERS = (f"{NCHWC}::ReorderInput", f"{NCHWC}::ReorderOutput")
_NOTHING = ("Identity", "Dropout")
_SUM_INPUT = 3


class Provenance:
    """Maps the main graph of an optimized model back to the original model.

    Optimizers keep the names of values that unfused nodes still read, and ONNX Runtime names blocked nodes after their
    outputs. A value with the name of an original value is an *anchor*. A node replaces the original nodes between its
    own anchor and the anchors of others.

    Attributes:
        before: the original.
        after: the optimized model.
    """

    def __init__(self, before: Model, after: Model) -> None:
        self.before, self.after = before, after
        self._computed: dict[str, Node] = {v.name: node for node in before.graph for v in node.outputs if v is not None}
        self._named = {node.name: node for node in before.graph if node.name}
        self._anchors: dict[Value, str | None] = {}
        for node in after.graph:
            for value in node.outputs:
                if value is not None:
                    self._anchors[value] = self._anchor(value, node)
        for node in after.graph:
            self._include_sum(node)
        self._stops = {name for name in self._anchors.values() if name is not None}

    def hidden(self, node: Node) -> bool:
        """Whether the optimizer inserted the node and it replaces no original: a reorder, a transpose, a cast."""
        if node.op in _REORDERS:
            return True
        if node.op_type not in ("Transpose", "Cast", "Reshape"):
            return False
        return (
            not any(v is not None and v.name in self._computed for v in node.outputs) and node.name not in self._named
        )

    def origins(self, node: Node) -> list[Node]:
        """The original nodes that a node replaces, in order; none for a hidden node."""
        if self.hidden(node):
            return []
        roots = [name for v in node.outputs if v is not None and (name := self._anchors.get(v)) is not None]
        own = set(roots)
        found: set[Node] = set()
        stack = [self._computed[name] for name in roots]
        while stack:
            origin = stack.pop()
            if origin in found:
                continue
            found.add(origin)
            for value in origin.inputs:
                producer = value.producer if value is not None else None
                if producer is None or value is None or value.is_const or producer.graph is not self.before.graph:
                    continue
                if value.name in self._stops and value.name not in own:
                    continue
                stack.append(producer)
        return sorted(found, key=lambda n: n.order)

    def anchor(self, node: Node) -> str | None:
        """The name of the original value that a node computes; for a hidden node the one that it forwards."""
        for value in node.outputs:
            if value is not None and self._anchors.get(value) is not None:
                return self._anchors[value]
        return None

    def _anchor(self, value: Value, node: Node) -> str | None:
        if value.name in self._computed:
            return value.name
        if node.op in _REORDERS or self.hidden(node):
            source = node.input(0)
            return self._anchors.get(source, source.name) if source is not None else None
        named = self._derived(value.name, node) or self._derived(node.name, node)
        if named is not None:
            return named
        for user in value.users:
            output = user.output(0)
            if user.op in _REORDERS and output is not None and output.name in self._computed:
                return output.name
        origin = self._named.get(node.name)
        if origin is not None:
            return next((v.name for v in origin.outputs if v is not None), None)
        return None

    def _derived(self, name: str, node: Node) -> str | None:
        """The original value from which a generated name is derived."""
        kind = re.escape(node.op_type.lower())
        found = re.fullmatch(rf"(.+?)(?:_nchwc|(?:_{kind})+(?:_\d+)?)", name)
        return found[1] if found is not None and found[1] in self._computed else None

    def _include_sum(self, node: Node) -> None:
        """A convolution with a fused addition replaces the addition, and the activation after it."""
        value, added = node.output(0), node.input(_SUM_INPUT)
        if node.op != f"{NCHWC}::Conv" or added is None:
            return
        other = self._anchors.get(added)
        own = self._anchors.get(value) if value is not None else None
        if value is None or own is None or other is None:
            return
        for user in self._users(own):
            names = {self._through_identities(v).name for v in user.inputs if v is not None}
            output = user.output(0)
            if user.op in ("Add", "Sum") and names == {own, other} and output is not None:
                self._anchors[value] = self._activated(output.name) if node.attrs.get("activation") else output.name
                return

    def _activated(self, name: str) -> str:
        users = self._users(name)
        output = users[0].output(0) if len(users) == 1 else None
        return output.name if output is not None else name

    def _users(self, name: str) -> list[Node]:
        """The readers of an original value, also through identities."""
        producer = self._computed.get(name)
        found: list[Node] = []
        stack = [v for v in (producer.outputs if producer is not None else ()) if v is not None and v.name == name]
        while stack:
            for user in stack.pop().users:
                if user.op in _NOTHING:
                    stack.extend(v for v in user.outputs[:1] if v is not None)
                else:
                    found.append(user)
        return found

    @staticmethod
    def _through_identities(value: Value) -> Value:
        while value.producer is not None and value.producer.op in _NOTHING and value.producer.inputs[0] is not None:
            value = value.producer.inputs[0]
        return value


def blocks(partitions: Iterable[Iterable[Iterable[Node]]]) -> dict[Node, int]:
    """Number the smallest groups of original nodes that no level splits.

    Args:
        partitions: for each level, the original nodes of each of its nodes.

    Returns:
        For each original node that occurs at some level, the number of its group, in the order of the original graph.
    """
    parent: dict[Node, Node] = {}

    def root(node: Node) -> Node:
        parent.setdefault(node, node)
        while parent[node] is not node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for groups in partitions:
        for group in groups:
            members = list(group)
            for member in members:
                parent[root(member)] = root(members[0])
    numbers: dict[Node, int] = {}
    for node in sorted(parent, key=lambda n: n.order):
        numbers.setdefault(root(node), len(numbers))
    return {node: numbers[root(node)] for node in parent}
