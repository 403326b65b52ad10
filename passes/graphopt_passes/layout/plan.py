"""The plan of a graph, phase by phase: what is known, forms, choice, groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from graphopt.errors import Decline
from graphopt.ir import Graph, Node
from graphopt_passes.layout.choice import choose
from graphopt_passes.layout.cost import Costs, Price
from graphopt_passes.layout.form import Form, Group
from graphopt_passes.layout.forms import FORMS
from graphopt_passes.layout.groups import grouped, mark
from graphopt_passes.layout.known import Known
from graphopt_passes.layout.timing import LayoutRates


@dataclass(slots=True)
class LayoutPlan:
    """What becomes of a graph.

    Attributes:
        groups: what is built, by the node at whose place it is built.
        prices: the costs of all nodes that can be blocked, in NCHW and in blocks.
        kept: nodes that could be blocked but are cheaper in NCHW: the costs of the node in either form.
        declined: nodes that cannot be blocked, and why.
    """

    groups: dict[Node, Group] = field(default_factory=dict)
    prices: dict[Node, Price] = field(default_factory=dict)
    kept: dict[Node, Price] = field(default_factory=dict)
    declined: dict[Node, Decline] = field(default_factory=dict)


_FORCED = 1e9
"""A price in NCHW that no blocked form reaches."""


def make_plan(graph: Graph, block: int, *, force: bool = False, rates: LayoutRates | None = None) -> LayoutPlan:
    """Choose what of a graph is to be blocked.

    Args:
        graph: the graph; it is not changed.
        block: channels per block.
        force: block all that can be, whatever it costs.
        rates: the machine's speed; the built-in figures of the block size when None.
    """
    known, forms, declined = Known(block), {}, {}
    for node, found in _each_form(graph, known):
        if isinstance(found, Form):
            forms[node] = found
        else:
            declined[node] = found
    if not any(form.convolves for form in forms.values()):
        return LayoutPlan(declined=declined)
    for companion in [form.companion for form in forms.values() if form.companion is not None]:
        forms.pop(companion, None)  # it goes with the form that computes it, and costs nothing of its own
    mark(forms)
    costs = Costs(known, rates)
    prices = {node: form.total_price(costs) for node, form in forms.items()}
    chosen = choose(forms, {node: (_FORCED, b) for node, (_, b) in prices.items()} if force else prices, costs)
    if not any(forms[node].convolves for node in chosen):
        chosen = type(chosen)()  # as without convolutions: what else is in the graph decides nothing for pools
    groups = grouped({node: form for node, form in forms.items() if node in chosen}, prices)
    return LayoutPlan(groups, prices, {node: prices[node] for node in forms if node not in chosen}, declined)


def blocks_something(graph: Graph, block: int, *, force: bool = False, rates: LayoutRates | None = None) -> bool:
    """Whether `make_plan` would block a convolution; most often one of the first tells, without a plan.

    A node that gains by itself, reordered before and behind, gains in every company: that of others can only save it
    reorders. So it is blocked in the best plan.
    """
    known = Known(block)
    costs = Costs(known, rates)
    for _, form in _each_form(graph, known):
        if isinstance(form, Form) and form.convolves and not force and _gains_alone(form, costs):
            return True
    plan = make_plan(graph, block, force=force, rates=rates)
    return any(group.form.convolves for group in plan.groups.values())


def _gains_alone(form: Form, costs: Costs) -> bool:
    plain, blocked = form.total_price(costs)
    if plain <= blocked:
        return False
    reorders = sum(2 * costs.reorder(value) for value in form.operands)
    reorders += sum((1 + len(out.users)) * costs.reorder(out) for out in form.node.outputs if out is not None)
    return plain - blocked > reorders


def _each_form(graph: Graph, known: Known) -> Iterator[tuple[Node, Form | Decline]]:
    """Nodes that have a blocked form, or the reason why not, while `known` follows the graph."""
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
        form.by_plain = form.mixes and not known.lanes(form.operands[0]).bounded
        known.learn(node, form.gives, form.sizes, form.lanes)
        yield node, form
