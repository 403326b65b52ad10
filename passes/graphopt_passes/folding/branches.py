"""Branches that are always, or never, taken."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Graph, Node, Value
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt.rewrite.inline import adopt, check_effects, replace_by


class EliminateIfWithConstCond(OpRule):
    """Replace `If` with a known condition by the contents of the branch it takes.

    A condition is known where it is constant, inside of a branch of another `If` with the same condition or its
    negation, and where it is the condition of a loop that goes on. Names are fresh, captured values are those that
    the branch captured, and its initializers move along. Where the branch puts out a value that it did not compute
    itself, and so does the graph, an `Identity` or `Constant` stands between the two.
    """

    name = "eliminate_if_with_const_cond"
    ops = ("If",)
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "eliminate_if_with_const_cond",
        "onnxruntime": "ConstantFolding",
        "onnxscript": "FoldConstantsPass",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Copy the branch."""
        condition = node.input(0)
        if condition is None:
            return None
        taken = known_condition(condition, node.graph)
        if isinstance(taken, Mismatch):
            return taken
        branch = node.subgraphs.get("then_branch" if taken else "else_branch")
        if branch is None or len(branch.outputs) != len(node.outputs):
            return None
        check_effects(node, branch)
        return replace_by(rw, node, adopt(rw, branch))


def known_condition(condition: Value, graph: Graph) -> bool | Mismatch:
    """What a condition that is read in a graph always holds there, or why that is not known.

    Args:
        condition: a boolean with one element.
        graph: where it is read: a branch knows the condition it was taken for.
    """
    array = condition.const(64)
    if array is not None:
        if array.size != 1:
            return Mismatch("{} holds {} elements", condition.name, array.size)
        return bool(array.reshape(-1)[0])
    value, sign = _without_not(condition)
    owner = value.graph.owner
    if owner is not None and owner.op == "Loop" and value in value.graph.inputs[1:2]:
        return sign  # a round only begins while its condition holds
    scope: Graph | None = graph
    while scope is not None and scope.owner is not None:
        decided = scope.owner.input(0) if scope.owner.op == "If" else None
        if decided is not None:
            known, same = _without_not(decided)
            if known is value:
                return (scope.owner.subgraphs.get("then_branch") is scope) == (sign == same)
        scope = scope.parent
    return Mismatch("{} is not constant", condition.name)


def _without_not(value: Value) -> tuple[Value, bool]:
    """The value behind any number of `Not`, and whether it is the same as the value."""
    same = True
    while value.producer is not None and value.producer.op == "Not" and value.producer.inputs[0] is not None:
        value, same = value.producer.inputs[0], not same
    return value, same
