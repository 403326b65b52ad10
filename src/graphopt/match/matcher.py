"""The matcher: each part of a pattern becomes a step, a closure that matches a value and calls its continuation.

A step gets the value, the match so far and its continuation. It succeeds only if the continuation does, so that choices
(the order of a commutative operator's inputs, an alternative) are backtracked if a later part fails. Matching operators
gives no reasons; once they match, `conditions` checks all other conditions, with reasons. If reasons are not needed,
the steps check constants, element types and ranks themselves, and stop at the first mismatch.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import TYPE_CHECKING, TypeAlias

from graphopt.ir.schema import is_commutative
from graphopt.match.factors import factors_of, number
from graphopt.match.makers import CONSTANTS, STORED
from graphopt.match.pattern import Apply, Const, Either, Opt, Output, Pattern, Product, Rest, Scalar, Var
from graphopt.match.result import Match

if TYPE_CHECKING:
    from graphopt.ir import Node, Value

Next: TypeAlias = "Callable[[], bool]"
Step: TypeAlias = "Callable[[Value | None, Match, Next], bool]"
Inputs: TypeAlias = "Callable[[list[Value | None], Match, Next], bool]"


class Steps:
    """Builds the steps of a pattern; an operator that is used twice has a single step.

    Args:
        silent: whether values are rejected without a reason.
    """

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._of: dict[object, Step] = {}
        self._inputs: dict[Apply, Callable[[Node, Match, Next], bool]] = {}

    def of(self, pattern: Pattern | None) -> Step:
        """The step of a pattern; the pattern None matches an absent input."""
        step = self._of.get(pattern)
        if step is None:
            step = self._of[pattern] = self._make(pattern)
        return step

    def _make(self, pattern: Pattern | None) -> Step:
        if pattern is None:
            return _absent
        if isinstance(pattern, Output):
            return self._output(pattern)
        if isinstance(pattern, Either):
            return self._either(pattern)
        if isinstance(pattern, Product):
            return self._product(pattern)
        if isinstance(pattern, Opt):
            return self._optional(pattern)
        assert isinstance(pattern, (Var, Const, Scalar))
        leaf = _leaf_in_turn(pattern, self._meant(pattern), 0, None)
        return lambda value, m, go: leaf([value], m, go)

    def _output(self, output: Output) -> Step:
        apply, index, name = output.apply, output.index, output.name
        ops = frozenset(apply.ops)
        inputs = self._inputs_of(apply)
        kinds = [(key, attr.among) for key, attr in apply.attrs.items() if attr.among is not None]

        def step(value: Value | None, m: Match, go: Next) -> bool:
            node = value.producer if value is not None else None
            if value is None or node is None or node.op not in ops or value.index != index:
                return False
            if kinds and any(node.attr(key) not in among for key, among in kinds):
                return False
            owners = m.owners
            owner = owners[node] if node in owners else None  # noqa: SIM401 -- no call
            if owner is not None and owner is not apply:
                return False
            if name:
                m.bound[name] = value
            owners[node] = apply
            if go() if owner is not None else inputs(node, m, go):
                return True
            if owner is None:
                del owners[node]
            if name:
                m.bound.pop(name, None)
            return False

        return step

    def _inputs_of(self, apply: Apply) -> Callable[[Node, Match, Next], bool]:
        found = self._inputs.get(apply)
        if found is None:
            found = self._inputs[apply] = self._make_inputs(apply)
        return found

    def _make_inputs(self, apply: Apply) -> Callable[[Node, Match, Next], bool]:
        written = self._in_turn(apply.inputs)
        swaps = len(apply.inputs) == 2 and not apply.ordered and any(map(is_commutative, apply.ops))
        swapped = self._in_turn(apply.inputs[::-1]) if swaps else None
        silent = self._silent
        made = [(at, ops) for at, pattern in enumerate(apply.inputs) if (ops := makers_of(pattern, silent=silent))]
        made_swapped = [(1 - at, ops) for at, ops in made] if swaps else []

        def step(node: Node, m: Match, go: Next) -> bool:
            inputs = node.inputs
            if (not made or _are_made(inputs, made)) and written(inputs, m, go):
                return True
            if swapped is None or not is_commutative(node.op) or inputs[0] is inputs[-1]:
                return False
            return (not made_swapped or _are_made(inputs, made_swapped)) and swapped(inputs, m, go)

        return step

    def _in_turn(self, patterns: tuple[Pattern | None, ...], first: int = 0) -> Inputs:
        """Match inputs in order, from position `first` on."""
        if first == len(patterns):
            return lambda inputs, m, go: go()
        pattern = patterns[first]
        if isinstance(pattern, Rest):
            return _rest(pattern, first)
        rest = self._in_turn(patterns, first + 1) if first + 1 < len(patterns) else None
        if isinstance(pattern, (Var, Const, Scalar)):
            return _leaf_in_turn(pattern, self._meant(pattern), first, rest)
        step = self.of(pattern)

        def fit(inputs: list[Value | None], m: Match, go: Next) -> bool:
            try:
                value = inputs[first]
            except IndexError:
                value = None
            return step(value, m, go if rest is None else lambda: rest(inputs, m, go))

        return fit

    def _meant(self, pattern: Var | Const | Scalar) -> Callable[[Value], bool] | None:
        """The check of a leaf's conditions without a reason; None unless silent, or if it has none."""
        if self._silent:
            return _is_meant(pattern)
        if isinstance(pattern, Var) or not pattern.silent:
            return None
        return _is_meant(Const() if isinstance(pattern, Const) else Scalar())

    def _either(self, either: Either) -> Step:
        steps = [self.of(pattern) for pattern in either.patterns]

        def fit(value: Value | None, m: Match, go: Next) -> bool:
            for step in steps:  # noqa: SIM110 -- called at every node
                if step(value, m, go):
                    return True
            return False

        return fit

    def _optional(self, optional: Opt) -> Step:
        step = self.of(optional.pattern)
        return lambda value, m, go: go() if value is None else step(value, m, go)

    def _product(self, product: Product) -> Step:
        orders = [self._in_turn(order) for order in dict.fromkeys(permutations(product.factors))]
        count = len(product.factors)
        needs = [ops for factor in product.factors if (ops := makers_of(factor, silent=self._silent))]

        def step(value: Value | None, m: Match, go: Next) -> bool:
            node = value.producer if value is not None else None
            if node is None or node.op not in PRODUCTS or value is not node.outputs[0] or node in m.owners:
                return False
            found = factors_of(node)
            if len(found.values) != count or (needs and not _are_among(found.values, needs)):
                return False
            m.owners.update(dict.fromkeys(found.nodes, product))
            m.products.append((found, product.scale))
            values: list[Value | None] = list(found.values)
            for order in orders:
                if order(values, m, go):
                    return True
            m.products.pop()
            for each in found.nodes:
                del m.owners[each]
            return False

        return step


PRODUCTS = ("Mul", "Div", "Pow")
"""Operators that may be the root of a `Product`; `Neg` may only be inside."""


def makers_of(part: Pattern | None, *, silent: bool = False) -> frozenset[str]:
    """The operators one of which must produce a value; empty for any.

    Args:
        part: the pattern of the value.
        silent: whether a value that is not constant is rejected without a reason.
    """
    if isinstance(part, Output):
        return frozenset(part.apply.ops)
    if isinstance(part, Either):
        makers = [makers_of(each, silent=silent) for each in part.patterns]
        return frozenset().union(*makers) if all(makers) else frozenset()
    if isinstance(part, (Const, Scalar)) and (silent or part.silent):
        return CONSTANTS
    return frozenset()


def _are_made(inputs: list[Value | None], made: list[tuple[int, frozenset[str]]]) -> bool:
    """Whether inputs are produced by the required operators: a cheap check before binding."""
    for at, ops in made:
        try:
            value = inputs[at]
        except IndexError:
            return False
        if value is None or (value.producer.op if value.producer is not None else STORED) not in ops:
            return False
    return True


def _are_among(values: list[Value], needs: list[frozenset[str]]) -> bool:
    """Whether the required operators produce some of these values, in any order."""
    makers = {value.producer.op if value.producer is not None else STORED for value in values}
    for ops in needs:  # noqa: SIM110 -- called at every product
        if makers.isdisjoint(ops):
            return False
    return True


def _absent(value: Value | None, m: Match, go: Next) -> bool:
    return value is None and go()


def _is_meant(pattern: Var | Const | Scalar) -> Callable[[Value], bool] | None:
    """The check of a leaf's conditions on a value; None if it matches any value."""
    if isinstance(pattern, Const):
        return lambda value: value.constant_tensor is not None
    if isinstance(pattern, Scalar):
        if pattern.value is None:
            return lambda value: number(value, "fiub") is not None
        fits = pattern.fits
        return lambda value: (found := number(value, "fiub")) is not None and fits(found)
    dtypes, ranks = pattern.dtypes, pattern.ranks
    if dtypes is None and ranks is None:
        return None
    return lambda value: (dtypes is None or value.dtype in dtypes) and (ranks is None or value.rank in ranks)


def _leaf_in_turn(
    pattern: Var | Const | Scalar, is_meant: Callable[[Value], bool] | None, first: int, rest: Inputs | None
) -> Inputs:
    """Match an input with a `Var`, `Const` or `Scalar`, which binds one value; then the inputs after it."""

    def fit(inputs: list[Value | None], m: Match, go: Next) -> bool:
        try:
            value = inputs[first]
        except IndexError:
            return False
        if value is None or (is_meant is not None and not is_meant(value)):
            return False
        values = m.values
        if pattern in values:
            return values[pattern] is value and (go() if rest is None else rest(inputs, m, go))
        values[pattern] = value
        if go() if rest is None else rest(inputs, m, go):
            return True
        del values[pattern]
        return False

    return fit


def _rest(pattern: Rest, first: int) -> Inputs:
    def fit(inputs: list[Value | None], m: Match, go: Next) -> bool:
        values = inputs[first:]
        if len(values) < pattern.least or None in values:
            return False
        m.bound[pattern.name] = tuple(values)
        if go():
            return True
        m.bound.pop(pattern.name, None)
        return False

    return fit
