"""What a view is written into."""

from __future__ import annotations

from typing import Any, Protocol

from graphopt.ir import Graph, Node, Value


class NodeBuilder(Protocol):
    """Makes operators in a graph, as `graphopt.rewrite.Rewriter` does."""

    @property
    def graph(self) -> Graph:
        """The graph that new nodes are for."""
        ...

    def op(self, op_type: str, *inputs: Any, domain: str = "", name: str | None = None, **attrs: Any) -> Value:
        """The output of a new operator."""
        ...

    def again(self, node: Node, *inputs: Any, **changed: Any) -> Value:
        """The one output of the operator of a node on other operands, with some of its attributes changed."""
        ...

    def outputs(
        self, count: int, op_type: str, *inputs: Any, domain: str = "", name: str | None = None, **attrs: Any
    ) -> tuple[Value, ...]:
        """So many outputs of a new operator."""
        ...
