"""`Match`: the result of matching a pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphopt.errors import PassError

if TYPE_CHECKING:
    from graphopt.ir import Node, Value
    from graphopt.match.factors import Factors
    from graphopt.match.pattern import Apply, Pattern, Product


class Match:
    """The nodes and values that match a pattern, by the names that the pattern binds.

    `m.x` is the value of a `Var` or `Const`, or of a named output; `m.epsilon` the number of a `Scalar`, or the value
    of an `Attr`; `m.conv` the node of a call with `_bind`; `m.parts` the values of a `Rest`. Names of an optional part
    are None if it is absent.

    Attributes:
        root: the node that was dispatched.
        owners: every matched node, the root first, with the part of the pattern that it matches.
        values: the value of each leaf of the pattern.
        products: the flattened products, each with its required scale, or the name of that.
        bound: named objects that are not leaves.
    """

    __slots__ = ("_names", "bound", "owners", "products", "root", "values")

    def __init__(self, root: Node, names: dict[str, list[Pattern | Apply]]) -> None:
        self.root = root
        self.owners: dict[Node, Apply | Product] = {}
        self.values: dict[Pattern, Value] = {}
        self.products: list[tuple[Factors, float | str]] = []
        self.bound: dict[str, Any] = {}
        self._names = names

    def __getattr__(self, name: str) -> Any:
        if name in self.bound:
            return self.bound[name]
        parts = self._names.get(name)
        if parts is None:
            known = ", ".join(sorted(self._names)) or "nothing"
            raise PassError(f"the pattern binds nothing to {name!r}; it binds {known}")
        for part in parts:
            found: Any = self.values.get(part)  # type: ignore[arg-type]  # keys are compared by identity
            if found is not None:
                return found
            for node, owner in self.owners.items():
                if owner is part:
                    return node
        return None

    def __repr__(self) -> str:
        return f"Match({', '.join(repr(node) for node in self.owners)})"
