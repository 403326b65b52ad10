"""Writing out the rounds of loops and scans: one copy of the body after another."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.analysis.purity import is_deterministic
from graphopt.ir import Graph, Node, Tensor, TensorType, Value
from graphopt.ir.numpy_types import numpy_type
from graphopt.ir.types import NUMBER_TYPES, type_name
from graphopt.records import dataclass
from graphopt.rewrite import Decline, GraphPass, Rewriter
from graphopt.rewrite.inline import Operand, adopt, constants_of, inner_graphs, replace_by

_MOST_BYTES = 1 << 20
"""Attributes and inner graphs are copied with every round; together they may take so many bytes."""

_NODE_BYTES = 64
"""What a node takes in a file, at least."""

_START_US, _LOOP_US, _ROUND_US = 30.0, 1.1, 0.5
"""Microseconds that a node more takes at a session start, and that a loop and each of its rounds take beside the body.

Measured in ONNX Runtime by `python -m benchmarks unrolling`: a node takes 2 to 38, the more the more there are.
"""

_STACKED = NUMBER_TYPES | {TensorProto.STRING}
"""Element types that `Gather`, `Unsqueeze` and `Concat` take in every version."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """How the body of a node is repeated.

    The first outputs of the body carry states to the next round; the others are collected.

    Attributes:
        count: how many rounds there are.
        carried: the inputs of the body that carry states, in the order of its outputs, and the initial states.
        given: what the other inputs get in a round, by its number.
        join: one output of the node, from the number of the collected output and its values in all rounds.
        hidden: how many of the final states are no outputs of the node.
        known: the inputs of the body that are constants in each round: what follows from them alone is folded.
        extra: nodes that each round needs beside the body.
    """

    count: int
    carried: Mapping[Value, Value]
    given: Callable[[int], Mapping[Value, Value]]
    join: Callable[[int, Sequence[Value]], Value]
    hidden: int = 0
    known: tuple[Value, ...] = ()
    extra: int = 0


class Unrolling(GraphPass):
    """Replace the nodes of one operator by copies of their bodies.

    Attributes:
        ops: the operator.
    """

    ops: ClassVar[tuple[str]]

    def run(self, graph: Graph, rw: Rewriter) -> None:
        """Unroll the nodes of one graph, and those in the copies of their bodies; inner graphs were unrolled before."""
        again = True
        while again:
            again = False
            for node in list(graph.owners):
                if node.op in self.ops and not node.removed:
                    rw.begin(self.name, node)
                    with rw.attempt(node):
                        rounds = self.rounds(node, node.subgraphs["body"], rw)
                        _write_out(node, rounds, rw, _gain(rounds, node.subgraphs["body"], rw.options.unroll_runs))
                        again = True

    @abstractmethod
    def rounds(self, node: Node, body: Graph, rw: Rewriter) -> Rounds:
        """The rounds of a node; declines where they are not known, or too many."""


def _gain(rounds: Rounds, body: Graph, most_runs: int) -> str:
    """What becomes of a loop that is written out, in words.

    Declines where that takes longer at each session start, and saves so little in each run, that it would take more
    than `most_runs` to repay.
    """
    each = lasting_nodes(body, rounds.known)
    growth = rounds.count * (each + rounds.extra) - each - 1
    if growth <= 0:
        return f"{rounds.count} rounds, no more nodes than before"
    runs = round(growth * _START_US / (_LOOP_US + rounds.count * _ROUND_US))
    if runs > most_runs:
        raise Decline("{} rounds of {} nodes would be repaid after {} runs of a session", rounds.count, each, runs)
    return f"{rounds.count} rounds, about {growth} nodes more: a later session start is repaid after {runs} runs"


def lasting_nodes(body: Graph, known: Sequence[Value]) -> int:
    """How many nodes of a body do not follow from constants alone, some of its inputs being constants as well."""
    constant, count = set(known), 0
    for node in body:
        if all(value in constant or value.is_const for value in node.operands) and not node.subgraphs:
            constant.update(node.results)
        elif node.op != "Identity":
            count += 1
    return count + sum(1 for graph in inner_graphs(body) for _ in graph)


def _write_out(node: Node, rounds: Rounds, rw: Rewriter, gain: str) -> None:
    """Replace a node by its rounds."""
    body = node.subgraphs["body"]
    shared = constants_of(rw, body) if rounds.count else {}
    states: list[Operand] = list(rounds.carried.values())
    collected: list[list[Operand]] = []
    for number in range(rounds.count):
        given = {**shared, **rounds.given(number), **dict(zip(rounds.carried, states, strict=True))}
        outputs = adopt(rw, body, given)
        states, rest = outputs[: len(states)], outputs[len(states) :]
        collected.append(rest)
    results = states[rounds.hidden :]
    for index, value in enumerate(node.outputs[len(results) :]):
        column = [made for rest in collected if (made := rest[index]) is not None]
        results.append(rounds.join(index, column) if value is not None and value.uses else None)
    replace_by(rw, node, results, gain)


def used_results(node: Node, body: Graph, carried: int, hidden: int = 0) -> list[Value]:
    """The outputs of a body that are collected over the rounds, and used.

    So many before them carry states, the `hidden` first of which are no outputs of the node.
    """
    pairs = zip(node.outputs[carried - hidden :], body.outputs[carried:], strict=False)
    return [inner for outer, inner in pairs if outer and outer.uses]


def most_rounds(body: Graph, extra: int, limit: int) -> int:
    """How many rounds of a body may be written out: one at least, as that makes nothing larger.

    Args:
        body: the body.
        extra: nodes that each round needs beside it, to take elements and to stack results.
        limit: the most nodes to make.
    """
    unknown = next((node for node in body if not is_deterministic(node)), None)
    if unknown is not None:
        raise Decline("{} may draw random numbers, or do more than compute its outputs", unknown.op)
    if _loops_inside(body):
        return 1
    inner = inner_graphs(body)
    copied = [node for graph in (body, *inner) for node in graph if node.op != "Constant" or graph is not body]
    size = sum(map(_attribute_bytes, copied))
    size += sum(value.tensor.nbytes for graph in inner for value in graph.initializers if value.tensor is not None)
    return max(1, min(limit // max(len(copied) + extra, 1), _MOST_BYTES // max(size, 1)))


def check_rounds(rounds: int, most: int, body: Graph) -> None:
    """Decline where there are more rounds than `most_rounds` allows."""
    inner = _loops_inside(body)
    if rounds > most and inner:
        raise Decline("the {} inside cannot be unrolled, and {} rounds would copy it", inner[0].op, rounds)
    if rounds > most:
        raise Decline("{} rounds are more than {}", rounds, most)


def _loops_inside(body: Graph) -> list[Node]:
    return [node for graph in (body, *inner_graphs(body)) for node in graph if node.op in ("Loop", "Scan")]


def _attribute_bytes(node: Node) -> int:
    size = _NODE_BYTES
    for value in node.attrs.values():
        if isinstance(value, Tensor):
            size += value.nbytes
        elif isinstance(value, (tuple, str, bytes)):
            size += 8 * len(value)
    return size


def check_stackable(value: Value, rounds: int) -> None:
    """Decline where operators cannot take a scanned value apart by rounds, or stack an output of the body."""
    if value.dtype not in _STACKED:
        raise Decline("{} of element type {} cannot be stacked", value.name, type_name(value.dtype or 0))
    stated = value.declared.shape if isinstance(value.declared, TensorType) else None
    if not rounds and (stated is None or not all(isinstance(d, int) for d in stated)):
        # Without a round the runtime makes up what the body does not state: of states it infers less than we do.
        raise Decline("the shape of {} is not known, and no round tells", value.name)


def stack(rw: Rewriter, values: Sequence[Value], like: Value, axis: int) -> Value:
    """The results of the rounds side by side along a new axis; `like` is the output of the body, known to stack."""
    if not values:
        sizes = list(like.sizes())
        sizes.insert(axis, 0)
        assert like.dtype is not None
        return rw.constant(Tensor.from_array(np.zeros(sizes, numpy_type(like.dtype)), like.dtype))
    first = rw.op("Unsqueeze", values[0], axes=(axis,))
    assert first.producer is not None
    axes, attrs = first.producer.inputs[1:], first.producer.attrs  # the other rounds share them
    pieces = [first, *(rw.op("Unsqueeze", value, *axes, **attrs) for value in values[1:])]
    return first if len(pieces) == 1 else rw.op("Concat", *pieces, axis=axis)
