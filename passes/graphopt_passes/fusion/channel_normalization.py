"""Normalizations along the channels of images where no layout is chosen."""

from __future__ import annotations

from graphopt.ir import Value
from graphopt.match import Match
from graphopt.rewrite import Level, Rewriter
from graphopt_passes.algorithm.work import Weighed, size_of
from graphopt_passes.layout.axes import ConvertLayerNormalizationAxis


class ConvertChannelNormalizationToLast(Weighed, ConvertLayerNormalizationAxis):
    """Compute a normalization over channels that is written out by `LayerNormalization` between two `Transpose`.

    It is `convert_layer_normalization_axis` where no layout is chosen, and comes before its reductions are other forms.
    """

    level = Level.EXTENDED

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        if m.norm is None:
            size = size_of(m.x)
            then = {"kernel": 3, "move": 2 * size, "normalize": size}
            reduced = "reduce leading" if m.x.dims()[0] == 1 else "reduce"
            self.weigh(rw, {"kernel": 8, "element": 4 * size, reduced: 2 * size}, then)
        return super().rewrite(m, rw)
