"""`If` whose branch is known."""

from __future__ import annotations

from graphopt.rewrite import Decline, Graph, Node, OpRule, Outcome, Rewriter, Value
from graphopt.rewrite.inline import adopt, check_effects, replace_by


class EliminateIfWithConstCond(OpRule):
    """Replace an `If` whose condition is known with the body of the branch that is taken.

    A condition is known if it is constant, inside a branch of another `If` with the same condition or its negation,
    and in a loop body if it is the loop's condition. Values get fresh names, and initializers move along. If the branch
    passes through a captured value or a constant, and the result is a graph output, an `Identity` or `Constant`
    connects the two.
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
            raise Decline("the outputs of the branch do not match those of the If")
        check_effects(node, branch)
        return replace_by(rw, node, adopt(rw, branch))


def known_condition(condition: Value, graph: Graph) -> bool:
    """The value of a condition in a graph; in a branch, the condition of its `If` is known."""
    if condition.is_const:
        return bool(only_element(condition))
    value, sign = _without_not(condition)
    owner = value.graph.owner
    if owner is not None and owner.op == "Loop" and value in value.graph.inputs[1:2]:
        return sign  # an iteration starts only if its condition is true
    scope = graph
    while outer := scope.owner:
        if outer.op == "If":
            known, same = _without_not(outer.operand(0))
            if known is value:
                return (outer.subgraphs.get("then_branch") is scope) == (sign == same)
        scope = outer.graph
    raise Decline("{} is not constant", condition.name)


def only_element(value: Value) -> int | bool:
    """The only element of a constant: a condition, or a trip count."""
    array = value.array()
    if array.size != 1:
        raise Decline("{} has {} elements, expected 1", value.name, array.size)
    if array.dtype.kind not in "biu":
        raise Decline("{} is of type {}, expected a boolean or an integer", value.name, array.dtype)
    element: int | bool = array.item()
    return element


def _without_not(value: Value) -> tuple[Value, bool]:
    """The value before a chain of `Not`, and whether their number is even."""
    same = True
    while negation := value.made_by("Not"):
        value, same = negation.operand(0), not same
    return value, same
