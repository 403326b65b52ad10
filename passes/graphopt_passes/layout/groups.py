"""The fourth phase: residual sums and activations fuse into convolutions."""

from __future__ import annotations

from collections.abc import Mapping

from graphopt.ir import Node, Value
from graphopt_passes.layout.cost import Price
from graphopt_passes.layout.form import Form, Group


def mark(forms: Mapping[Node, Form]) -> None:
    """Mark the forms that would fuse into a convolution if all were blocked; their prices depend on it."""
    for form in forms.values():
        if not form.convolves:
            continue
        value = form.node.result
        total = _sum_of(value, forms) if form.takes_sum and form.residual is None else None
        if total is not None and not forms[total].fused:
            forms[total].fused = "residual"
            value = total.result
        if not form.is_active:
            for node in _activation_nodes(value, forms):
                forms[node].fused = "activation"


def grouped(forms: dict[Node, Form], prices: Mapping[Node, Price]) -> dict[Node, Group]:
    """The groups of nodes that are blocked, by the node at whose position each is built."""
    groups: dict[Node, Group] = {}
    taken: set[Node] = set()
    for node in reversed(list(forms)):  # later convolutions choose first
        form = forms[node]
        if not form.convolves:
            continue
        group = Group(form, node, form.lanes, residual=form.residual)
        members, value = [node], node.result
        free = form.takes_sum and not form.is_active and group.residual is None
        total = _sum_of(value, forms) if free else None
        if total is not None and total not in taken:
            members.append(total)
            group.residual = next(v for v in forms[total].operands if v is not value)
            value = total.result
        nodes = [] if form.is_active else _activation_nodes(value, forms)
        if nodes and not taken.intersection(nodes):
            members += nodes
            group.activation = forms[nodes[-1]].activation if len(nodes) == 1 else ("HardSwish", ())
        group.last, group.lanes = members[-1], forms[members[-1]].lanes
        group.gain = sum(prices[n][0] - prices[n][1] for n in members)
        taken.update(members)
        groups[group.last] = group
    for node, form in forms.items():
        if node not in taken:
            groups[node] = Group(form, node, form.lanes, gain=prices[node][0] - prices[node][1])
    readers = forms | {form.companion: form for form in forms.values() if form.companion is not None}
    for node, group in groups.items():
        group.inside = all(_stays_inside(value, readers) for value in node.results)
    return groups


def _stays_inside(value: Value, readers: Mapping[Node, Form]) -> bool:
    """Whether something reads a value, and all readers are nodes that read it as blocks."""
    if value.output_count or not value.users:
        return False
    for user in value.users:
        form = readers.get(user)
        if form is None or value not in form.operands:
            return False
        if (form.plain or form.by_plain) and value is form.operands[0]:
            return False
    return True


def _sum_of(value: Value, forms: Mapping[Node, Form]) -> Node | None:
    """The sum of two images that is the only reader of a value, if it has a blocked form."""
    if not value.one_use:
        return None
    user = next(iter(value.users))
    return user if user in forms and forms[user].is_sum else None


def _activation_nodes(value: Value, forms: Mapping[Node, Form]) -> list[Node]:
    """The nodes of an activation that the convolution that computes `value` can absorb."""
    if value.one_use:
        user = next(iter(value.users))
        return [user] if user in forms and forms[user].activation is not None else []
    product = _hard_swish(value)
    if product is None or product not in forms:
        return []
    gates = [node for node in value.users if node is not product]
    return [*gates, product] if all(gate in forms for gate in gates) else []


def _hard_swish(value: Value) -> Node | None:
    """The Mul of a written-out `HardSwish`, if nothing else reads `value`."""
    if value.output_count or len(value.users) != 2 or sum(value.users.values()) != 2:
        return None
    gates = [n for n in value.users if n.op == "HardSigmoid" and n.graph is value.graph]
    products = [n for n in value.users if n.op == "Mul" and n.graph is value.graph]
    if not gates or not products or gates[0].result not in products[0].inputs:
        return None
    alpha, beta = float(gates[0].attr("alpha", 0.2)), float(gates[0].attr("beta", 0.5))
    is_one = abs(alpha * 6 - 1) < 1e-6 and abs(beta - 0.5) < 1e-7
    return products[0] if is_one and gates[0].result.one_use else None
