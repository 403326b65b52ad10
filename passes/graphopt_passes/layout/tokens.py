"""Images that are tokens, or that have a single pixel."""

from __future__ import annotations

from graphopt.ir.types import agree
from graphopt.match import Either, Match, OpBuilder, Pattern, Var
from graphopt.operators.transpose import FIRST, LAST
from graphopt.rewrite import Decline, Level, Node, Numerics, OpRule, Outcome, PatternRule, Rewriter, Value
from graphopt.system.machine import BLOCKS
from graphopt_passes.layout.blocks import ForBlocks


class ConvertTokensToImage(ForBlocks, PatternRule):
    """Convert between tokens and an image by a `Transpose` of four dimensions.

    [N, H*W, C] transposed and reshaped to [N, C, H, W] is [N, H, W, C] with the channels moved to axis 1. Next to a
    convolution in blocked layout that `Transpose` becomes part of the reorder that is there anyway.
    """

    numerics = Numerics.EXACT

    def pattern(self, op: OpBuilder) -> Pattern:
        """Either direction; shapes may be written in any form."""
        into_image = op.Reshape(op.Transpose(Var("tokens"), perm=(0, 2, 1)), Var(), _other_attrs=True)
        return Either(into_image, op.Transpose(op.Reshape(Var("image"), Var(), _other_attrs=True), perm=(0, 2, 1)))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        result = m.root.result
        if m.image is None:
            if result.is_output or not all(user.op == "Conv" and user.inputs[0] is result for user in result.users):
                raise Decline
            batch, channels, *image = _compared(m.tokens, result)
            return rw.op("Transpose", rw.op("Reshape", m.tokens, shape=(batch, *image, channels)), perm=FIRST)
        m.image.source("Conv", reader=m.root)
        batch, channels, height, width = _compared(result, m.image)
        rows = rw.op("Transpose", m.image, perm=LAST)
        return rw.op("Reshape", rows, shape=(batch, height * width, channels))


def _compared(tokens: Value, image: Value) -> tuple[int, int, int, int]:
    """The sizes of the image of tokens [N, H*W, C]; 0 for a batch of unknown size, which `Reshape` copies."""
    rows, dims = tokens.dims(), image.dims()
    if len(rows) != 3 or len(dims) != 4:
        raise Decline("{} and {} are not tokens of rank 3 and an image of rank 4", tokens.name, image.name)
    batch = dims[0]
    if batch == 0 or not agree(batch, rows[0]):
        raise Decline("{} and {} may differ in batch", tokens.name, image.name)
    channels, height, width = (image.size(axis) for axis in (1, 2, 3))
    if rows[1:] != (height * width, channels) or not height * width * channels:
        raise Decline("the channels of {} are not those of {}", image.name, tokens.name)
    return batch if isinstance(batch, int) else 0, channels, height, width


_REORDERS = ("com.microsoft.nchwc::ReorderInput", "com.microsoft.nchwc::ReorderOutput")


class EliminateNopReorder(OpRule):
    """Remove `ReorderInput` and `ReorderOutput` of images of one pixel, which move nothing.

    [N, C/b, 1, 1, b] has its elements in the order of [N, C, 1, 1] if the channels fill their blocks.
    """

    ops = _REORDERS
    level = Level.ALL
    numerics = Numerics.EXACT
    opsets = "7-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x = node.operand(0)
        dims, block = x.dims(), rw.target.block
        if len(dims) != 4 or dims[2:] != (1, 1):
            raise Decline
        channels = dims[1]
        if block not in BLOCKS or not isinstance(channels, int) or channels % block:
            raise Decline("the {} channels of {} do not fill blocks", channels, x.name)
        if node.op == _REORDERS[1] and node.attr("channels") != channels:
            raise Decline("only {} of the {} channels of {} are reordered", node.attr("channels"), channels, x.name)
        if node.attr("channels_last", 0):
            raise Decline("{} has its channels last", x.name)
        return rw.replace(node, [x])
