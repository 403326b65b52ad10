"""Sequences built from one tensor only to be taken apart again."""

from __future__ import annotations

from graphopt.operators import Split, Squeeze
from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter

_MOST_PARTS = 256
"""A sequence of more parts is not replaced."""


class ReplaceSplitToSequence(OpRule):
    """Replace `SplitToSequence` with `Split`, where the sequence is only read element by element.

    The size of the axis and the sizes of the parts must be known, and every reader must be a `SequenceAt` with a
    constant position, a `SequenceLength` or a `ConcatFromSequence`.
    """

    ops = ("SplitToSequence",)
    opsets = "11-"
    peers = {"onnxscript": "FoldConstantsPass"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Write the parts, without the axis if each is a single position and `keepdims` is 0."""
        sequence = node.result
        if sequence.output_count or not all(map(_takes_elements, sequence.users)):
            raise Decline("{} is used as a sequence", sequence.name)
        split = Split.of_sequence(node, _MOST_PARTS)
        parts = split.write(rw) if len(split.sizes) > 1 else (split.x,)
        if node.input(1) is None and not node.attr("keepdims", 1):
            parts = tuple([Squeeze(part, (split.axis,)).write(rw) for part in parts])
        return rw.replace(node, [rw.op("SequenceConstruct", *parts)])


def _takes_elements(user: Node) -> bool:
    """Whether a reader can be folded with the `SequenceConstruct` before it."""
    if user.op == "SequenceAt":
        return user.operand(1).is_const
    return user.op in ("ConcatFromSequence", "SequenceLength")
