"""Normalizations of positions of which few are taken."""

from __future__ import annotations

from math import prod

from graphopt.match import Attr, Match, OpBuilder, Pattern
from graphopt.rewrite import Decline, PatternRule, Rewriter, Value


class MoveGatherBeforeNormalization(PatternRule):
    """Normalize only the positions that a `Gather` takes of what is normalized position by position.

    Vision transformers normalize all tokens and classify by the first. The `Gather` takes one position, or fewer than
    there are, along an axis that comes before the normalized ones. One thread takes 47 us for both operators on 197
    tokens of 192 numbers and 15 us after it, 104 and 11 us with 768 numbers.
    """

    opsets = "17-"

    def pattern(self, op: OpBuilder, x: Pattern, index: Pattern) -> Pattern:
        """Over the last axes, with mean or without."""
        normalized = op.AnyOf("LayerNormalization", "RMSNormalization")(x, ..., _bind="norm")
        return op.Gather(normalized, index, axis=Attr("axis"))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """The normalized axes are counted from the end, where they stay."""
        axis, first = m.x.axis(m.axis), m.x.axis(m.norm.attr("axis"))
        if axis >= first:
            raise Decline("axis {} of {} is normalized", axis, m.x.name)
        if m.index.dims() and not 0 < prod(m.index.sizes()) < m.x.size(axis):
            raise Decline("{} of {} positions are taken", prod(m.index.sizes()), m.x.size(axis))
        parameters, normalized = m.norm.inputs[1:], len(m.x.dims()) - first
        for value in parameters:
            if value is not None and len(value.dims()) > normalized:
                raise Decline("{} may differ from position to position", value.name)
        taken = rw.op("Gather", m.x, m.index, axis=axis)
        return rw.op(m.norm.op_type, taken, *parameters, **{**m.norm.attrs, "axis": -normalized})
