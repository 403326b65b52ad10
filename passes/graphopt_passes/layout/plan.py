"""The choice of a form for every node of a graph, made at once, and the groups that become one blocked node each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from graphopt.ir import Graph, Node, Value
from graphopt.match import Mismatch
from graphopt_passes.layout.activations import Activation, fusible, hard_swish
from graphopt_passes.layout.cost import Costs
from graphopt_passes.layout.extents import sliding
from graphopt_passes.layout.facts import FLOAT, Facts, Form, Kind
from graphopt_passes.layout.forms import form_of
from graphopt_passes.layout.lanes import Lanes
from graphopt_passes.layout.mincut import INFINITE, Cut
from graphopt_passes.layout.timing import Rates


@dataclass(slots=True)
class Group:
    """Nodes that become one blocked node.

    Attributes:
        form: the form of the first of them.
        last: the last of them; its outputs are replaced.
        lanes: what padding lanes of these outputs hold.
        residual: what a residual sum adds.
        activation: what the convolution applies at the end.
        gain: microseconds that the blocked form saves, reorders not counted.
    """

    form: Form
    last: Node
    lanes: Lanes
    residual: Value | None = None
    activation: Activation | None = None
    gain: float = 0.0


@dataclass(slots=True)
class Plan:
    """What becomes of a graph.

    Attributes:
        groups: what is built, by the node at whose place it is built.
        kept: nodes that could be blocked but are cheaper in NCHW: the costs of the node in either form.
        declined: nodes that cannot be blocked, and why.
        prices: the costs of all nodes that can be blocked, in NCHW and in blocks.
    """

    groups: dict[Node, Group] = field(default_factory=dict)
    prices: dict[Node, tuple[float, float]] = field(default_factory=dict)
    kept: dict[Node, tuple[float, float]] = field(default_factory=dict)
    declined: dict[Node, Mismatch] = field(default_factory=dict)


_FORCED = 1e9
"""A price in NCHW that no blocked form reaches."""


def make_plan(graph: Graph, block: int, *, force: bool = False, rates: Rates | None = None) -> Plan:
    """Choose what of a graph is to be blocked.

    Args:
        graph: the graph; it is not changed.
        block: channels per block.
        force: block all that can be, whatever it costs.
        rates: the machine's speed; the built-in figures of the block size when None.
    """
    plan = Plan()
    facts = Facts(block)
    forms = _forms(graph, facts, plan)
    if not any(form.head for form in forms.values()):
        return plan
    _mark_fusions(forms)
    costs = Costs(facts, rates)
    plan.prices = prices = {node: costs.form(form) for node, form in forms.items()}
    chosen = _choose(forms, {node: (_FORCED, b) for node, (_, b) in prices.items()} if force else prices, costs)
    plan.kept = {node: prices[node] for node in forms if node not in chosen}
    plan.groups = _groups({node: form for node, form in forms.items() if node in chosen}, prices)
    return plan


def blocks_something(graph: Graph, block: int, *, force: bool = False, rates: Rates | None = None) -> bool:
    """Whether `make_plan` would block a convolution; most often one of the first tells, without a plan.

    A node that gains by itself, reordered before and behind, gains in every company: that of others can only save it
    reorders. So it is blocked in the best plan.
    """
    facts = Facts(block)
    costs = Costs(facts, rates)
    for _, form in _each_form(graph, facts):
        if isinstance(form, Form) and form.head and not force and _gains_alone(form, costs):
            return True
    plan = make_plan(graph, block, force=force, rates=rates)
    return any(group.form.head for group in plan.groups.values())


def _gains_alone(form: Form, costs: Costs) -> bool:
    plain, blocked = costs.form(form)
    gain = plain - blocked
    if gain <= 0:
        return False
    reorders = 0.0
    for value in form.operands:
        reorders += 2 * costs.reorder(value, costs.facts.layout(value) or (costs.block,))
    for out in form.node.outputs:
        if out is not None:
            layout = costs.facts.layout(out)
            reorders += (1 + len(out.users)) * costs.reorder(out, layout or (costs.block,))
    return gain > reorders


def _each_form(graph: Graph, facts: Facts) -> Iterator[tuple[Node, Form | Mismatch]]:
    """Nodes that have a blocked form, or the reason why not, while `facts` follows the graph."""
    for node in graph:
        answer = form_of(node, facts)
        if isinstance(answer, Form):
            facts.learn(answer)
        elif node.op == "Conv":
            _follow(node, facts)
        if answer is not None:
            yield node, answer


def _forms(graph: Graph, facts: Facts, plan: Plan) -> dict[Node, Form]:
    found: dict[Node, Form] = {}
    for node, answer in _each_form(graph, facts):
        if isinstance(answer, Form):
            found[node] = answer
        else:
            plan.declined[node] = answer
    return found


def _follow(node: Node, facts: Facts) -> None:
    """The extents behind a convolution that stays as it is."""
    x, weight, out = node.input(0), node.input(1), node.output(0)
    tensor = weight.constant_tensor if weight is not None else None
    if x is not None and out is not None and tensor is not None and len(tensor.dims) == 4 and tensor.dtype == FLOAT:
        facts.derive(out, facts.refined(sliding(node, facts.extents(x), tensor.dims[2:]), node))


def _mark_fusions(forms: dict[Node, Form]) -> None:
    """Note which elementwise forms would go into a convolution, for the cost model."""
    for form in forms.values():
        sigmoid = form.data.get("sigmoid")
        if isinstance(sigmoid, Node) and sigmoid in forms:
            forms[sigmoid].data["fuses"] = "activation"
        if not form.head:
            continue
        value = form.node.outputs[0]
        if form.sums and _has_residual(form) is None:
            total = _sum_of(value, forms)
            if total is not None and "fuses" not in forms[total].data:
                forms[total].data["fuses"] = "residual"
                value = total.outputs[0]
        if form.node.attr("activation") is None:
            for node in _activation_nodes(value, forms):
                forms[node].data["fuses"] = "activation"


def _has_residual(form: Form) -> Value | None:
    return form.operands[1] if form.kind is not Kind.GATE and len(form.operands) > 1 else None


def _sum_of(value: Value | None, forms: dict[Node, Form]) -> Node | None:
    """The Add of two images that alone reads a value, if it has a blocked form."""
    if value is None or not value.one_use:
        return None
    user = next(iter(value.users))
    form = forms.get(user)
    if form is None or form.kind is not Kind.ELEMENTWISE or user.op not in ("Add", "Sum"):
        return None
    return user if len(form.operands) == 2 and len(user.inputs) == 2 else None


def _activation_nodes(value: Value | None, forms: dict[Node, Form]) -> list[Node]:
    """The nodes of an activation that the convolution behind `value` can take in; the last one's output stays."""
    if value is None:
        return []
    if value.one_use:
        user = next(iter(value.users))
        fits = user in forms and forms[user].kind is Kind.ELEMENTWISE and fusible(user) is not None
        return [user] if fits else []
    product = hard_swish(value)
    if product is None or product not in forms:
        return []
    gates = [node for node in value.users if node is not product]
    return [*gates, product] if all(gate in forms for gate in gates) else []


# ---------------------------------------------------------------------- choosing


def _choose(forms: dict[Node, Form], prices: dict[Node, tuple[float, float]], costs: Costs) -> set[Node]:
    """The nodes whose blocked form makes the whole cheapest: a minimum cut, blocked nodes on the source side."""
    cut = Cut()
    place = {node: cut.thing() for node in forms}
    for node, (plain, blocked) in prices.items():
        cut.price(cut.SOURCE, place[node], plain)
        cut.price(place[node], cut.SINK, blocked)
    wanted: dict[Value, list[Form]] = {}
    for form in forms.values():
        for value in dict.fromkeys(form.operands):
            wanted.setdefault(value, []).append(form)
    makers = {v: place[f.node] for f in forms.values() if f.layouts for v in f.node.outputs if v is not None}
    for value in dict.fromkeys([*wanted, *makers]):
        _price_value(cut, value, makers.get(value, cut.SINK), wanted.get(value, []), place=place, costs=costs)
    side = cut.solve()
    return {node for node in forms if place[node] in side}


def _price_value(
    cut: Cut, value: Value, source: int, readers: list[Form], *, place: dict[Node, int], costs: Costs
) -> None:
    """The price of a value in two forms: a reorder for each direction in which somebody wants it."""
    layout = costs.facts.layout(value)
    if layout is None:
        # Nothing is known of a convolution's input but its number of channels; it comes as it is.
        layout = (costs.block,)
    price = costs.reorder(value, layout)
    by_plain = [form for form in readers if form.by_plain and form.operands[0] is value]
    plain_readers = [form for form in readers if form.plain and form.operands[0] is value and not form.by_plain]
    taken = {form.node for form in (*by_plain, *plain_readers)}
    blocked_readers = [form for form in readers if form.node not in taken or value in form.operands[1:]]
    if blocked_readers:
        enter = cut.thing()
        cut.price(enter, source, price * (1 if sum(layout) % 4 == 0 else 2))
        for form in blocked_readers:
            cut.price(place[form.node], enter, INFINITE)
    if source == cut.SINK:
        return
    leave = cut.thing()
    cut.price(source, leave, price)
    for form in blocked_readers:
        cut.price(leave, place[form.node], INFINITE)
    if by_plain or _read_elsewhere(value, {form.node for form in readers}):
        cut.price(leave, cut.SINK, INFINITE)
    for form in plain_readers:
        extra = min(costs.plain_input(form), price)
        cut.price(source, cut.SINK, extra)
        cut.price(source, place[form.node], price - extra)


def _read_elsewhere(value: Value, readers: set[Node]) -> bool:
    return bool(value.output_count) or any(user not in readers for user in value.users)


# ---------------------------------------------------------------------- grouping


def _groups(forms: dict[Node, Form], prices: dict[Node, tuple[float, float]]) -> dict[Node, Group]:
    """Group each convolution with the sum and the activation that it takes in; later ones choose first."""
    groups: dict[Node, Group] = {}
    taken: set[Node] = set()
    for node in reversed(forms):
        form = forms[node]
        if not form.head:
            continue
        group = Group(form, node, form.lanes, residual=_has_residual(form))
        members = [node]
        active = node.attr("activation") is not None and bool(node.domain)
        value = node.outputs[0]
        total = _sum_of(value, forms) if form.sums and not active and group.residual is None else None
        if total is not None and total not in taken:
            members.append(total)
            group.residual = next(v for v in forms[total].operands if v is not value)
            value = total.outputs[0]
        if not active:
            nodes = _activation_nodes(value, forms)
            if nodes and not taken.intersection(nodes):
                members += nodes
                group.activation = fusible(nodes[-1]) if len(nodes) == 1 else ("HardSwish", ())
        group.last, group.lanes = members[-1], forms[members[-1]].lanes
        group.gain = sum(prices[n][0] - prices[n][1] for n in members)
        taken.update(members)
        groups[group.last] = group
    taken.update(form.data["sigmoid"] for form in forms.values() if "sigmoid" in form.data)  # type: ignore[misc]
    for node, form in forms.items():
        if node not in taken:
            groups[node] = Group(form, node, form.lanes, gain=prices[node][0] - prices[node][1])
    return groups
