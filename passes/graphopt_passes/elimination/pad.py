"""Padding by nothing."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Node
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import int_list


class EliminateNopPad(OpRule):
    """Remove `Pad` whose pads are all zero, whatever its mode."""

    name = "eliminate_nop_pad"
    ops = ("Pad",)
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "eliminate_nop_pad",
        "onnxsim": "eliminate_nop_pad",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Read the pads, which had three forms over time."""
        pads = int_list(node, "paddings" if node.graph.opset() < 2 else "pads", 1, 11)
        if pads is None or isinstance(pads, Mismatch):
            return pads
        return None if any(pads) else rw.replace(node, [node.inputs[0]])
