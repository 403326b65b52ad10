"""Maps over sequences whose elements are known."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.errors import Decline
from graphopt.ir import Graph, Node, TensorType, Value
from graphopt.rewrite import Rewriter
from graphopt.rewrite.legality import is_visible
from graphopt_passes.folding.unroll import Rounds, Unrolling, check_rounds, most_rounds


class EliminateSequenceMapOfConstruct(Unrolling):
    """Replace `SequenceMap` over a `SequenceConstruct` by copies of its body, one for each element.

    Each result is a `SequenceConstruct` of what the copies put out. Further sequences are taken element by element,
    further tensors are given to every copy. The limits are those of `eliminate_loop_with_const_trip_count`.
    """

    name = "eliminate_sequence_map_of_construct"
    opsets = "17-"
    op = "SequenceMap"

    def rounds(self, node: Node, body: Graph, rw: Rewriter) -> Rounds:
        """The body gets an element of each sequence, and carries nothing."""
        if len(body.inputs) != len(node.inputs) or len(body.outputs) != len(node.outputs):
            raise Decline("the body does not fit the map")
        values = [node.operand(index) for index in range(len(node.inputs))]
        tensors = {v for v in values[1:] if isinstance(v.type, TensorType)}
        sequences = {v: _elements(v, node) for v in values if v not in tensors}
        lengths = {len(elements) for elements in sequences.values()}
        if len(lengths) != 1:
            raise Decline("the sequences have different lengths")
        count = lengths.pop()
        check_rounds(count, most_rounds(body, 0, rw.options.unroll_limit), body)

        def given(number: int) -> dict[Value, Value]:
            row = (value if value in tensors else sequences[value][number] for value in values)
            return dict(zip(body.inputs, row, strict=True))

        return Rounds(count, {}, given, lambda _, results: rw.op("SequenceConstruct", *results))


def _elements(sequence: Value, reader: Node) -> Sequence[Value]:
    """What a sequence holds, if all of it can be read where the reader is."""
    construct = sequence.made_by("SequenceConstruct")
    if construct is None:
        raise Decline("the elements of {} are not known", sequence.name)
    elements = [element for element in construct.inputs if element is not None]
    for element in elements:
        if not is_visible(element, reader.graph):
            raise Decline("{} cannot be read here", element.name)
    return elements
