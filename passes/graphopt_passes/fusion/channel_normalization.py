"""Normalizations along the channels of images where no layout is chosen."""

from __future__ import annotations

import numpy as np

from graphopt.ir import Value
from graphopt.match import FLOAT32, Match, OpBuilder, Pattern
from graphopt.operators import Reshape, Transpose
from graphopt.rewrite import Decline, Level, Numerics, PatternRule, Rewriter
from graphopt_passes.algorithm.work import Weighed, check_count, joined, size_of
from graphopt_passes.fusion.normalization import checked_axes, layer_normalization
from graphopt_passes.layout.axes import ConvertLayerNormalizationAxis


class ConvertChannelNormalizationToLast(Weighed, ConvertLayerNormalizationAxis):
    """Replace a written-out normalization over channels with `LayerNormalization` between two `Transpose`.

    This is `convert_layer_normalization_axis` where no layout is chosen; it runs before other passes change the
    reductions.
    """

    level = Level.EXTENDED

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        if m.norm is None:
            size = size_of(m.x)
            then = {"kernel": 3, "move": 2 * size, "normalize": size}
            reduced = "reduce leading" if m.x.dim(0) == 1 else "reduce"
            self.weigh(rw, {"kernel": 8, "element": 4 * size, reduced: 2 * size}, then)
        return super().rewrite(m, rw)


class ConvertGroupsToInstanceNormalization(Weighed, PatternRule):
    """Replace a written-out group normalization, channels last, with `InstanceNormalization` between two `Transpose`.

    Keras writes it out, with axes on both sides of the groups, along which the reductions of ONNX Runtime are slow. One
    thread takes 45 us instead of 280 for 32x32 pixels of 16 channels in 4 groups, 254 instead of 1421 for 64x64 of 32
    in 8. Channels before positions is the order of convolutions, so these `Transpose` nodes meet theirs.
    """

    level = Level.EXTENDED
    opsets = "7-"
    numerics = Numerics.ROUNDING

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        return layer_normalization(op, x)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        axes, rank = checked_axes(m), len(m.x.dims())
        kept = [axis for axis in range(rank) if axis not in axes]
        if len(kept) != 2 or kept[0] != 0 or not 1 < kept[1] < rank - 1:
            raise Decline("the normalized axes of {} are not those on both sides of one inner axis", m.x.name)
        batch, groups = m.x.dims()[0], m.x.size(kept[1])
        size = size_of(m.x)
        check_count(groups)
        # The kernel reads the first element even of an empty tensor, which crashes the process.
        if 0 in (batch, groups, *map(m.x.size, axes)):
            raise Decline("{} is empty", m.x.name)
        self.weigh(rw, {"kernel": 7, "element": 3 * size, "reduce": 2 * size}, {"kernel": 5, "element": 3 * size})
        moved = Transpose(m.x, (*kept, *range(kept[1] + 1, rank), *range(1, kept[1])))
        dims = tuple(m.x.dims()[axis] for axis in moved.perm)
        flat = (batch, groups, joined(dims[2:]))
        rows = Reshape.to(moved.write(rw), flat, before=dims).write(rw)
        ones, zeros = np.ones(groups, np.float32), np.zeros(groups, np.float32)
        normal = rw.op("InstanceNormalization", rows, ones, zeros, epsilon=m.epsilon)
        parted = Reshape.to(normal, dims, before=flat).write(rw)
        return Transpose(parted, moved.inverse).write(rw)
