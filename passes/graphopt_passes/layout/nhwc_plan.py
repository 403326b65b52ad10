"""The choice of nodes that work with channels last, and the rewrite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from graphopt.ir import Graph, Node, TensorType, Value
from graphopt.rewrite import Decline, Rewriter
from graphopt_passes.algorithm.work import rates_of
from graphopt_passes.fusion.transposes.region import is_absorbed
from graphopt_passes.layout.images import LastForm, Rates, last_form, reorder
from graphopt_passes.layout.mincut import MinimumCut, Places, cheapest, price_change
from graphopt_passes.layout.nhwc import gains
from graphopt_passes.shared import Shared

_TIE = 1e-3
"""Microseconds by which channels last are preferred, which decides ties."""


def convert(graph: Graph, rw: Rewriter) -> None:
    """Convert the nodes that are faster with channels last, and the nodes between them."""
    images = _ChannelsLast(rw)
    for form in choose(graph, rates_of(rw.target)):
        with rw.attempt(form.node):
            images.convert(form)


def choose(graph: Graph, rates: Rates) -> list[LastForm]:
    """The forms that make the whole graph fastest, in order."""
    forms = {form.node: form for form in _forms(graph, rates)}
    prices = {node: (form.price[0] + _TIE, form.price[1]) for node, form in forms.items()}

    def price(cut: MinimumCut, place: Places, value: Value, maker: int | None, readers: list[Node]) -> None:
        """Charge a transpose for each order in which a value is needed and not computed."""
        others = value.users.keys() - readers
        wanted = bool(value.output_count) or not all(_takes_either(user, value) for user in others)
        price_change(cut, place, reorder(value, rates), maker, readers, wanted=wanted)

    last, _ = cheapest(forms, prices, price)
    return _with_gains([form for node, form in forms.items() if node in last])


def _takes_either(user: Node, value: Value) -> bool:
    """Whether a reader is a `Transpose` itself, into which one before it fuses at no cost."""
    return user.op == "Transpose" and user.graph is value.graph and not is_absorbed(user)


def _with_gains(chosen: list[LastForm]) -> list[LastForm]:
    """The forms with a faster kernel, and all connected to these; the rest would only move transposes."""
    reads: dict[Value, Node] = {}
    joined: dict[Node, list[Node]] = {form.node: [] for form in chosen}
    made = {value: form.node for form in chosen for value in form.node.results}
    for form in chosen:
        for value in form.operands:
            other = made.get(value) or reads.setdefault(value, form.node)
            joined[form.node].append(other)
            joined[other].append(form.node)
    waiting = [node for node in joined if gains(node)]
    kept = set(waiting)
    while waiting:
        found = set(joined[waiting.pop()]) - kept
        kept |= found
        waiting += found
    return [form for form in chosen if form.node in kept]


def _forms(graph: Graph, rates: Rates) -> Iterator[LastForm]:
    for node in graph:
        with suppress(Decline):
            yield last_form(node, rates)


class _ChannelsLast(Shared):
    """Writes nodes with channels last; the readers of a value share its form with channels last."""

    def convert(self, form: LastForm) -> None:
        """Replace a node with its form with channels last, between transposes."""
        node = form.node
        self.begin()
        if node.op == "Transpose":
            if form.gives:
                self.keep({node.result: node.operand(0)})
            return
        made = form.write(lambda value: self._last(value, form), self.rw)
        for old, new in zip(node.outputs, made, strict=True):
            if old is not None and isinstance(old.type, TensorType):
                shape = old.type.shape
                moved = None if shape is None else tuple(shape[axis] for axis in form.last)
                new.type = TensorType(old.type.dtype, moved)
        firsts = [self.rw.op("Transpose", value, perm=form.first) for value in made]
        self.rw.replace(node, firsts)
        self.keep(dict(zip(firsts, made, strict=True)))

    def _last(self, value: Value, form: LastForm) -> Value:
        return self.once(value, lambda: self.rw.op("Transpose", value, perm=form.last))
