"""The interface through which views write operators."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from graphopt.ir import Graph, Node, Value


class NodeBuilder(Protocol):
    """Builds operators in a graph, as `graphopt.rewrite.Rewriter` does."""

    @property
    def graph(self) -> Graph:
        """The graph of new nodes."""
        ...

    def op(self, op_type: str, *inputs: Any, domain: str = "", name: str | None = None, **attrs: Any) -> Value:
        """Build an operator and return its output."""
        ...

    def again(self, node: Node, *inputs: Any, **changed: Any) -> Value:
        """Build a node like `node` with other operands and some changed attributes, and return its only output."""
        ...

    def outputs(
        self, count: int, op_type: str, *inputs: Any, domain: str = "", name: str | None = None, **attrs: Any
    ) -> tuple[Value, ...]:
        """Build an operator and return its first `count` outputs."""
        ...


def with_operand(to: NodeBuilder, op_type: str, value: Value, other: Value | np.ndarray | None) -> Value:
    """Build an operator of two values; returns the first one if the other is None."""
    return value if other is None else to.op(op_type, value, other)
