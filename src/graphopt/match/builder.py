"""`OpBuilder` and `trace`: a pattern is a function that is called once and records the operators it applies."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, overload

import numpy as np

from graphopt.errors import GraphoptError, PassError
from graphopt.match.tree import Attr, Const, Literals, NodePattern, Opt, OutputPattern, Pattern, Rest, Slot, Tree, Var

PatternFunction: TypeAlias = Callable[..., Pattern]
Input: TypeAlias = Slot | Literals

_PACKAGE = str(Path(__file__).parent)


class OpBuilder:
    """The `op` of a pattern function: `op.Conv(x, Const("w"))` records one operator.

    Examples:
        >>> op = OpBuilder()
        >>> fused = op.domain("com.microsoft").FusedConv(Var("x"), Const("w"), activation=Attr("activation"))
        >>> either = op.AnyOf("Relu", "Sigmoid")(fused, _bind="activation")
    """

    __slots__ = ("_domain", "recorded")

    def __init__(self, domain: str = "", recorded: list[NodePattern] | None = None) -> None:
        self._domain = domain
        self.recorded: list[NodePattern] = [] if recorded is None else recorded

    def domain(self, name: str) -> OpBuilder:
        """The builder for operators of another domain."""
        return OpBuilder("" if name == "ai.onnx" else name, self.recorded)

    def AnyOf(self, *op_types: str) -> OpCall:  # noqa: N802 -- stands where an operator name stands
        """Any of several operators, with the same inputs and outputs."""
        if not op_types:
            raise PassError(f"{_caller()}: AnyOf needs at least one operator")
        return OpCall(self, tuple(self._key(op_type) for op_type in op_types))

    def __getattr__(self, op_type: str) -> OpCall:
        if op_type.startswith("_"):
            raise AttributeError(op_type)
        return OpCall(self, (self._key(op_type),))

    def _key(self, op_type: str) -> str:
        return f"{self._domain}::{op_type}" if self._domain and "::" not in op_type else op_type


class OpCall:
    """An operator waiting for its inputs."""

    __slots__ = ("_builder", "_ops")

    def __init__(self, builder: OpBuilder, ops: tuple[str, ...]) -> None:
        self._builder = builder
        self._ops = ops

    @overload
    def __call__(
        self, *inputs: Input, _outputs: Sequence[str], _bind: str | None = None, _shared: bool = False,
        _other_attrs: bool = False, _ordered: bool = False, **attrs: Any,
    ) -> tuple[OutputPattern, ...]: ...  # fmt: skip
    @overload
    def __call__(
        self, *inputs: Input, _outputs: None = None, _bind: str | None = None, _shared: bool = False,
        _other_attrs: bool = False, _ordered: bool = False, **attrs: Any,
    ) -> OutputPattern: ...  # fmt: skip
    def __call__(
        self, *inputs: Input, _outputs: Sequence[str] | None = None, _bind: str | None = None, _shared: bool = False,
        _other_attrs: bool = False, _ordered: bool = False, **attrs: Any,
    ) -> OutputPattern | tuple[OutputPattern, ...]:  # fmt: skip
        """Record the operator.

        Args:
            *inputs: patterns, or literals to compare with; None for an input that must be absent.
            _outputs: names for the outputs; returns a tuple of them. Outputs that are not listed must be unused.
            _bind: a name for the node.
            _shared: others may use the outputs too.
            _other_attrs: attributes that are not mentioned may hold anything, not only their defaults.
            _ordered: do not swap the inputs of a commutative operator.
            **attrs: `Attr`, or a value that the attribute must have.
        """
        where, name = _caller(), "/".join(self._ops)
        for key in attrs:
            if key.startswith("_"):
                known = "_outputs, _bind, _shared, _other_attrs, _ordered"
                raise PassError(f"{where}: {name} has an unknown option {key!r}; there are {known}")
        node = NodePattern(
            self._ops,
            tuple(_slot(given, f"{where}: input {i} of {name}") for i, given in enumerate(inputs)),
            {key: given if isinstance(given, Attr) else Attr(equals=given) for key, given in attrs.items()},
            where=where, bind=_bind, outputs=(None,) if _outputs is None else tuple(_outputs),
            shared=_shared, other_attrs=_other_attrs, ordered=_ordered,
        )  # fmt: skip
        self._builder.recorded.append(node)
        return node.outputs[0] if _outputs is None else node.outputs


def trace(function: PatternFunction, name: str | None = None) -> Tree:
    """Call a pattern function once and return what it recorded.

    Args:
        function: takes the builder and any number of variables, which are called as its parameters are.
        name: whose pattern it is, for messages; the function's own name by default.

    Raises:
        PassError: the function raised, or returned something that is no pattern.
    """
    name = name or str(getattr(function, "__qualname__", "pattern"))
    where = _position(function)
    parameters = list(inspect.signature(function).parameters)
    if not parameters:
        raise PassError(f"{where}: the pattern of {name} takes no parameters; the first is the builder `op`")
    variables = tuple(Var(parameter) for parameter in parameters[1:])
    builder = OpBuilder()
    try:
        returned = function(builder, *variables)
    except GraphoptError:
        raise
    except Exception as error:
        raise PassError(f"{where}: the pattern of {name} raised {type(error).__name__}: {error}") from error
    outputs = returned if isinstance(returned, tuple) else (returned,)
    if not outputs or not all(isinstance(output, OutputPattern) for output in outputs):
        kinds = ", ".join(type(output).__name__ for output in outputs) or "nothing"
        raise PassError(f"{where}: the pattern of {name} has no fixed root: it must return operators, not {kinds}")
    return Tree(name, where, variables, tuple(builder.recorded), outputs)


def _slot(given: Any, what: str) -> Slot:
    """The pattern for an input; literals become constants to compare with."""
    if given is None:
        return None
    if isinstance(given, (Var, Const, OutputPattern, Opt, Rest)):
        return given
    if isinstance(given, (bool, int, float, list, np.ndarray, np.generic)):
        return Const(value=given)
    hint = "; name the one output that is meant" if isinstance(given, tuple) else ""
    raise PassError(f"{what} is a {type(given).__name__}, expected a pattern or a literal{hint}")


def _caller() -> str:
    """File and line of the innermost frame outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _position(function: PatternFunction) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else "<unknown>"
