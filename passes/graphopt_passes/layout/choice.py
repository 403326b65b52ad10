"""The third phase: which nodes are blocked, by a minimum cut that makes the whole graph cheapest."""

from __future__ import annotations

from collections.abc import Mapping

from graphopt.ir import Node, Value
from graphopt_passes.layout.cost import Costs, Price
from graphopt_passes.layout.form import Form
from graphopt_passes.layout.mincut import INFINITE, MinimumCut


def choose(forms: Mapping[Node, Form], prices: Mapping[Node, Price], costs: Costs) -> tuple[set[Node], float]:
    """The nodes whose blocked form makes the whole cheapest, and what the whole costs then.

    Args:
        forms: what can be blocked.
        prices: of each of them.
        costs: tells the prices of reorders.
    """
    choice = _Choice(forms, prices, costs)
    return choice.solve(), choice.cost


class _Choice:
    """A cut with blocked nodes on the source side; a value that is wanted in both forms pays for a reorder."""

    def __init__(self, forms: Mapping[Node, Form], prices: Mapping[Node, Price], costs: Costs) -> None:
        self._costs = costs
        self._cut = cut = MinimumCut()
        self._place = {node: cut.thing() for node in forms}
        for node, (plain, blocked) in prices.items():
            cut.price(cut.SOURCE, self._place[node], plain)
            cut.price(self._place[node], cut.SINK, blocked)
        wanted: dict[Value, list[Form]] = {}
        for form in forms.values():
            for value in dict.fromkeys(form.operands):
                wanted.setdefault(value, []).append(form)
        makers = {v: self._place[f.node] for f in forms.values() if f.gives for v in f.node.results}
        for value in dict.fromkeys([*wanted, *makers]):
            self._price(value, makers.get(value, cut.SINK), wanted.get(value, []))

    def solve(self) -> set[Node]:
        """The nodes on the source side."""
        side = self._cut.solve()
        return {node for node, place in self._place.items() if place in side}

    @property
    def cost(self) -> float:
        """The microseconds of the solution, reorders included."""
        return self._cut.cost

    def _price(self, value: Value, source: int, readers: list[Form]) -> None:
        """The price of a value in two forms: a reorder for each direction in which it is needed."""
        cut, place, costs = self._cut, self._place, self._costs
        price = costs.reorder(value)
        first = [form for form in readers if form.operands[0] is value]
        by_plain = [form for form in first if form.by_plain]
        plain_readers = [form for form in first if form.plain and not form.by_plain]
        taken = {form.node for form in (*by_plain, *plain_readers)}
        blocked_readers = [form for form in readers if form.node not in taken or value in form.operands[1:]]
        if blocked_readers:
            enter = cut.thing()
            cut.price(enter, source, price * (1 if sum(costs.layout(value)) % 4 == 0 else 2))
            for form in blocked_readers:
                cut.price(place[form.node], enter, INFINITE)
        if source == cut.SINK:
            return
        leave = cut.thing()
        cut.price(source, leave, price)
        for form in blocked_readers:
            cut.price(leave, place[form.node], INFINITE)
        known = {node for form in readers for node in (form.node, form.companion)}
        if by_plain or _read_elsewhere(value, known):
            cut.price(leave, cut.SINK, INFINITE)
        for form in plain_readers:
            extra = min(form.extra_for_blocks(costs), price)
            cut.price(source, cut.SINK, extra)
            cut.price(source, place[form.node], price - extra)


def _read_elsewhere(value: Value, readers: set[Node | None]) -> bool:
    return bool(value.output_count) or any(user not in readers for user in value.users)
