"""Branches that are always, or never, taken."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Graph, Node, Value
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt.rewrite.inline import adopt
from graphopt_passes.elimination.facts import is_visible


class EliminateIfWithConstCond(OpRule):
    """Replace `If` with a constant condition by the contents of the branch it takes.

    Names are fresh, captured values are those that the branch captured, and its initializers move along. Where the
    branch puts out a value that it did not compute itself, and so does the graph, an `Identity` or `Constant` stands
    between the two.
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
        array = condition.const(64)
        if array is None:
            return Mismatch("{} is not constant", condition.name)
        if array.size != 1:
            return Mismatch("{} holds {} elements", condition.name, array.size)
        branch = node.subgraphs.get("then_branch" if array.reshape(-1)[0] else "else_branch")
        if branch is None or len(branch.outputs) != len(node.outputs):
            return None
        results = adopt(rw, branch)
        if isinstance(results, Mismatch):
            return results
        values = _replacements(node, branch, results, rw)
        return values if isinstance(values, Mismatch) else rw.replace(node, values)


def _replacements(node: Node, branch: Graph, results: list[Value], rw: Rewriter) -> list[Value | None] | Mismatch:
    """What takes the place of each output of an `If`."""
    values: list[Value | None] = []
    for old, inner, new in zip(node.outputs, branch.outputs, results, strict=True):
        if old is None or not (old.users or old.output_count):
            values.append(None)
        elif inner.graph is not branch and not all(is_visible(new, user.graph) for user in old.users):
            return Mismatch("{} is hidden where {} is read", new.name, old.name)
        elif not old.output_count or (inner.graph is branch and inner.producer is not None and new not in values):
            values.append(new)
        elif inner.graph is branch and inner.tensor is not None:
            values.append(rw.op("Constant", value=inner.tensor))
        else:
            values.append(rw.op("Identity", new))
    return values
