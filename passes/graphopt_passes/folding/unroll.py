"""Writing out the rounds of loops and scans: one copy of the body after another."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.analysis.purity import is_deterministic
from graphopt.ir import Graph, Node, Tensor, TensorType, Value
from graphopt.ir.numpy_types import numpy_type
from graphopt.ir.types import NUMBER_TYPES, type_name
from graphopt.operators.axes import unsqueezed
from graphopt.operators.carried import Carried, Scan
from graphopt.rewrite import Decline, GraphPass, Rewriter
from graphopt.rewrite.inline import Operand, adopt, constants_of, inner_graphs, replace_by
from graphopt_passes.folding.trip_count import scalar_or_vector

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
                    with rw.attempt(node):
                        self._unroll(Carried.of(node), rw)
                        again = True

    @abstractmethod
    def count(self, loop: Carried, scan: Scan, most: int) -> int:
        """The number of rounds of a node; declines where it is not known, and may where it is above `most`."""

    def _unroll(self, loop: Carried, rw: Rewriter) -> None:
        scan = Scan.of(loop)
        joined = [*loop.stacked, *scan.scanned]
        most = _most_rounds(loop.body, len(joined), rw.options.unroll_limit)
        rounds = self.count(loop, scan, most)
        _check_rounds(rounds, most, loop.body)
        for value in joined:
            _check_stackable(value, rounds)
        gain = _gain(loop, rounds, len(joined), rw.options.unroll_runs)
        replace_by(rw, loop.node, _written_out(loop, scan, rounds, rw), gain)


def _gain(loop: Carried, rounds: int, extra: int, most_runs: int) -> str:
    """What becomes of a loop that is written out, with some nodes in each round beside the body, in words.

    Declines where that takes longer at each session start, and saves so little in each run, that it would take more
    than `most_runs` to repay.
    """
    each = _lasting_nodes(loop.body, loop.counter)
    growth = rounds * (each + extra) - each - 1
    if growth <= 0:
        return f"{rounds} rounds, no more nodes than before"
    runs = round(growth * _START_US / (_LOOP_US + rounds * _ROUND_US))
    if runs > most_runs:
        raise Decline("{} rounds of {} nodes would be repaid after {} runs of a session", rounds, each, runs)
    return f"{rounds} rounds, about {growth} nodes more: a later session start is repaid after {runs} runs"


def _lasting_nodes(body: Graph, known: Sequence[Value]) -> int:
    """How many nodes of a body do not follow from constants alone, some of its inputs being constants as well."""
    constant, count = set(known), 0
    for node in body:
        if all(value in constant or value.is_const for value in node.operands) and not node.subgraphs:
            constant.update(node.results)
        elif node.op != "Identity":
            count += 1
    return count + sum(1 for graph in inner_graphs(body) for _ in graph)


def _written_out(loop: Carried, scan: Scan, rounds: int, rw: Rewriter) -> list[Operand]:
    """The outputs of a loop from so many copies of its body, each of which reads what the one before it leaves."""
    body, states = loop.body, [loop.start(k) for k in range(loop.states)]
    outer: list[Operand] = [*(rw.constant(scalar_or_vector(value, True)) for value in loop.condition), *states]
    carried = [*loop.condition, *map(loop.before, range(loop.states))]
    positions = [rw.constant(np.array(number, np.int64)) for number in range(rounds)] if scan.scanned else []
    shared = constants_of(rw, body) if rounds else {}
    collected: list[list[Operand]] = []
    for number in range(rounds):
        given: dict[Value, Operand] = {**shared, **dict(zip(carried, outer, strict=True))}
        given |= {value: rw.constant(scalar_or_vector(value, number)) for value in loop.counter}
        for k, (value, axis, back) in enumerate(zip(scan.scanned, scan.axes, scan.backwards, strict=True)):
            taken = positions[-1 - number if back else number]
            given[loop.before(loop.states + k)] = rw.op("Gather", value, taken, axis=axis)
        outputs = adopt(rw, body, given)
        outer, stacked = outputs[: len(outer)], outputs[len(outer) :]
        collected.append(stacked)
    results = outer[loop.first_out :]
    for index, result in enumerate(loop.node.outputs[loop.states :]):
        column = [made for stacked in collected if (made := stacked[index]) is not None]
        column = column[::-1] if scan.out_backwards[index] else column
        used, like = result is not None and result.uses, loop.after[loop.states + index]
        results.append(_stack(rw, column, like, scan.out_axes[index]) if used else None)
    return results


def _most_rounds(body: Graph, extra: int, limit: int) -> int:
    """How many rounds of a body, with `extra` nodes each, may be written out: at least one, which adds nothing."""
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


def _check_rounds(rounds: int, most: int, body: Graph) -> None:
    """Decline where there are more rounds than `_most_rounds` allows."""
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


def _check_stackable(value: Value, rounds: int) -> None:
    """Decline where operators cannot take a scanned value apart by rounds, or stack an output of the body."""
    if value.dtype not in _STACKED:
        raise Decline("{} of element type {} cannot be stacked", value.name, type_name(value.dtype or 0))
    stated = value.declared.shape if isinstance(value.declared, TensorType) else None
    if not rounds and (stated is None or not all(isinstance(d, int) for d in stated)):
        # Without a round the runtime makes up what the body does not state: of states it infers less than we do.
        raise Decline("the shape of {} is not known, and no round tells", value.name)


def _stack(rw: Rewriter, values: Sequence[Value], like: Value, axis: int) -> Value:
    """The results of the rounds side by side along a new axis; `like` is the output of the body, known to stack."""
    if not values:
        sizes = list(like.sizes())
        sizes.insert(axis, 0)
        assert like.dtype is not None
        return rw.constant(Tensor.from_array(np.zeros(sizes, numpy_type(like.dtype)), like.dtype))
    pieces = unsqueezed(values, axis, rw)
    return rw.op("Concat", *pieces, axis=axis) if len(pieces) > 1 else pieces[0]
