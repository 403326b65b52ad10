"""The base of rules that write for ONNX Runtime's blocked (NCHWc) kernels."""

from graphopt.rewrite import Level, Numerics, Rule

DOMAIN = "com.microsoft.nchwc"


class ForBlocks(Rule):
    """A rule whose result is faster in the blocked layout, or next to blocked operators."""

    level = Level.LAYOUT
    numerics = Numerics.ROUNDING
    opsets = "7-"
