"""The third phase: which nodes are blocked, by a minimum cut."""

from __future__ import annotations

from collections.abc import Mapping

from graphopt.ir import Node, Value
from graphopt_passes.layout.cost import Costs, Price
from graphopt_passes.layout.form import Form
from graphopt_passes.layout.mincut import MinimumCut, Places, cheapest, price_change


def choose(forms: Mapping[Node, Form], prices: Mapping[Node, Price], costs: Costs) -> tuple[set[Node], float]:
    """The nodes to block so that the graph costs the least, and that cost."""

    def price(cut: MinimumCut, place: Places, value: Value, maker: int | None, nodes: list[Node]) -> None:
        """Charge a reorder for each direction in which a value is needed."""
        readers, reorder = [forms[node] for node in nodes], costs.reorder(value)
        first = [form for form in readers if form.operands[0] is value]
        by_plain = [form for form in first if form.by_plain]
        plain_readers = [form for form in first if form.plain and not form.by_plain]
        taken = {form.node for form in (*by_plain, *plain_readers)}
        blocked_readers = [form for form in readers if form.node not in taken or value in form.operands[1:]]
        known = {node for form in readers for node in (form.node, form.companion)}
        wanted = bool(by_plain or value.output_count or any(user not in known for user in value.users))
        times = 1 if sum(costs.layout(value)) % 4 == 0 else 2
        price_change(cut, place, reorder, maker, [form.node for form in blocked_readers], wanted=wanted, times=times)
        if maker is None:
            return
        for form in plain_readers:
            extra = min(form.extra_for_blocks(costs), reorder)
            cut.price(maker, cut.SINK, extra)
            cut.price(maker, place[form.node], reorder - extra)

    return cheapest(forms, prices, price)
