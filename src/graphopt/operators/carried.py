"""`Loop` and `Scan`: what they carry from round to round, take apart and collect."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.errors import Decline
from graphopt.ir import Graph, Node, Value
from graphopt.records import dataclass


@dataclass(frozen=True, slots=True)
class Carried:
    """What a `Loop` or `Scan` carries from round to round, and the results of its rounds.

    Attributes:
        node: the loop or scan.
        body: one round.
        first_in: how many inputs of the body come before the states.
        first_out: how many outputs of the body come before the states: the condition of a loop.
        states: the number of states; the results follow them.
    """

    node: Node
    body: Graph
    first_in: int
    first_out: int
    states: int

    @classmethod
    def of(cls, node: Node) -> Carried:
        """Read a `Loop` or `Scan`; declines where its body has other inputs or outputs than it needs."""
        first_in, first_out = (2, 1) if node.op == "Loop" else (0, 0)
        states = len(node.inputs) - first_in - int(node.attr("num_scan_inputs", 0))
        body = node.subgraphs.get("body")
        if body is None or states < 0 or None in node.inputs[first_in:] or len(body.inputs) != len(node.inputs):
            raise Decline
        if len(body.outputs) - first_out < max(states, len(node.outputs)):
            raise Decline
        return cls(node, body, first_in, first_out, states)

    @property
    def after(self) -> list[Value]:
        """The states as a round leaves them, and the results behind them."""
        return self.body.outputs[self.first_out :]

    def start(self, k: int) -> Value | None:
        """The initial value of a state."""
        return self.node.inputs[self.first_in + k]

    def before(self, k: int) -> Value:
        """A state as a round finds it."""
        return self.body.inputs[self.first_in + k]

    def is_passed_on(self, k: int) -> bool:
        """Whether each round leaves a state as it was, or as the initial value."""
        value = self.body.outputs[self.first_out + k]
        while (identity := value.made_by("Identity")) and identity.graph is self.body:
            value = identity.operand(0)
        return value is self.before(k) or value is self.start(k)


@dataclass(frozen=True, slots=True)
class Scan:
    """A `Scan` of opset 9 or later; it is only read.

    Attributes:
        states: the initial states.
        scanned: what is taken apart, an element a round.
        axes: along which axis of each, from the front.
        backwards: whether that is from its end.
        results: the outputs of the body that are collected.
        out_axes: along which axis each is stacked, from the front.
        out_backwards: whether later ones go before.
        length: how many rounds there are.
    """

    states: tuple[Value, ...]
    scanned: tuple[Value, ...]
    axes: list[int]
    backwards: list[bool]
    results: list[Value]
    out_axes: list[int]
    out_backwards: list[bool]
    length: int

    @classmethod
    def of(cls, node: Node, body: Graph) -> Scan:
        """Read a `Scan`.

        Raises:
            Decline: its body does not fit, or a rank or the number of rounds is not known.
        """
        inputs = node.operands
        count = len(inputs) - node.attr("num_scan_inputs", 0)
        fits = 0 <= count < len(inputs) == len(node.inputs) == len(body.inputs)
        if not fits or len(body.outputs) < max(count, len(node.outputs)):
            raise Decline("the body does not fit the scan")
        states, scanned, results = inputs[:count], inputs[count:], body.outputs[count:]
        axes = _axes(node, "scan_input_axes", scanned)
        backwards = _directions(node, "scan_input_directions", len(scanned))
        out_axes = _axes(node, "scan_output_axes", results, stacked=1)
        out_backwards = _directions(node, "scan_output_directions", len(results))
        length = _length(scanned, axes)
        return cls(tuple(states), tuple(scanned), axes, backwards, results, out_axes, out_backwards, length)


def _length(scanned: Sequence[Value], axes: Sequence[int]) -> int:
    lengths = {value.dims()[axis] for value, axis in zip(scanned, axes, strict=True)}
    length = lengths.pop()
    if lengths or not isinstance(length, int):
        raise Decline("the scanned length is not fixed")
    return length


def _directions(node: Node, name: str, count: int) -> list[bool]:
    """Whether each input is scanned from its end, or later results of an output go before."""
    directions = [bool(direction) for direction in node.attr(name) or (0,) * count]
    if len(directions) != count:
        raise Decline("there are not as many directions as inputs or outputs")
    return directions


def _axes(node: Node, name: str, values: Sequence[Value], stacked: int = 0) -> list[int]:
    """The axis of each value, from the front; with `stacked` 1 of a value that has one axis more."""
    axes = node.attr(name) or (0,) * len(values)
    if len(axes) != len(values):
        raise Decline("there are not as many axes as inputs or outputs")
    found = []
    for axis, value in zip(axes, values, strict=True):
        rank = None if value.rank is None else value.rank + stacked
        if (rank is None and not (axis >= 0 and stacked)) or (rank is not None and not -rank <= axis < rank):
            raise Decline("the rank of what is scanned or stacked is not known")
        found.append(axis if rank is None else axis % rank)
    return found
