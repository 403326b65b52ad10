"""Passes for arithmetic that exporters write in more steps than it takes."""


def catalogue():
    """Where each pass is; a module is imported when its pass is first asked for."""
    return {"fuse_neg_into_sub": "graphopt_arithmetic.negation:FuseNegIntoSub"}
