"""Branches that are always, or never, taken."""

from __future__ import annotations

from graphopt.rewrite import Decline, Graph, Node, OpRule, Outcome, Rewriter, Value
from graphopt.rewrite.inline import adopt, check_effects, replace_by


class EliminateIfWithConstCond(OpRule):
    """Replace `If` with a known condition by the contents of the branch it takes.

    A condition is known where it is constant, inside of a branch of another `If` with the same condition or its
    negation, and where it is the condition of a loop that goes on. Names are fresh, and initializers move along. Where
    the branch gives a value that it did not compute, as an output of the graph, an `Identity` or `Constant` stands
    between the two.
    """

    ops = ("If",)
    peers = {
        "onnxoptimizer": "eliminate_if_with_const_cond",
        "onnxruntime": "ConstantFolding",
        "onnxscript": "FoldConstantsPass",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        taken = known_condition(node.operand(0), node.graph)
        branch = node.subgraphs.get("then_branch" if taken else "else_branch")
        if branch is None or len(branch.outputs) != len(node.outputs):
            raise Decline("the branch does not fit the If")
        check_effects(node, branch)
        return replace_by(rw, node, adopt(rw, branch))


def known_condition(condition: Value, graph: Graph) -> bool:
    """What a condition always holds in a graph: a branch knows the one that it was taken for."""
    if condition.is_const:
        return bool(only_element(condition))
    value, sign = _without_not(condition)
    owner = value.graph.owner
    if owner is not None and owner.op == "Loop" and value in value.graph.inputs[1:2]:
        return sign  # a round only begins while its condition holds
    scope = graph
    while outer := scope.owner:
        if outer.op == "If":
            known, same = _without_not(outer.operand(0))
            if known is value:
                return (outer.subgraphs.get("then_branch") is scope) == (sign == same)
        scope = outer.graph
    raise Decline("{} is not constant", condition.name)


def only_element(value: Value) -> int | bool:
    """The one element of a constant: a condition, or a number of rounds."""
    array = value.array()
    if array.size != 1:
        raise Decline("{} holds {} elements", value.name, array.size)
    element: int | bool = array.item()
    return element


def _without_not(value: Value) -> tuple[Value, bool]:
    """The value behind any number of `Not`, and whether it is the same as the value."""
    same = True
    while negation := value.made_by("Not"):
        value, same = negation.operand(0), not same
    return value, same
