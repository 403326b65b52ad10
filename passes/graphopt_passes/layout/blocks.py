"""What rules that write for ONNX Runtime's blocked kernels, NCHWc, have in common."""

from graphopt.rewrite import Level, Numerics, Rule

DOMAIN = "com.microsoft.nchwc"


class ForBlocks(Rule):
    """A rule whose result is faster in the blocked layout, or beside what is in it."""

    level = Level.LAYOUT
    numerics = Numerics.ROUNDING
    opsets = "7-"
