"""Sequences that are made of one tensor only to be taken apart again."""

from __future__ import annotations

from graphopt.operators import Split, Squeeze
from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter

_MOST_PARTS = 256
"""No sequence of more parts is replaced."""


class ReplaceSplitToSequence(OpRule):
    """Turn `SplitToSequence` into `Split`, where all that is done with the sequence is to take its elements.

    The size of the axis and the sizes of the parts have to be known, and every reader is a `SequenceAt` with a
    constant position, a `SequenceLength` or a `ConcatFromSequence`.
    """

    ops = ("SplitToSequence",)
    opsets = "11-"
    peers = {"onnxscript": "FoldConstantsPass"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Write the parts, without the axis where each is one position that does not keep it."""
        sequence = node.result
        if sequence.output_count or not all(map(_takes_elements, sequence.users)):
            raise Decline("{} is used as a sequence", sequence.name)
        split = Split.of_sequence(node, _MOST_PARTS)
        parts = split.write(rw) if len(split.sizes) > 1 else (split.x,)
        if node.input(1) is None and not node.attr("keepdims", 1):
            parts = tuple([Squeeze(part, (split.axis,)).write(rw) for part in parts])
        return rw.replace(node, [rw.op("SequenceConstruct", *parts)])


def _takes_elements(user: Node) -> bool:
    """Whether it sees through the construction of a sequence."""
    if user.op == "SequenceAt":
        return user.operand(1).is_const
    return user.op in ("ConcatFromSequence", "SequenceLength")
