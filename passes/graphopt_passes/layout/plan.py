"""The plan of a graph, phase by phase: known layouts, forms, choice, groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import NamedTuple

from graphopt.errors import Decline
from graphopt.ir import Graph, Node
from graphopt.records import dataclass
from graphopt_passes.algorithm.work import RATES
from graphopt_passes.layout.choice import choose
from graphopt_passes.layout.cost import Costs, Price
from graphopt_passes.layout.form import Form, Group
from graphopt_passes.layout.forms import FORMS
from graphopt_passes.layout.groups import grouped, mark
from graphopt_passes.layout.known import Known
from graphopt_passes.layout.timing import LayoutRates
from graphopt_passes.layout.weights import lanes, padded


@dataclass(slots=True)
class LayoutPlan:
    """The layout chosen for each node of a graph.

    Attributes:
        groups: the groups to build, by the node at whose position each is built.
        prices: the costs of all nodes that can be blocked, in NCHW and in blocks.
        kept: nodes that could be blocked but are cheaper in NCHW, with the costs of both forms.
        declined: nodes that cannot be blocked, and why.
    """

    groups: dict[Node, Group] = field(default_factory=dict)
    prices: dict[Node, Price] = field(default_factory=dict)
    kept: dict[Node, Price] = field(default_factory=dict)
    declined: dict[Node, Decline] = field(default_factory=dict)

    def rows(self, graph: Graph) -> list[tuple[str, ...]]:
        """A row for each node that was examined, in the order of the graph, which is not changed yet.

        Its first output, its operator, its form, and microseconds in NCHW and in blocks: estimates without reorders,
        empty if the node cannot be blocked.
        """
        blocked = {group.form.node: f"blocked: {group.form.title}" for group in self.groups.values()}
        found = []
        for node in graph:
            if node in self.prices:
                rest = (
                    "NCHW: cheaper with what is around it" if node in self.kept else "blocked: by the kernel before it"
                )
                becomes, cells = blocked.get(node, rest), tuple(f"{price:.1f}" for price in self.prices[node])
            elif node in self.declined:
                becomes, cells = f"NCHW: {self.declined[node]}", ("", "")
            else:
                continue
            found.append((next((value.name for value in node.results), ""), node.op, becomes, *cells))
        return found


_FORCED = 1e9
"""A price in NCHW above that of any blocked form."""


class Setting(NamedTuple):
    """The parameters of a plan.

    Attributes:
        block: channels per block.
        force: whether to block all nodes that can be, whatever it costs.
        rates: the machine's speed.
        algorithms: nanoseconds of each kind of work of the algorithms that replace operators in NCHW.
    """

    block: int
    force: bool
    rates: LayoutRates
    algorithms: Mapping[str, float] = RATES


def make_plan(graph: Graph, setting: Setting) -> LayoutPlan:
    """Choose the nodes of a graph to block; the graph is not changed."""
    first = _Draft(graph, setting)
    if not setting.force and any(first.spreads(node) for node in first.chosen):
        # Pieces that end inside a block can be packed in NCHW, so that convolutions read fewer lanes.
        packed = _Draft(graph, setting, packed=True)
        if packed.cost + first.cost_beside(packed) < first.cost:
            first = packed
    return first.plan()


class _Draft:
    """A way to block a graph, with its cost.

    If `packed`, channels are concatenated in blocks only if that takes no more blocks than contiguous channels.
    """

    def __init__(self, graph: Graph, setting: Setting, *, packed: bool = False) -> None:
        self._known, self._forms, self._declined = Known(setting.block), dict[Node, Form](), dict[Node, Decline]()
        self.chosen: set[Node] = set()
        self.cost = 0.0
        self._prices: dict[Node, Price] = {}
        for node, found in _each_form(graph, self._known, packed=packed):
            if isinstance(found, Form):
                self._forms[node] = found
            else:
                self._declined[node] = found
        if not any(form.convolves for form in self._forms.values()):
            self._forms = {}
            return
        for companion in [form.companion for form in self._forms.values() if form.companion is not None]:
            self._forms.pop(companion, None)  # the form that computes it replaces it at no cost of its own
        mark(self._forms)
        self._choose(Costs(self._known, setting.rates, setting.algorithms), force=setting.force)

    def _choose(self, costs: Costs, *, force: bool) -> None:
        for form in self._forms.values():
            late = form.plain and form.extra_for_blocks(costs) > costs.reorder(form.operands[0])
            form.by_plain = form.by_plain or late
        self._prices = {node: form.total_price(costs) for node, form in self._forms.items()}
        weighed = {
            node: (_FORCED, price[1]) if force else with_margin(self._forms[node], price, costs)
            for node, price in self._prices.items()
        }
        self.chosen, self.cost = choose(self._forms, weighed, costs)
        if not any(self._forms[node].convolves for node in self.chosen):
            self.chosen = set()  # as in a graph without convolutions: pools alone are not blocked

    def spreads(self, node: Node) -> bool:
        """Whether a node concatenates channels such that they take more blocks than contiguous ones."""
        return node.op == "Concat" and not _is_packed(self._forms[node], self._known)

    def cost_beside(self, other: _Draft) -> float:
        """Time in NCHW of nodes that have no form in another draft."""
        return sum(plain for node, (plain, _) in self._prices.items() if node not in other._forms)

    def plan(self) -> LayoutPlan:
        forms, prices = self._forms, self._prices
        groups = grouped({node: form for node, form in forms.items() if node in self.chosen}, prices)
        kept = {node: prices[node] for node in forms if node not in self.chosen}
        return LayoutPlan(groups, prices, kept, self._declined)


def with_margin(form: Form, price: Price, costs: Costs) -> Price:
    """The price of a form, with a margin: it differs from the runtime's own choice only if it gains beyond the error.

    The runtime blocks all convolutions that it can. A form that gains less than the model's error stays as it would be
    there. An activation that a convolution already has does not count for the error, as it would not on its own.
    """
    plain, blocked = price
    if form.usual is None:
        return price
    error = costs.rates.error
    own = plain - form.second_pass(costs) if form.is_active else plain
    return (plain + error * own, blocked) if form.usual else (plain, (1 + error) * blocked)


def blocks_something(graph: Graph, setting: Setting) -> bool:
    """Whether `make_plan` would block a convolution; usually one of the first answers that without a plan.

    A node that gains by itself, with reorders before and after it, gains in every plan, since other blocked nodes can
    only save it reorders. So the best plan blocks it.
    """
    known = Known(setting.block)
    costs = Costs(known, setting.rates, setting.algorithms)
    for _, form in _each_form(graph, known):
        if isinstance(form, Form) and form.convolves and not setting.force and _gains_alone(form, costs):
            return True
    return any(group.form.convolves for group in make_plan(graph, setting).groups.values())


def _gains_alone(form: Form, costs: Costs) -> bool:
    plain, blocked = with_margin(form, form.total_price(costs), costs)
    if plain <= blocked:
        return False
    reorders = sum(2 * costs.reorder(value) for value in form.operands)
    reorders += sum((1 + len(out.users)) * costs.reorder(out) for out in form.node.results)
    return plain - blocked > reorders


def _is_packed(form: Form, known: Known) -> bool:
    """Whether the first result of a form has no more lanes than its channels need."""
    layout = form.gives[0]
    return len(layout) == 1 or lanes(layout, known.block) == padded(sum(layout), known.block)


def _each_form(graph: Graph, known: Known, *, packed: bool = False) -> Iterator[tuple[Node, Form | Decline]]:
    """Nodes, each with its blocked form or the reason why it has none, while `known` follows the graph."""
    for node in graph:
        if not node.inputs or node.output(0) is None:
            continue
        known.follow(node)
        read = FORMS.get(node.op)
        if read is None:
            continue
        try:
            form = read(node, known)
        except Decline as reason:
            if reason.args:
                yield node, reason
            continue
        if packed and node.op == "Concat" and not _is_packed(form, known):
            yield node, Decline("its readers are faster if its channels are contiguous")
            continue
        form.by_plain = form.mixes and not known.lanes(form.operands[0]).bounded
        known.learn(node, form.gives, form.sizes, form.lanes)
        yield node, form
