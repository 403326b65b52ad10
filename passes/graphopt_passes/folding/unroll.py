"""Unrolling of loops and scans into copies of the body."""

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
"""Most bytes of attributes and subgraphs, which are copied with every iteration."""

_NODE_BYTES = 64
"""Least bytes of a node in a file."""

_START_US, _LOOP_US, _ROUND_US = 30.0, 1.1, 0.5
"""Microseconds per additional node at session start, per loop, and per iteration besides the body.

Measured in ONNX Runtime by `python -m benchmarks unrolling`: a node takes 2 to 38 us, more in larger graphs.
"""

_STACKED = NUMBER_TYPES | {TensorProto.STRING}
"""Element types that all versions of `Gather`, `Unsqueeze` and `Concat` support."""


class Unrolling(GraphPass):
    """Replace the nodes of one operator with copies of their bodies.

    Attributes:
        ops: the operator.
    """

    ops: ClassVar[tuple[str]]

    def run(self, graph: Graph, rw: Rewriter) -> None:
        """Unroll the nodes of a graph, and those in the copies of their bodies; subgraphs were unrolled before."""
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
        """The number of iterations of a node; declines if it is unknown, and may decline if it exceeds `most`."""

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
    """Describe the effect of unrolling, with `extra` nodes per iteration besides the body.

    Declines if the longer session start would be repaid only after more than `most_runs` runs.
    """
    each = _lasting_nodes(loop.body, loop.counter)
    growth = rounds * (each + extra) - each - 1
    if growth <= 0:
        return f"{rounds} rounds, no more nodes than before"
    runs = round(growth * _START_US / (_LOOP_US + rounds * _ROUND_US))
    if runs > most_runs:
        raise Decline(
            "unrolling {} iterations of {} nodes pays off only after {} runs of a session", rounds, each, runs
        )
    return f"{rounds} rounds, about {growth} nodes more: a later session start is repaid after {runs} runs"


def _lasting_nodes(body: Graph, known: Sequence[Value]) -> int:
    """Number of nodes of a body that cannot be folded if its inputs `known` are constant."""
    constant, count = set(known), 0
    for node in body:
        if all(value in constant or value.is_const for value in node.operands) and not node.subgraphs:
            constant.update(node.results)
        elif node.op != "Identity":
            count += 1
    return count + sum(1 for graph in inner_graphs(body) for _ in graph)


def _written_out(loop: Carried, scan: Scan, rounds: int, rw: Rewriter) -> list[Operand]:
    """Write copies of a loop's body, each of which reads the states of the previous one; returns the loop's outputs."""
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
    """Most iterations of a body, with `extra` nodes each, that may be unrolled: at least one, which adds no nodes."""
    unknown = next((node for node in body if not is_deterministic(node)), None)
    if unknown is not None:
        raise Decline("{} may draw random numbers, or have side effects", unknown.op)
    if _loops_inside(body):
        return 1
    inner = inner_graphs(body)
    copied = [node for graph in (body, *inner) for node in graph if node.op != "Constant" or graph is not body]
    size = sum(map(_attribute_bytes, copied))
    size += sum(value.tensor.nbytes for graph in inner for value in graph.initializers if value.tensor is not None)
    return max(1, min(limit // max(len(copied) + extra, 1), _MOST_BYTES // max(size, 1)))


def _check_rounds(rounds: int, most: int, body: Graph) -> None:
    """Decline if there are more iterations than `_most_rounds` allows."""
    inner = _loops_inside(body)
    if rounds > most and inner:
        raise Decline("the nested {} cannot be unrolled, and {} iterations would copy it", inner[0].op, rounds)
    if rounds > most:
        raise Decline("there are {} iterations, more than {}", rounds, most)


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
    """Decline if a scanned value cannot be split into iterations, or an output of the body cannot be stacked."""
    if value.dtype not in _STACKED:
        raise Decline("{} of element type {} cannot be stacked", value.name, type_name(value.dtype or 0))
    if not rounds:
        _declared(value)


def _declared(value: Value) -> list[int]:
    """The sizes that a body declares for an output; without iterations the runtime guesses the others."""
    stated = value.declared.shape if isinstance(value.declared, TensorType) else None
    sizes = [size for size in stated or () if isinstance(size, int)]
    if stated is None or len(sizes) < len(stated):
        raise Decline("the shape of {} is not known, even in the unrolled body", value.name)
    return sizes


def _stack(rw: Rewriter, values: Sequence[Value], like: Value, axis: int) -> Value:
    """Stack the results of all iterations along a new axis; `like` is the output of the body, known to stack."""
    if not values:  # of the declared sizes, as in the runtime, whatever the initial states would make of them
        sizes = list(_declared(like))
        sizes.insert(axis, 0)
        assert like.dtype is not None
        return rw.constant(Tensor.from_array(np.zeros(sizes, numpy_type(like.dtype)), like.dtype))
    pieces = unsqueezed(values, axis, rw)
    return rw.op("Concat", *pieces, axis=axis) if len(pieces) > 1 else pieces[0]
