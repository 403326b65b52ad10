"""Operators that pass their input on."""

from __future__ import annotations

from graphopt.rewrite import Node, OpRule, Outcome, Rewriter


class EliminateIdentity(OpRule):
    """Remove `Identity`: every reader of its output reads its input instead.

    Kept where it links two interface values, for example a graph input and a graph output.
    """

    ops = ("Identity",)
    peers = {
        "onnxoptimizer": "eliminate_identity",
        "onnxruntime": "EliminateIdentity",
        "onnxscript": "IdentityEliminationPass",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        return rw.replace(node, [node.operand(0)])
