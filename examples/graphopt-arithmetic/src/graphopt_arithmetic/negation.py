"""Sums with a negated operand."""

from graphopt.rewrite import Level, Numerics, PatternRule


class FuseNegIntoSub(PatternRule):
    """Write `x + (-y)` as `x - y`.

    IEEE 754 defines subtraction as the addition of the negated operand, so the results are bit-equal.
    """

    family = "arithmetic"
    level = Level.BASIC
    numerics = Numerics.EXACT

    def pattern(self, op, x, y):
        """The negated operand may be on either side."""
        return op.Add(x, op.Neg(y))

    def rewrite(self, m, rw):
        """One operator."""
        return rw.op("Sub", m.x, m.y)
