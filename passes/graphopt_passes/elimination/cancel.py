"""Pairs of operators that undo each other."""

from __future__ import annotations

from typing import ClassVar

from graphopt.errors import Decline
from graphopt.ir import Node
from graphopt.operators import Squeeze, Unsqueeze
from graphopt.rewrite import OpRule, Outcome, Rewriter


class EliminateDoubleNegation(OpRule):
    """Remove both of two `Neg`, `Not` or `BitwiseNot` in a row."""

    name = "eliminate_double_negation"
    ops = ("BitwiseNot", "Neg", "Not")

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look one step up."""
        return rw.pass_on(node, node.operand(0).source(node.op, reader=node).operand(0))


class EliminateSqueezeUnsqueeze(OpRule):
    """Remove `Squeeze` and `Unsqueeze` that undo each other, or that have nothing to do.

    The first of a pair stays for its other readers, where it has any.
    """

    name = "eliminate_squeeze_unsqueeze"
    ops = ("Squeeze", "Unsqueeze")
    peers: ClassVar[dict[str, str]] = {
        "onnxsim": "fuse_consecutive_squeeze_unsqueeze",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Compare the axes of both, counted in the longer shape."""
        value, y = node.operand(0), node.result
        _check_lists_axes(node)
        if value.has_shape_of(y):
            return rw.replace(node, [value])
        first = value.source("Squeeze" if node.op == "Unsqueeze" else "Unsqueeze", reader=node)
        _check_lists_axes(first)
        x = first.operand(0)
        if not x.has_shape_of(y):
            squeeze, unsqueeze = (first, node) if first.op == "Squeeze" else (node, first)
            gone, come = Squeeze.of(squeeze).axes, Unsqueeze.of(unsqueeze).axes
            if gone != come:
                raise Decline("axes {} go, {} come", gone, come)
        return rw.pass_on(node, x)


def _check_lists_axes(node: Node) -> None:
    axes = node.input(1)
    if node.attr("axes") == () or (axes is not None and axes.shape == (0,)):
        raise Decline("the list of axes is empty, which the standard and runtimes read differently")
