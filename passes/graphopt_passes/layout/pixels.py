"""Images of a single pixel, for which blocked and plain layout are the same."""

from __future__ import annotations

from graphopt.rewrite import Decline, Level, Node, Numerics, OpRule, Outcome, Rewriter
from graphopt.system.machine import BLOCKS, host

_REORDERS = ("com.microsoft.nchwc::ReorderInput", "com.microsoft.nchwc::ReorderOutput")


class EliminateNopReorder(OpRule):
    """Remove `ReorderInput` and `ReorderOutput` of images of one pixel, which move nothing.

    [N, C/b, 1, 1, b] has its numbers in the order of [N, C, 1, 1] where the channels fill their blocks.
    """

    ops = _REORDERS
    level = Level.ALL
    numerics = Numerics.EXACT
    opsets = "7-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x = node.operand(0)
        dims, block = x.dims(), (rw.options.target or host()).block
        if len(dims) != 4 or dims[2:] != (1, 1):
            raise Decline
        channels = dims[1]
        if block not in BLOCKS or not isinstance(channels, int) or channels % block:
            raise Decline("the {} channels of {} do not fill blocks", channels, x.name)
        if node.op == _REORDERS[1] and node.attr("channels") != channels:
            raise Decline("{} of the {} channels of {} are meant", node.attr("channels"), channels, x.name)
        if node.attr("channels_last", 0) and node.op == _REORDERS[0]:
            raise Decline("{} has its channels last", x.name)
        return rw.replace(node, [x])
