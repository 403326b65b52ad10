"""`Loop` and `Scan`: their loop-carried states, scanned inputs and stacked results."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.errors import Decline
from graphopt.ir import Graph, Node, Value
from graphopt.records import dataclass


@dataclass(frozen=True, slots=True)
class Carried:
    """The loop-carried states of a `Loop` or `Scan`, and the results of its iterations.

    Attributes:
        node: the loop or scan.
        body: the body.
        first_in: number of inputs of the body before the states.
        first_out: number of outputs of the body before the states: the condition of a loop.
        states: the number of states; the results follow them.
    """

    node: Node
    body: Graph
    first_in: int
    first_out: int
    states: int

    @classmethod
    def of(cls, node: Node) -> Carried:
        """Read a `Loop` or `Scan`; declines if its body does not have the required inputs and outputs."""
        first_in, first_out = (2, 1) if node.op == "Loop" else (0, 0)
        states = len(node.inputs) - first_in - int(node.attr("num_scan_inputs", 0))
        body = node.subgraphs.get("body")
        if None in node.inputs[first_in:]:
            raise Decline("an initial state is left out")
        if body is None or states < 0 or len(body.inputs) != len(node.inputs):
            raise Decline("the inputs and outputs of the body do not match those of the {}", node.op)
        if len(body.outputs) - first_out < max(states, len(node.outputs)):
            raise Decline("the inputs and outputs of the body do not match those of the {}", node.op)
        return cls(node, body, first_in, first_out, states)

    @property
    def after(self) -> list[Value]:
        """The states after an iteration, followed by its results."""
        return self.body.outputs[self.first_out :]

    @property
    def counter(self) -> list[Value]:
        """The input of a `Loop` body with the iteration number; empty for a `Scan`."""
        return self.body.inputs[: self.first_in - self.first_out]

    @property
    def condition(self) -> list[Value]:
        """The input of a `Loop` body with the condition; empty for a `Scan`."""
        return self.body.inputs[self.first_in - self.first_out : self.first_in]

    @property
    def stacked(self) -> list[Value]:
        """The results of an iteration whose stacked values are used."""
        pairs = zip(self.node.outputs[self.states :], self.after[self.states :], strict=False)
        return [inner for outer, inner in pairs if outer and outer.uses]

    def start(self, k: int) -> Value:
        """The initial value of a state."""
        return self.node.operand(self.first_in + k)

    def before(self, k: int) -> Value:
        """A state before an iteration."""
        return self.body.inputs[self.first_in + k]

    def is_passed_on(self, k: int) -> bool:
        """Whether every iteration leaves a state unchanged, or resets it to the initial value."""
        value = self.body.outputs[self.first_out + k]
        while (identity := value.made_by("Identity")) and identity.graph is self.body:
            value = identity.operand(0)
        return value is self.before(k) or value is self.start(k)


@dataclass(frozen=True, slots=True)
class Scan:
    """The scanned inputs and stacked results of a `Scan`, read-only; a `Loop` stacks along the first axis.

    Attributes:
        scanned: the scanned inputs, of which each iteration reads one slice.
        axes: the scanned axis of each, from the front.
        backwards: whether each is scanned in reverse.
        out_axes: the axis along which each result is stacked, from the front.
        out_backwards: whether each is stacked in reverse.
    """

    scanned: list[Value]
    axes: list[int]
    backwards: list[bool]
    out_axes: list[int]
    out_backwards: list[bool]

    @classmethod
    def of(cls, loop: Carried) -> Scan:
        """Read a `Scan` of opset 9 or later, or a `Loop`.

        Raises:
            Decline: a rank is not known.
        """
        node, results = loop.node, loop.after[loop.states :]
        scanned = node.operands[loop.first_in + loop.states :] if node.op == "Scan" else []
        return cls(
            scanned,
            _axes(node, "scan_input_axes", scanned),
            _directions(node, "scan_input_directions", scanned),
            _axes(node, "scan_output_axes", results, stacked=1),
            _directions(node, "scan_output_directions", results),
        )

    @property
    def length(self) -> int:
        """The number of iterations of a `Scan`.

        Raises:
            Decline: it is not known.
        """
        lengths = {value.dims()[axis] for value, axis in zip(self.scanned, self.axes, strict=True)}
        length = lengths.pop() if lengths else None
        if lengths or not isinstance(length, int):
            raise Decline("the size of the scanned axis is not known")
        return length


def _directions(node: Node, name: str, values: Sequence[Value]) -> list[bool]:
    """Whether each input is scanned, or each output stacked, in reverse."""
    directions = [bool(direction) for direction in node.attr(name) or (0,) * len(values)]
    if len(directions) != len(values):
        raise Decline("the number of scan directions is not that of the inputs or outputs")
    return directions


def _axes(node: Node, name: str, values: Sequence[Value], stacked: int = 0) -> list[int]:
    """The axis of each value, from the front; with `stacked` = 1, of the value with a new axis."""
    axes = node.attr(name) or (0,) * len(values)
    if len(axes) != len(values):
        raise Decline("the number of scan axes is not that of the inputs or outputs")
    found = []
    for axis, value in zip(axes, values, strict=True):
        rank = None if value.rank is None else value.rank + stacked
        if (rank is None and not (axis >= 0 and stacked)) or (rank is not None and not -rank <= axis < rank):
            raise Decline("the rank of a scan input or output is not known")
        found.append(axis if rank is None else axis % rank)
    return found
