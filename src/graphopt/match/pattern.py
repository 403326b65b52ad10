"""The parts of patterns, and the builder with which a pattern function applies operators.

Patterns are compared by identity: an object that is used twice matches the same value of the graph or, if it is an
operator, a duplicate of the same computation.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import EllipsisType
from typing import Any, TypeAlias

from onnx import TensorProto

from graphopt.errors import PassError
from graphopt.match.factors import close


class Pattern:
    """A part of a pattern that matches a value."""

    __slots__ = ()


class Var(Pattern):
    """Any value: an input of the pattern. It may be captured, and may be a constant.

    Args:
        name: the name that it binds.
        dtype: the required element type (`onnx.TensorProto.FLOAT`), or several alternatives.
        rank: the required rank, or several alternatives.
    """

    __slots__ = ("dtypes", "name", "ranks")

    def __init__(
        self, name: str = "", *, dtype: int | Collection[int] | None = None, rank: int | Collection[int] | None = None
    ) -> None:
        self.name = name
        self.dtypes = _choices(dtype)
        self.ranks = _choices(rank)


class Const(Pattern):
    """A constant: an initializer that is not overridable, or the output of a `Constant` node.

    Args:
        name: the name that it binds.
        silent: whether an operand that is not constant is no near miss, but another computation: for example, an `Add`
            of two activations where a bias is expected.
    """

    __slots__ = ("name", "silent")

    def __init__(self, name: str = "", *, silent: bool = False) -> None:
        self.name = name
        self.silent = silent


class Scalar(Pattern):
    """A constant of one element that does not increase the rank of the result of the operator that reads it.

    A plain number in a pattern means `Scalar(value=number)`, with `exact` as an operand of `Pow`.

    Args:
        name: the name that the number binds.
        value: the required number; floats up to the precision of exporters, a relative 1e-5.
        silent: whether an operand that is no constant number is no near miss, but another computation.
        exact: whether the number must be equal exactly.
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
        """Whether a constant equals the required number, if any."""
        return self.value is None or found == self.value or (not self.exact and close(found, self.value))


class Opt(Pattern):
    """An input that may be absent; if present it must match.

    Args:
        pattern: its pattern.
    """

    __slots__ = ("pattern",)

    def __init__(self, pattern: Operand) -> None:
        self.pattern = as_pattern(pattern)


class Rest(Pattern):
    """All remaining inputs of a variadic operator; must be last.

    Args:
        name: the name that the tuple of them binds.
        least: the least number of them.
    """

    __slots__ = ("least", "name")

    def __init__(self, name: str, *, least: int = 0) -> None:
        self.name = name
        self.least = least


class Either(Pattern):
    """One of several patterns; the first that matches.

    Args:
        *patterns: the alternatives.
    """

    __slots__ = ("patterns",)

    def __init__(self, *patterns: Operand) -> None:
        self.patterns = tuple(as_pattern(pattern) for pattern in patterns)


class Product(Pattern):
    """A product in any order of computation, by `Mul`, `Div` by constants, `Pow` by 2 or 3, and `Neg`.

    Args:
        *factors: the patterns of the factors; the same pattern twice means a square.
        scale: the product of all constants of one element in it: a number, or a name that it binds. Default 1.
    """

    __slots__ = ("factors", "scale")

    def __init__(self, *factors: Operand, scale: float | str = 1.0) -> None:
        self.factors = tuple(as_pattern(factor) for factor in factors)
        self.scale = scale


class Unset:
    """The marker of a setting that is not given."""

    def __repr__(self) -> str:
        return "unset"


UNSET = Unset()


class Attr:
    """An attribute of an operator, or an operand that is an attribute in older opsets (axes, bounds, pads).

    Its value is that of the node, else the schema's default at the graph's opset. `Attr()` matches any value,
    `Attr("eps")` binds it to a name, `Attr(equals=0)`, or a plain 0, compares it. An attribute that the operator does
    not have at the graph's opset satisfies `equals`.

    Args:
        name: the name that it binds.
        equals: the required value.
        among: the accepted values; any other value is no near miss, but another computation.
        default: the value to bind if neither the node nor the schema has one.
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
    """The application of an operator in a pattern.

    Attributes:
        ops: its dispatch keys, several for `AnyOf`.
        inputs: one pattern per input; None for an input that must be absent.
        is_open: whether it may have further inputs and attributes: `...` was given last.
        attrs: the attributes that are mentioned.
        bind: the name that the node binds.
        shared: whether the outputs may have other readers; the operator then stays.
        other_attrs: whether attributes that are not mentioned may have any value.
        ordered: whether the inputs of a commutative operator must be in the given order.
    """

    __slots__ = ("attrs", "bind", "inputs", "is_open", "ops", "ordered", "other_attrs", "shared")

    def __init__(
        self, ops: tuple[str, ...], inputs: Sequence[Input], attrs: dict[str, Any], *, bind: str = "",
        shared: bool = False, other_attrs: bool = False, ordered: bool = False,
    ) -> None:  # fmt: skip
        self.ops = ops
        self.is_open = bool(inputs) and inputs[-1] is ...
        # an exponent near 2 is not 2: the larger or smaller the base, the more its power differs from its square
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
    """An output of an operator: the result of `op.Relu(x)`."""

    __slots__ = ("apply", "index", "name")

    def __init__(self, apply: Apply, index: int, name: str = "") -> None:
        self.apply = apply
        self.index = index
        self.name = name


Operand: TypeAlias = Pattern | float | int
Input: TypeAlias = Operand | EllipsisType | None


def as_pattern(given: Operand, *, exact: bool = False) -> Pattern:
    """Convert to a pattern; a plain number becomes a `Scalar`, exact or not."""
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
"""The default of a pattern's parameter that must be float32: `def pattern(self, op, x=FLOAT32)`."""


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

    def AnyOf(self, *op_types: str) -> OpCall:  # noqa: N802 -- used like an operator's name
        """One of several operators, with the same inputs and outputs."""
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
        """Apply the operator; for several outputs, use `outputs`.

        Args:
            *inputs: patterns, or numbers to compare with; None for an input that must be absent; `...` at the end for
                any further inputs and attributes, which the rule reads through a view.
            _bind: the name that the node binds.
            _shared: the outputs may have other readers.
            _other_attrs: attributes that are not mentioned may have any value, not only their defaults.
            _ordered: do not swap the inputs of a commutative operator.
            **attrs: `Attr`, or the required value of the attribute.
        """
        apply = Apply(
            self._ops, inputs, attrs, bind=_bind, shared=_shared, other_attrs=_other_attrs, ordered=_ordered
        )  # fmt: skip
        return Output(apply, 0)

    def outputs(self, names: Sequence[str], *inputs: Input, **settings: Any) -> tuple[Output, ...]:
        """Apply the operator, with its first outputs; outputs that are not listed must be unused.

        Args:
            names: the names that the outputs bind.
            *inputs: as in a call.
            **settings: as in a call.
        """
        apply = self(*inputs, **settings).apply
        return tuple(Output(apply, index, name) for index, name in enumerate(names))
