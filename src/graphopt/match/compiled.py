"""`CompiledPattern`: a traced and checked pattern, with the function that matches it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import lru_cache, partial, reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from graphopt.errors import Decline, PassError
from graphopt.ir.forms import MOVED
from graphopt.ir.schema import op_versions
from graphopt.match import conditions
from graphopt.match.makers import STORED, Ways, strictest
from graphopt.match.matcher import PRODUCTS, Step, Steps, makers_of
from graphopt.match.pattern import Apply, Const, Either, OpBuilder, Output, Pattern, Product, Rest, Scalar, Var
from graphopt.match.result import Match
from graphopt.match.text import parts, pattern_text

if TYPE_CHECKING:
    from graphopt.ir import Node

PatternFunction: TypeAlias = Callable[..., Any]
Attempt: TypeAlias = tuple[tuple[frozenset[str], ...], Step]
"""The operators required among the producers of the inputs, and the first step."""


class CompiledPattern:
    """A pattern, matched at its root, the last operator.

    Args:
        function: takes the builder `op` and any number of variables, named like its parameters, and returns the root:
            an operator, alternatives, a product, or the outputs of one operator.
        name: the name of the rule, for messages.

    Attributes:
        roots: the operators of the root, by which it is dispatched.

    Raises:
        PassError: the pattern does not make sense.

    Examples:
        >>> pattern = CompiledPattern(lambda op, x: op.Relu(op.Add(x, 0.0)), "relu_of_add")
        >>> print(pattern)
        Relu (Add (x, 0))
        >>> pattern.roots
        ('Relu',)
    """

    __slots__ = ("_attempts", "_ends", "name", "names", "root", "roots")

    def __init__(self, function: PatternFunction, name: str) -> None:
        self.name = name
        variables = _variables(function)
        returned = function(OpBuilder(), *variables)
        self.root: Pattern = returned[0] if isinstance(returned, tuple) else returned
        self.names: dict[str, list[Pattern | Apply]] = {}
        for part in _walk(self.root, set()):
            for bound, what in _names(part):
                self._bind(bound, what)
        for variable in variables:
            if variable.name not in self.names:
                raise self._wrong(f"its parameter {variable.name} is never used, so nothing would bind it")
        self._ends: dict[str, list[Output | Product]] = {}
        for last in _ends(self.root):
            for op in last.apply.ops if isinstance(last, Output) else PRODUCTS[:2]:
                self._ends.setdefault(op, []).append(last)
        self._attempts: dict[bool, dict[str, list[Attempt]]] = {}
        self.roots = tuple(self._ends)
        if not self.roots:
            raise self._wrong("it has no operator that it ends in")

    def ways(self, op: str, *, silent: bool) -> Ways:
        """The operators that must produce the inputs of a root; empty for any.

        Args:
            op: an operator of the root.
            silent: whether reasons for a mismatch are not needed, so that constants are required as well.
        """
        ways = tuple([needs for needs, _ in self._attempts_at(op, silent=silent)])
        return ways if all(ways) else ()

    def _attempts_at(self, op: str, *, silent: bool) -> list[Attempt]:
        made = self._attempts.get(silent)
        if made is None:
            steps = Steps(silent=silent)
            made = self._attempts[silent] = {
                key: [(_needs(last, silent=silent), steps.of(last)) for last in ends]
                for key, ends in self._ends.items()
            }
        return made[op]

    def match(
        self, node: Node, accept: Callable[[Match], object] | None = None, *, silent: bool = False
    ) -> Match:  # fmt: skip
        """The match at a node.

        Args:
            node: the root.
            accept: a further condition, which raises `Decline` if it does not hold; then other matches are tried.
            silent: whether reasons for a mismatch are not needed, so that a value is rejected as soon as it is visited.

        Raises:
            Decline: without a reason if operators do not match, with one if another condition does not hold.
        """
        declined: list[Decline] = []
        attempts = self._attempts_at(node.op, silent=silent)
        several = attempts[1:]
        for needs, step in attempts:
            if several and _lack(needs, node):  # with a single alternative, the driver has checked it
                continue
            m = Match(node, self.names)
            if step(node.outputs[0], m, partial(_last, m, declined, accept)):
                return m
        if not declined:
            raise Decline
        raise next((reason for reason in declined if reason.args), declined[0])

    def validate(self) -> None:
        """Check that the standard has the operators and attributes of the pattern; for tests.

        Raises:
            PassError: it does not.
        """
        for part in _walk(self.root, set()):
            if isinstance(part, Output):
                self._check_operator(part.apply)

    def _bind(self, name: str, part: Pattern | Apply) -> None:
        if name in Match.__slots__ or not name.isidentifier():
            raise self._wrong(f"{name!r} is not a usable name")
        named = self.names.setdefault(name, [])
        if part not in named:
            named.append(part)

    def _check_operator(self, apply: Apply) -> None:
        for key in apply.ops:
            versions = op_versions(key)
            if not versions:
                if "::" not in key:
                    raise self._wrong(f"the ONNX standard has no operator {key}{_close(key)}")
                continue
            known = {name for info in versions for name in info.attributes} | set(MOVED.get(key, ()))
            for name in apply.attrs:
                if name not in known:
                    raise self._wrong(f"{key} has no attribute {name}")

    def _wrong(self, problem: str) -> PassError:
        return PassError(f"the pattern of {self.name}: {problem}")

    @property
    def required(self) -> frozenset[frozenset[str]]:
        """Groups of operators: a graph must have one of each, or the pattern does not match anywhere in it."""
        return _required(self.root)

    def __str__(self) -> str:
        return pattern_text(self.root)

    def __repr__(self) -> str:
        return f"CompiledPattern({self.name!r}, roots={self.roots})"


def _parameters(function: PatternFunction) -> list[str]:
    """The names of a function's parameters, without `self`; plain ones are read directly, in a tenth of the time."""
    plain = getattr(function, "__func__", function)
    code = getattr(plain, "__code__", None)
    if code is None or hasattr(plain, "__wrapped__") or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        return list(inspect.signature(function).parameters)
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return list(names[1:] if plain is not function else names)


def _variables(function: PatternFunction) -> list[Var]:
    """The variables for the parameters after the first; the default of a parameter states its kind."""
    names = _parameters(function)[1:]
    defaults = getattr(getattr(function, "__func__", function), "__defaults__", None) or ()
    kinds = (*[Var()] * (len(names) - len(defaults)), *defaults)
    return [Var(name, dtype=kind.dtypes, rank=kind.ranks) for name, kind in zip(names, kinds, strict=True)]


def compile_pattern(function: PatternFunction, name: str = "pattern") -> CompiledPattern:
    """Trace a pattern function and check what it returns; see `CompiledPattern`."""
    return CompiledPattern(function, name)


def _names(part: Pattern) -> Iterator[tuple[str, Pattern | Apply]]:
    """The names that a part of a pattern binds, each with the part."""
    if isinstance(part, (Var, Const, Scalar, Rest)) and part.name:
        yield part.name, part
    elif isinstance(part, Product) and isinstance(part.scale, str):
        yield part.scale, part
    elif isinstance(part, Output):
        if part.name:
            yield part.name, part
        if part.apply.bind:
            yield part.apply.bind, part.apply
        yield from ((attr.name, part) for attr in part.apply.attrs.values() if attr.name)


def _last(m: Match, declined: list[Decline], accept: Callable[[Match], object] | None) -> bool:
    """The last step, after all operators match: check all other conditions; if one fails, backtrack."""
    bound = dict(m.bound)
    try:
        conditions.check(m)
        if accept is not None:
            accept(m)
    except Decline as reason:
        declined.append(reason)
        m.bound.clear()
        m.bound.update(bound)
        return False
    return True


def _ends(pattern: Pattern | None) -> Iterator[Output | Product]:
    """The operators and products that may be the root of a pattern."""
    if isinstance(pattern, (Output, Product)):
        yield pattern
    elif isinstance(pattern, Either):
        for each in pattern.patterns:
            yield from _ends(each)


def _walk(pattern: Pattern | None, seen: set[object]) -> Iterator[Pattern]:
    """Every part of a pattern, once."""
    if pattern is not None and pattern not in seen:
        seen.add(pattern)
        yield pattern
        for part in parts(pattern):
            yield from _walk(part, seen)


def _needs(last: Output | Product, *, silent: bool) -> tuple[frozenset[str], ...]:
    """Groups of operators one of which must produce an input of the root: rejects almost every node."""
    inputs, more = (last.apply.inputs, ()) if isinstance(last, Output) else (last.factors, PRODUCTS)
    return tuple([ops.union(more) for part in inputs if (ops := makers_of(part, silent=silent))])


def _required(part: Pattern | None) -> frozenset[frozenset[str]]:
    """Groups of operators one of each of which is present wherever a part of a pattern matches."""
    if isinstance(part, Either):
        makers = makers_of(part)
        own = {makers} if makers and STORED not in makers else set()
        return strictest(reduce(_one_of, map(_required, part.patterns)) | own)
    if not isinstance(part, (Output, Product)):
        return frozenset()
    last = {frozenset(part.apply.ops)} if isinstance(part, Output) else set()
    return strictest(frozenset(last).union(*map(_required, parts(part))))


def _one_of(one: frozenset[frozenset[str]], two: frozenset[frozenset[str]]) -> frozenset[frozenset[str]]:
    """The groups that are present wherever one of two alternatives matches."""
    return strictest(frozenset([each | other for each in one for other in two]))


def _lack(needs: tuple[frozenset[str], ...], node: Node) -> bool:
    """Whether a node has no input from one of the groups of operators."""
    makers = {v.producer.op if v.producer is not None else STORED for v in node.inputs if v is not None}
    for ops in needs:  # noqa: SIM110 -- a generator would cost more than the comparisons
        if makers.isdisjoint(ops):
            return True
    return False


def _close(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, _standard_ops(), n=1)
    return f"; did you mean {near[0]}?" if near else ""


@lru_cache(maxsize=1)
def _standard_ops() -> frozenset[str]:
    from onnx import defs

    return frozenset(schema.name for schema in defs.get_all_schemas() if not schema.domain)
