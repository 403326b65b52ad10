"""Maps over sequences whose elements are known."""

from __future__ import annotations

from graphopt.ir import Graph, Node, TensorType, Value
from graphopt.rewrite import GraphPass, Mismatch, Outcome, Rewriter
from graphopt.rewrite.inline import adopt, constants_of, replace_by
from graphopt.rewrite.legality import is_visible
from graphopt_passes.folding.unroll import Results, most_rounds, too_many, unroll_all


class EliminateSequenceMapOfConstruct(GraphPass):
    """Replace `SequenceMap` over a `SequenceConstruct` by copies of its body, one for each element.

    Each result is a `SequenceConstruct` of what the copies put out. Further sequences are taken element by element,
    further tensors are given to every copy. The limits are those of `eliminate_loop_with_const_trip_count`.
    """

    name = "eliminate_sequence_map_of_construct"
    opsets = "17-"

    def run(self, graph: Graph, rw: Rewriter) -> None:
        """Unroll the maps of one graph; those inside of their bodies have had their turn."""
        unroll_all(self.name, "SequenceMap", _unroll, graph, rw)


def _unroll(node: Node, rw: Rewriter) -> Outcome:
    body = node.subgraphs.get("body")
    if body is None or len(body.inputs) != len(node.inputs) or len(body.outputs) != len(node.outputs):
        return Mismatch("the body does not fit the map")
    columns: list[list[Value] | Value] = []
    for number, value in enumerate(node.inputs):
        column = _column(value, node, is_sequence=not number)
        if isinstance(column, Mismatch):
            return column
        columns.append(column)
    lengths = {len(column) for column in columns if isinstance(column, list)}
    if len(lengths) != 1:
        return Mismatch("the sequences have different lengths")
    (rounds,) = lengths
    most = most_rounds(body, 0, rw.options.unroll_limit)
    if isinstance(most, Mismatch):
        return most
    if rounds > most:
        return too_many(rounds, most, body)
    return _write_out(rw, node, body, columns, rounds)


def _column(value: Value | None, node: Node, *, is_sequence: bool) -> list[Value] | Value | Mismatch:
    """What an input gives to each round: its elements, or one and the same tensor."""
    if value is None:
        return Mismatch("an input is left out")
    source = value.producer
    if source is not None and source.op == "SequenceConstruct":
        elements = [element for element in source.inputs if element is not None]
        hidden = next((element for element in elements if not is_visible(element, node.graph)), None)
        return elements if hidden is None else Mismatch("{} cannot be read here", hidden.name)
    if isinstance(value.type, TensorType) and not is_sequence:
        return value
    return Mismatch("the elements of {} are not known", value.name)


def _write_out(rw: Rewriter, node: Node, body: Graph, columns: list[list[Value] | Value], rounds: int) -> Outcome:
    shared = constants_of(rw, body)
    rows: list[Results] = []
    for number in range(rounds):
        row = [column[number] if isinstance(column, list) else column for column in columns]
        outputs = adopt(rw, body, {**shared, **dict(zip(body.inputs, row, strict=True))})
        rows.append(outputs)
    results: Results = []
    for index, old in enumerate(node.outputs):
        if old is None or not old.uses:
            results.append(None)
        else:
            results.append(rw.op("SequenceConstruct", *[row[index] for row in rows]))
    return replace_by(rw, node, results, f"{rounds} rounds")
