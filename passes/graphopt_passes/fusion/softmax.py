"""Logarithms of softmax."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Node
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter


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
        softmax = value.producer if value is not None else None
        if value is None or softmax is None or softmax.op != "Softmax":
            return None
        if softmax.graph is not node.graph:
            return Mismatch("{} is computed in an outer graph", value.name)
        if not value.one_use:
            return Mismatch("{} has other readers", value.name)
        return rw.replace(node, [rw.op("LogSoftmax", softmax.inputs[0], **softmax.attrs)])
