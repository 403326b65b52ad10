"""A third party's pass library whose one rule is wrong, for what is to find it."""

from graphopt.errors import Decline
from graphopt.rewrite import OpRule


class DropAbsBeforeRelu(OpRule):
    """Remove `Abs` in front of `Relu`, as if no number were negative."""

    name = "drop_abs_before_relu"
    ops = ("Relu",)

    def rewrite(self, node, rw):
        first = node.operand(0).producer
        if first is None or first.op != "Abs":
            raise Decline
        return rw.replace(node, [rw.op("Relu", first.operand(0))])


def catalogue():
    """The passes by name."""
    return {"drop_abs_before_relu": "wrong_passes:DropAbsBeforeRelu"}
