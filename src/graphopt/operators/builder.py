"""What a view is written into."""

from __future__ import annotations

from typing import Any, Literal, Protocol, overload

from graphopt.ir import Graph, Value


class Builder(Protocol):
    """Makes operators in a graph, as `graphopt.rewrite.Rewriter` does."""

    @property
    def graph(self) -> Graph:
        """The graph that new nodes are for."""
        ...

    @overload
    def op(
        self, op_type: str, *inputs: Any, domain: str = "", outputs: Literal[1] = 1, name: str | None = None,
        **attrs: Any,
    ) -> Value: ...  # fmt: skip

    @overload
    def op(
        self, op_type: str, *inputs: Any, domain: str = "", outputs: int, name: str | None = None, **attrs: Any
    ) -> Any: ...

    def op(
        self, op_type: str, *inputs: Any, domain: str = "", outputs: int = 1, name: str | None = None, **attrs: Any
    ) -> Any:
        """A new operator; returns its output, or a tuple of several."""
        ...
