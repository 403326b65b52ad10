"""How a pattern is matched: each part becomes a step, a closure that tries a value and then goes on.

A step gets the value, the match so far and what comes after it. It fits only if all that follows fits, so that a choice
(the order of a commutative operator's inputs, an alternative) is taken back and made otherwise when a later part fails.
The walk over the operators is silent; once they fit, `conditions` looks at what else must hold, with a reason. Where
nobody asks for reasons the walk looks at constants, element types and ranks itself, ending at the first that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import TYPE_CHECKING, TypeAlias

from graphopt.ir.schema import is_commutative
from graphopt.match.factors import close, factors_of, number
from graphopt.match.pattern import Apply, Const, Either, Opt, Output, Pattern, Product, Rest, Scalar, Var
from graphopt.match.result import Match

if TYPE_CHECKING:
    from graphopt.ir import Node, Value

Next: TypeAlias = "Callable[[], bool]"
Step: TypeAlias = "Callable[[Value | None, Match, Next], bool]"
Inputs: TypeAlias = "Callable[[list[Value | None], Match, Next], bool]"


class Steps:
    """Makes the steps of a pattern; an operator that is used twice has one.

    Args:
        silent: whether values are turned down without a reason.
    """

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._of: dict[object, Step] = {}
        self._inputs: dict[Apply, Callable[[Node, Match, Next], bool]] = {}

    def of(self, pattern: Pattern | None) -> Step:
        """The step of a pattern; None fits an input that is absent."""
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
        return _leaf(pattern, silent=self._silent)

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
            owner = m.owners.get(node)
            if owner is not None and owner is not apply:
                return False
            if name:
                m.bound[name] = value
            m.owners[node] = apply
            if go() if owner is not None else inputs(node, m, go):
                return True
            if owner is None:
                del m.owners[node]
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
        computed = [(at, ops) for at, pattern in enumerate(apply.inputs) if (ops := makers_of(pattern))]
        computed_swapped = [(1 - at, ops) for at, ops in computed] if swaps else []

        def step(node: Node, m: Match, go: Next) -> bool:
            inputs = node.inputs
            if _are_computed(inputs, computed) and written(inputs, m, go):
                return True
            if swapped is None or not is_commutative(node.op) or inputs[0] is inputs[-1]:
                return False
            return _are_computed(inputs, computed_swapped) and swapped(inputs, m, go)

        return step

    def _in_turn(self, patterns: tuple[Pattern | None, ...], first: int = 0) -> Inputs:
        """Fits inputs from one position on, one after the other."""
        if first == len(patterns):
            return lambda inputs, m, go: go()
        pattern = patterns[first]
        if isinstance(pattern, Rest):
            return _rest(pattern, first)
        step, is_last = self.of(pattern), first + 1 == len(patterns)
        rest = self._in_turn(patterns, first + 1)

        def fit(inputs: list[Value | None], m: Match, go: Next) -> bool:
            value = inputs[first] if first < len(inputs) else None
            return step(value, m, go if is_last else lambda: rest(inputs, m, go))

        return fit

    def _either(self, either: Either) -> Step:
        steps = [self.of(pattern) for pattern in either.patterns]
        return lambda value, m, go: any(step(value, m, go) for step in steps)

    def _optional(self, optional: Opt) -> Step:
        step = self.of(optional.pattern)
        return lambda value, m, go: go() if value is None else step(value, m, go)

    def _product(self, product: Product) -> Step:
        orders = [self._in_turn(order) for order in dict.fromkeys(permutations(product.factors))]
        count = len(product.factors)

        def step(value: Value | None, m: Match, go: Next) -> bool:
            node = value.producer if value is not None else None
            if node is None or node.op not in PRODUCTS or value is not node.outputs[0] or node in m.owners:
                return False
            found = factors_of(node)
            if len(found.values) != count:
                return False
            m.owners.update(dict.fromkeys(found.nodes, product))
            m.products.append((found, product.scale))
            values: list[Value | None] = list(found.values)
            if any(order(values, m, go) for order in orders):
                return True
            m.products.pop()
            for each in found.nodes:
                del m.owners[each]
            return False

        return step


PRODUCTS = ("Mul", "Div", "Pow")
"""Operators that a `Product` is taken apart through."""


def makers_of(part: Pattern | None) -> frozenset[str]:
    """The operators of which one must compute a value; none where it may be anything."""
    if isinstance(part, Output):
        return frozenset(part.apply.ops)
    if isinstance(part, Either):
        makers = [makers_of(each) for each in part.patterns]
        return frozenset().union(*makers) if all(makers) else frozenset()
    return frozenset()


def _are_computed(inputs: list[Value | None], computed: list[tuple[int, frozenset[str]]]) -> bool:
    """Whether inputs come from the operators that they must: one look, before anything is bound."""
    for at, ops in computed:
        value = inputs[at] if at < len(inputs) else None
        if value is None or value.producer is None or value.producer.op not in ops:
            return False
    return True


def _absent(value: Value | None, m: Match, go: Next) -> bool:
    return value is None and go()


def _is_meant(pattern: Var | Const | Scalar) -> Callable[[Value], bool] | None:
    """What tells a value that a leaf cannot stand for; None where it stands for any."""
    if isinstance(pattern, Const):
        return lambda value: value.constant_tensor is not None
    if isinstance(pattern, Scalar):
        wanted = pattern.value
        if wanted is None:
            return lambda value: number(value, "fiub") is not None
        return lambda value: (found := number(value, "fiub")) is not None and close(found, wanted)
    dtypes, ranks = pattern.dtypes, pattern.ranks
    if dtypes is None and ranks is None:
        return None
    return lambda value: (dtypes is None or value.dtype in dtypes) and (ranks is None or value.rank in ranks)


def _leaf(pattern: Pattern, *, silent: bool) -> Step:
    """A `Var`, `Const` or `Scalar`: any value, the same one each time."""
    assert isinstance(pattern, (Var, Const, Scalar))
    is_meant = _is_meant(pattern) if silent else None
    if not silent and not isinstance(pattern, Var) and pattern.silent:
        is_meant = _is_meant(Const() if isinstance(pattern, Const) else Scalar())

    def step(value: Value | None, m: Match, go: Next) -> bool:
        if value is None or (is_meant is not None and not is_meant(value)):
            return False
        known = m.values.get(pattern)
        if known is not None:
            return known is value and go()
        m.values[pattern] = value
        if go():
            return True
        del m.values[pattern]
        return False

    return step


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
