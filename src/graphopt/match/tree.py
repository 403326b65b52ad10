"""What a pattern is made of: `Var`, `Const`, `Attr`, `Opt`, `Rest`, and the nodes and outputs a trace records.

Patterns are compared by identity: the same object used twice stands for the same value of the graph.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from graphopt.errors import PassError

Shape: TypeAlias = tuple[int | None, ...] | Literal["scalar", "auto"] | None
Literals: TypeAlias = bool | int | float | list[Any] | np.ndarray[Any, Any] | np.generic


class Var:
    """Any value: an input of the pattern. It may come from an outer graph, and may be a constant.

    Args:
        name: what the rule calls it.
        dtype: the element type it must have (`onnx.TensorProto.FLOAT`), or several to choose from.
        rank: the number of axes it must have, or several to choose from.
    """

    __slots__ = ("dtypes", "name", "ranks")

    def __init__(
        self, name: str, *, dtype: int | Collection[int] | None = None, rank: int | Collection[int] | None = None
    ) -> None:
        self.name = name
        self.dtypes = _choices(dtype)
        self.ranks = _choices(rank)

    @property
    def constraints(self) -> tuple[object, ...]:
        """What tells it from a `Var` that fits anything."""
        return (self.dtypes, self.ranks)


class Const:
    """A constant: an initializer that no caller can override, or the output of a `Constant` node.

    Args:
        name: what the rule calls it; None for a literal that is only compared.
        value: what it must hold. Floats are compared in float64, after the expected value was rounded to the
            constant's own type; integers and booleans must be equal.
        rel: relative tolerance for floats.
        abs: absolute tolerance for floats.
        shape: "scalar" (rank 0, or all ones where the operator's other inputs are known to have that many axes, so
            that the result's shape does not hang on it), a tuple (None fits any size), None for any shape, every
            element then being compared. "auto" is "scalar" for a number, the value's own shape for a list or an
            array, and any shape without a value.
        dtype: the element type it must have, or several to choose from.
        max_bytes: the largest size that is looked at.
    """

    __slots__ = ("abs", "dtypes", "max_bytes", "name", "rel", "shape", "value")

    def __init__(
        self,
        name: str | None = None,
        value: Literals | None = None,
        *,
        rel: float = 1e-6,
        abs: float = 0.0,
        shape: Shape = "auto",
        dtype: int | Collection[int] | None = None,
        max_bytes: int | None = None,
    ) -> None:
        self.name = name
        self.value = None if value is None else np.asarray(value)
        self.rel = rel
        self.abs = abs
        self.shape = _default_shape(self.value) if shape == "auto" else shape
        self.dtypes = _choices(dtype)
        self.max_bytes = max_bytes

    @property
    def constraints(self) -> tuple[object, ...]:
        """What tells it from a `Const` that fits any constant."""
        value = None if self.value is None else (self.value.dtype, self.value.tobytes(), self.rel, self.abs)
        return (value, self.shape, self.dtypes, self.max_bytes)

    @property
    def is_demanding(self) -> bool:
        """Whether being a constant is not enough."""
        return any(constraint is not None for constraint in self.constraints)


class _Unset:
    def __repr__(self) -> str:
        return "unset"


UNSET = _Unset()


class Attr:
    """An attribute of an operator: as written at the node, else the schema's default at the graph's opset.

    `Attr()` allows anything, `Attr("eps")` binds the value to a name, `Attr(equals=0)` compares it. An attribute that
    the operator does not have at the graph's opset satisfies `equals`.

    Args:
        name: what the rule calls it.
        equals: the value it must have; a plain `axis=1` in a pattern means `axis=Attr(equals=1)`. None means that
            there must be no value: not written, and without a default.
        default: the value to bind when the node has none and the schema neither; without it such a node does not match.
    """

    __slots__ = ("default", "equals", "name")

    def __init__(self, name: str | None = None, *, equals: Any = UNSET, default: Any = UNSET) -> None:
        self.name = name
        self.equals = equals if equals is UNSET else _attribute_value(equals)
        self.default = default if default is UNSET else _attribute_value(default)


class Opt:
    """An input that may be absent; if present it must fit.

    Args:
        pattern: what it must fit.
    """

    __slots__ = ("pattern",)

    def __init__(self, pattern: Var | Const | OutputPattern | Literals) -> None:
        self.pattern = pattern if isinstance(pattern, (Var, Const, OutputPattern)) else Const(value=pattern)


class Rest:
    """All the inputs from here on, of a variadic operator; stands last.

    Args:
        name: what the rule calls them, to be read with `Match.values`.
        min: the fewest there may be.
    """

    __slots__ = ("min", "name")

    def __init__(self, name: str, *, min: int = 0) -> None:
        self.name = name
        self.min = min


class NodePattern:
    """One operator application in a pattern, as the trace recorded it.

    Attributes:
        ops: the dispatch keys it may have, more than one for `AnyOf`.
        inputs: one pattern for each input; None where there must be none.
        attrs: the attributes that are mentioned.
        bind: the name of the node.
        outputs: the outputs that are listed, in order.
        shared: whether others may use the outputs too.
        other_attrs: whether attributes that are not mentioned may hold anything.
        ordered: whether the inputs of a commutative operator must stand as written.
        where: file and line of the call.
    """

    __slots__ = ("attrs", "bind", "inputs", "ops", "ordered", "other_attrs", "outputs", "shared", "where")

    def __init__(
        self, ops: tuple[str, ...], inputs: tuple[Slot, ...], attrs: dict[str, Attr], *, where: str = "",
        bind: str | None = None, outputs: tuple[str | None, ...] = (None,), shared: bool = False,
        other_attrs: bool = False, ordered: bool = False,
    ) -> None:  # fmt: skip
        self.ops = ops
        self.inputs = inputs
        self.attrs = attrs
        self.bind = bind
        self.outputs = tuple(OutputPattern(self, i, name) for i, name in enumerate(outputs))
        self.shared = shared
        self.other_attrs = other_attrs
        self.ordered = ordered
        self.where = where


class OutputPattern:
    """An output of a `NodePattern`; what a call such as `op.Relu(x)` returns."""

    __slots__ = ("index", "name", "node")

    def __init__(self, node: NodePattern, index: int, name: str | None) -> None:
        self.node = node
        self.index = index
        self.name = name


Leaf: TypeAlias = Var | Const
Slot: TypeAlias = Var | Const | OutputPattern | Opt | Rest | None
Pattern: TypeAlias = OutputPattern | tuple[OutputPattern, ...]


@dataclass(frozen=True, slots=True)
class Tree:
    """A traced pattern.

    Attributes:
        name: whose pattern it is, for messages.
        where: file and line of the function.
        variables: the parameters of the function.
        recorded: every operator call, in the order of the trace.
        outputs: what the function returned; the node of the first is the root.
    """

    name: str
    where: str
    variables: tuple[Var, ...]
    recorded: tuple[NodePattern, ...]
    outputs: tuple[OutputPattern, ...]

    @property
    def root(self) -> NodePattern:
        """The node that is dispatched."""
        return self.outputs[0].node

    def roots(self) -> tuple[NodePattern, ...]:
        """The nodes whose outputs the function returned."""
        return tuple(dict.fromkeys(output.node for output in self.outputs))

    def nodes(self, absent: Collection[Opt] = ()) -> tuple[NodePattern, ...]:
        """The nodes that belong to the pattern when some optional inputs are absent; the root first."""
        found: dict[NodePattern, None] = {}
        waiting = list(self.roots())
        while waiting:
            node = waiting.pop(0)
            if node not in found:
                found[node] = None
                waiting += [p.node for p in present(node, absent) if isinstance(p, OutputPattern)]
        return tuple(found)


def present(node: NodePattern, absent: Collection[Opt] = ()) -> Iterator[Var | Const | OutputPattern | Rest]:
    """The patterns of a node's inputs, with `Opt` taken off, without those that are absent."""
    for slot in node.inputs:
        if slot is None or slot in absent:
            continue
        yield slot.pattern if isinstance(slot, Opt) else slot


def _choices(given: int | Collection[int] | None) -> frozenset[int] | None:
    if given is None:
        return None
    return frozenset({given} if isinstance(given, int) else given)


def _default_shape(value: np.ndarray[Any, Any] | None) -> Shape:
    if value is None:
        return None
    return value.shape or "scalar"


def _attribute_value(given: Any) -> Any:
    """The value as the view decodes it: tuples for lists, floats rounded to the float32 that ONNX stores."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, (bool, int, np.integer)):
        return int(given)
    if isinstance(given, (float, np.floating)):
        return float(np.float32(given))
    if isinstance(given, (list, tuple)):
        return tuple(_attribute_value(v) for v in given)
    raise PassError(f"an attribute is compared with numbers, strings and lists of them, not a {type(given).__name__}")
