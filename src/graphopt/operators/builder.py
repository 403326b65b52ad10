"""What a view is written into."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

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


def with_operand(to: NodeBuilder, op_type: str, value: Value, other: Value | np.ndarray | None) -> Value:
    """An operator of two values; the first one as it is where the other is left out."""
    return value if other is None else to.op(op_type, value, other)
