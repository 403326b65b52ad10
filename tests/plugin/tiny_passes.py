"""A third party's pass library: one rule, and the function that its entry point names."""

from graphopt.rewrite import OpRule


class CancelDoubleNegation(OpRule):
    """Remove two `Neg` in a row."""

    name = "cancel_double_negation"
    ops = ("Neg",)

    def rewrite(self, node, rw):
        first = node.inputs[0].producer
        if first is None or first.op != "Neg":
            return None
        return rw.replace(node, [first.inputs[0]])


def catalogue():
    """The passes by name."""
    return {"cancel_double_negation": "tiny_passes:CancelDoubleNegation"}
