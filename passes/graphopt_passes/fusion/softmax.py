"""Logarithms of softmax."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Node
from graphopt.rewrite import Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by, only_reader


class FuseConsecutiveLogSoftmax(OpRule):
    """Join `Softmax` and `Log` into `LogSoftmax`.

    Where `Softmax` rounds to zero the logarithm is minus infinity, and `LogSoftmax` gives the right finite number: more
    exact, but not the same, so it takes `numerics="fast"`.
    """

    name = "fuse_consecutive_log_softmax"
    ops = ("Log",)
    numerics = Numerics.FAST
    peers: ClassVar[dict[str, str]] = {"onnxoptimizer": "fuse_consecutive_log_softmax"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Keep the attributes of the softmax."""
        value = node.input(0)
        softmax = made_by(value, "Softmax")
        if value is None or softmax is None:
            return None
        problem = only_reader(value, node)
        if problem is not None:
            return problem
        return rw.replace(node, [rw.op("LogSoftmax", softmax.inputs[0], **softmax.attrs)])
