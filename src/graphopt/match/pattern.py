"""What patterns are made of, and the builder that a pattern function applies operators with.

Patterns are compared by identity: the same object used twice stands for the same value of the graph or, where it is an
operator, for the same computation written twice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import EllipsisType
from typing import Any, TypeAlias

from onnx import TensorProto

from graphopt.errors import PassError
from graphopt.match.factors import close


class Pattern:
    """Anything that a value may fit."""

    __slots__ = ()


class Var(Pattern):
    """Any value: an input of the pattern. It may come from an outer graph, and may be a constant.

    Args:
        name: what the rule calls it.
        dtype: the element type it must have (`onnx.TensorProto.FLOAT`), or several to choose from.
        rank: the number of axes it must have, or several to choose from.
    """

    __slots__ = ("dtypes", "name", "ranks")

    def __init__(
        self, name: str = "", *, dtype: int | Collection[int] | None = None, rank: int | Collection[int] | None = None
    ) -> None:
        self.name = name
        self.dtypes = _choices(dtype)
        self.ranks = _choices(rank)


class Const(Pattern):
    """A constant: an initializer that no caller can override, or the output of a `Constant` node.

    Args:
        name: what the rule calls it.
        silent: whether an operand that is not constant is another computation, not a near miss: the other summand of an
            `Add`, say, in place of which a bias is looked for.
    """

    __slots__ = ("name", "silent")

    def __init__(self, name: str = "", *, silent: bool = False) -> None:
        self.name = name
        self.silent = silent


class Scalar(Pattern):
    """A constant of one element that adds no axes to the result of the operator that reads it.

    A plain number in a pattern means `Scalar(value=number)`, and as an operand of `Pow` an exact one.

    Args:
        name: what the rule calls the number.
        value: the number it must be; floats up to the digits that exporters write, a relative 1e-5.
        silent: whether an operand that is no constant number is another computation, not a near miss.
        exact: whether it must be that very number.
    """

    __slots__ = ("exact", "name", "silent", "value")

    def __init__(
        self, name: str = "", *, value: float | None = None, silent: bool = False, exact: bool = False
    ) -> None:
        self.name = name
        self.value = value
        self.silent = silent
        self.exact = exact

    def fits(self, found: float) -> bool:
        """Whether a constant is the number, where one is stated."""
        return self.value is None or found == self.value or (not self.exact and close(found, self.value))


class Opt(Pattern):
    """An input that may be absent; if present it must fit.

    Args:
        pattern: what it must fit.
    """

    __slots__ = ("pattern",)

    def __init__(self, pattern: Operand) -> None:
        self.pattern = as_pattern(pattern)


class Rest(Pattern):
    """All inputs from here on, of a variadic operator; stands last.

    Args:
        name: what the rule calls the tuple of them.
        least: the fewest there may be.
    """

    __slots__ = ("least", "name")

    def __init__(self, name: str, *, least: int = 0) -> None:
        self.name = name
        self.least = least


class Either(Pattern):
    """One of several patterns; the first that fits.

    Args:
        *patterns: the alternatives.
    """

    __slots__ = ("patterns",)

    def __init__(self, *patterns: Operand) -> None:
        self.patterns = tuple(as_pattern(pattern) for pattern in patterns)


class Product(Pattern):
    """A product, in whatever order it is computed, by `Mul`, `Div` by constants, `Pow` by 2 or 3, and `Neg`.

    Args:
        *factors: what is multiplied; the same pattern twice stands for a square.
        scale: the product of all constants of one element in it: a number, or a name for it. 1 when left out.
    """

    __slots__ = ("factors", "scale")

    def __init__(self, *factors: Operand, scale: float | str = 1.0) -> None:
        self.factors = tuple(as_pattern(factor) for factor in factors)
        self.scale = scale


class Unset:
    """Stands for a setting that is not given."""

    def __repr__(self) -> str:
        return "unset"


UNSET = Unset()


class Attr:
    """An attribute of an operator, or an operand that older opsets state as one (axes, bounds, pads).

    As written at the node, else the schema's default at the graph's opset. `Attr()` allows anything, `Attr("eps")`
    binds the value to a name, `Attr(equals=0)`, or a plain 0, compares it. An attribute that the operator does not have
    at the graph's opset satisfies `equals`.

    Args:
        name: what the rule calls it.
        equals: the value it must have.
        among: the values that make it this operator; with another one it is another computation, not a near miss.
        default: the value to bind when the node has none and the schema neither.
    """

    __slots__ = ("among", "default", "equals", "name")

    def __init__(
        self, name: str = "", *, equals: Any = UNSET, among: Collection[Any] | None = None, default: Any = None
    ) -> None:
        self.name = name
        self.among = among
        self.equals = tuple(equals) if isinstance(equals, list) else equals
        self.default = default


class Apply:
    """One operator application in a pattern.

    Attributes:
        ops: the dispatch keys it may have, more than one for `AnyOf`.
        inputs: one pattern for each input; None where there must be none.
        is_open: whether it may read and state more, in any form: `...` stands last.
        attrs: the attributes that are mentioned.
        bind: the name of the node.
        shared: whether others may read the outputs too; the operator then stays.
        other_attrs: whether attributes that are not mentioned may hold anything.
        ordered: whether the inputs of a commutative operator must stand as written.
    """

    __slots__ = ("attrs", "bind", "inputs", "is_open", "ops", "ordered", "other_attrs", "shared")

    def __init__(
        self, ops: tuple[str, ...], inputs: Sequence[Input], attrs: dict[str, Any], *, bind: str = "",
        shared: bool = False, other_attrs: bool = False, ordered: bool = False,
    ) -> None:  # fmt: skip
        self.ops = ops
        self.is_open = bool(inputs) and inputs[-1] is ...
        # an exponent next to 2 is not 2: the larger or smaller the number, the further it is from its square
        exact = "Pow" in ops
        self.inputs = tuple(
            None if given is None else as_pattern(given, exact=exact) for given in inputs if given is not ...
        )
        self.attrs = {key: given if isinstance(given, Attr) else Attr(equals=given) for key, given in attrs.items()}
        self.bind = bind
        self.shared = shared
        self.other_attrs = other_attrs or self.is_open
        self.ordered = ordered or self.is_open


class Output(Pattern):
    """An output of an operator: what `op.Relu(x)` gives."""

    __slots__ = ("apply", "index", "name")

    def __init__(self, apply: Apply, index: int, name: str = "") -> None:
        self.apply = apply
        self.index = index
        self.name = name


Operand: TypeAlias = Pattern | float | int
Input: TypeAlias = Operand | EllipsisType | None


def as_pattern(given: Operand, *, exact: bool = False) -> Pattern:
    """A pattern; a plain number becomes a `Scalar` to compare with, exactly or not."""
    if isinstance(given, Pattern):
        return given
    if isinstance(given, (int, float)):
        return Scalar(value=given, exact=exact)
    raise PassError(f"an operand of a pattern is a {type(given).__name__}, expected a pattern or a number")


def _choices(given: int | Collection[int] | None) -> frozenset[int] | None:
    if given is None:
        return None
    return frozenset({given} if isinstance(given, int) else given)


FLOAT32 = Var(dtype=TensorProto.FLOAT)
"""The default of a parameter of a pattern that is to be of float32: `def pattern(self, op, x=FLOAT32)`."""


class OpBuilder:
    """The `op` of a pattern function: `op.Conv(x, Const("w"))` is one operator.

    Args:
        domain: the domain of its operators.

    Examples:
        >>> op = OpBuilder()
        >>> fused = op.domain("com.microsoft").FusedConv(Var("x"), Const("w"), activation=Attr("activation"))
        >>> either = op.AnyOf("Relu", "Sigmoid")(fused, _bind="activation")
    """

    __slots__ = ("_domain",)

    def __init__(self, domain: str = "") -> None:
        self._domain = domain

    def domain(self, name: str) -> OpBuilder:
        """The builder for operators of another domain."""
        return OpBuilder(name)

    def AnyOf(self, *op_types: str) -> OpCall:  # noqa: N802 -- stands where an operator's name stands
        """Any of several operators, with the same inputs and outputs."""
        return OpCall(tuple(self._key(op_type) for op_type in op_types))

    def __getattr__(self, op_type: str) -> OpCall:
        if op_type.startswith("_"):
            raise AttributeError(op_type)
        return OpCall((self._key(op_type),))

    def _key(self, op_type: str) -> str:
        return f"{self._domain}::{op_type}" if self._domain else op_type


class OpCall:
    """An operator waiting for its inputs."""

    __slots__ = ("_ops",)

    def __init__(self, ops: tuple[str, ...]) -> None:
        self._ops = ops

    def __call__(
        self, *inputs: Input, _bind: str = "", _shared: bool = False, _other_attrs: bool = False,
        _ordered: bool = False, **attrs: Any,
    ) -> Output:  # fmt: skip
        """The operator applied; an operator with several outputs is applied by `outputs`.

        Args:
            *inputs: patterns, or numbers to compare with; None for an input that must be absent; at the end `...` for
                whatever else it may read and state, which the rule reads through a view.
            _bind: a name for the node.
            _shared: others may read the outputs too.
            _other_attrs: attributes that are not mentioned may hold anything, not only their defaults.
            _ordered: do not swap the inputs of a commutative operator.
            **attrs: `Attr`, or a value that the attribute must have.
        """
        apply = Apply(
            self._ops, inputs, attrs, bind=_bind, shared=_shared, other_attrs=_other_attrs, ordered=_ordered
        )  # fmt: skip
        return Output(apply, 0)

    def outputs(self, names: Sequence[str], *inputs: Input, **settings: Any) -> tuple[Output, ...]:
        """The operator applied, for its first outputs; those that are not listed must be unused.

        Args:
            names: what the rule calls them.
            *inputs: as when it is called.
            **settings: as when it is called.
        """
        apply = self(*inputs, **settings).apply
        return tuple(Output(apply, index, name) for index, name in enumerate(names))
