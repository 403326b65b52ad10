"""Channel permutations between convolutions."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from graphopt.operators import Gather, Split
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.fusion.channels import shuffled
from graphopt_passes.layout.blocks import ForBlocks


class ConvertChannelShuffleToGather(ForBlocks, OpRule):
    """Replace a channel shuffle with one `Gather`, or with one for each part of a `Split` after it.

    A shuffle is a `Transpose` of groups and members between two `Reshape`. `Gather` copies whole channels.
    """

    ops = ("Reshape", "Split")
    numerics = Numerics.EXACT

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Replace a shuffle at its last node, the `Split` if there is one."""
        if node.op == "Split":
            return self._split(node, rw)
        shuffle = shuffled(node.result, node)
        if _is_split_alone(node.result):
            raise Decline
        return rw.replace(node, [shuffle.write(rw)])

    def _split(self, node: Node, rw: Rewriter) -> Outcome:
        value = node.operand(0)
        shuffle, split = shuffled(value, node), Split.of(node)
        if split.axis != 1:
            raise Decline
        value.check_one_use()
        if sum(split.sizes) != len(shuffle.positions) or None in node.outputs:
            raise Decline("{} is not split at known channels", value.name)
        pieces = np.split(shuffle.positions, split.starts[1:])
        return rw.replace(node, [Gather(shuffle.x, 1, piece).write(rw) for piece in pieces])


def _is_split_alone(value: Value) -> bool:
    """Whether the only reader of a value is a `Split` of the channels into parts of known size."""
    reader = value.read_by("Split")
    if reader is not None:
        with suppress(Decline):
            return Split.of(reader).axis == 1
    return False
