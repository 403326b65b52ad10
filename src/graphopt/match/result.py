"""`Match`: what a pattern found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from graphopt.errors import ModelError, PassError

if TYPE_CHECKING:
    from graphopt.ir import Node, Value

T = TypeVar("T")


class Match:
    """The nodes and values that fitted a pattern, by the names the pattern gave them.

    Attributes:
        nodes: every node that matched, the root first.
        outputs: the values that the pattern returned, in order; None where a listed output is left out.
    """

    __slots__ = ("_attrs", "_nodes", "_values", "nodes", "outputs")

    def __init__(
        self,
        nodes: tuple[Node, ...],
        outputs: tuple[Value | None, ...],
        values: Mapping[str, Value | tuple[Value, ...] | None],
        named_nodes: Mapping[str, Node | None],
        attrs: Mapping[str, Any],
    ) -> None:
        self.nodes = nodes
        self.outputs = outputs
        self._values = values
        self._nodes = named_nodes
        self._attrs = attrs

    @property
    def root(self) -> Node:
        """The node that was dispatched: the last operator of the pattern."""
        return self.nodes[0]

    def has(self, name: str) -> bool:
        """Whether an optional part of the pattern was there."""
        for bound in (self._values, self._nodes, self._attrs):
            if name in bound:
                return bound[name] is not None
        raise self._unknown(name)

    def value(self, name: str) -> Value:
        """The value of a `Var`, a `Const` or a listed output."""
        found = self._values.get(name)
        if found is None or isinstance(found, tuple):
            raise self._unknown(name)
        return found

    def values(self, name: str) -> tuple[Value, ...]:
        """The values of a `Rest`."""
        found = self._values.get(name)
        if not isinstance(found, tuple):
            raise self._unknown(name)
        return found

    def const(self, name: str) -> np.ndarray:
        """The contents of a constant, read-only."""
        value = self.value(name)
        array = value.const()
        if array is None:
            if value.is_const:
                raise ModelError(f"the contents of constant {value.name!r} cannot be read")
            raise PassError(f"{name} is {value.name!r}, which is not a constant: match it with Const({name!r})")
        return array

    @overload
    def attr(self, name: str) -> Any: ...
    @overload
    def attr(self, name: str, kind: type[T]) -> T: ...
    def attr(self, name: str, kind: type[Any] = object) -> Any:
        """The value of an `Attr`.

        Args:
            name: what the pattern calls it.
            kind: the Python type it has: `int`, `float`, `str` or `tuple`.
        """
        if name not in self._attrs:
            raise self._unknown(name)
        found = self._attrs[name]
        if not isinstance(found, kind):
            raise PassError(f"attribute {name} is {found!r}, expected {kind.__name__}")
        return found

    def node(self, name: str) -> Node:
        """The node of a call with `_bind`."""
        found = self._nodes.get(name)
        if found is None:
            raise self._unknown(name)
        return found

    def _unknown(self, name: str) -> PassError:
        values, nodes, attrs = self._values, self._nodes, self._attrs
        if name in values and values[name] is None:
            return PassError(f"{name} is optional and absent in this match: ask has({name!r}) first")
        kinds = {"value": values, "node": nodes, "attr": attrs}
        known = ", ".join(f"{kind} {key}" for kind, bound in kinds.items() for key in bound) or "none"
        return PassError(f"the pattern binds nothing of that kind to {name!r}; bound are: {known}")

    def __repr__(self) -> str:
        return f"Match({', '.join(repr(node) for node in self.nodes)})"
