"""Passes for arithmetic that exporters write with more operators than necessary."""


def catalogue():
    """The location of each pass; its module is imported when the pass is first used."""
    return {"fuse_neg_into_sub": "graphopt_arithmetic.negation:FuseNegIntoSub"}
