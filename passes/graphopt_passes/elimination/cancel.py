"""Pairs of operators that undo each other."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import int_list, made_by, normal_axes, pass_on, same_shape

_EMPTY = Mismatch("the list of axes is empty, which the standard and runtimes read differently")


class EliminateDoubleNegation(OpRule):
    """Remove both of two `Neg`, `Not` or `BitwiseNot` in a row."""

    name = "eliminate_double_negation"
    ops = ("BitwiseNot", "Neg", "Not")

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look one step up."""
        found = _before(node, (node.op,))
        if found is None or isinstance(found, Mismatch) or found.inputs[0] is None:
            return found if isinstance(found, Mismatch) else None
        return pass_on(node, found.inputs[0], rw)


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
        value, y = node.inputs[0], node.outputs[0]
        if value is None or y is None:
            return None
        if int_list(node, "axes", 1, 13) == ():
            return _EMPTY
        if same_shape(value, y):
            return rw.replace(node, [value])
        first = _before(node, ("Squeeze",) if node.op == "Unsqueeze" else ("Unsqueeze",))
        if first is None or isinstance(first, Mismatch):
            return first
        x = first.inputs[0]
        if x is None:
            return None
        if int_list(first, "axes", 1, 13) == ():
            return _EMPTY
        if same_shape(x, y):
            return pass_on(node, x, rw)
        problem = _differ(first, node, x, value)
        return pass_on(node, x, rw) if problem is None else problem


def _before(node: Node, ops: tuple[str, ...]) -> Node | Mismatch | None:
    """The producer of the first input when it is one of certain operators of the same graph."""
    value = node.inputs[0]
    first = made_by(value, *ops)
    if value is None or first is None:
        return None
    if first.graph is not node.graph:
        return Mismatch("{} is computed in an outer graph", value.name)
    return first


def _differ(first: Node, second: Node, x: Value, middle: Value) -> Mismatch | None:
    """Why the axes taken away may not be those put in."""
    a, b = int_list(first, "axes", 1, 13), int_list(second, "axes", 1, 13)
    for axes in (a, b):
        if isinstance(axes, Mismatch):
            return axes
    if a is None or b is None or isinstance(a, Mismatch) or isinstance(b, Mismatch):
        return Mismatch("the axes of size 1 are not known")
    if all(axis >= 0 for axis in (*a, *b)):
        return None if sorted(a) == sorted(b) else Mismatch("axes {} against {}", list(a), list(b))
    rank = x.rank if first.op == "Squeeze" else middle.rank
    if rank is None:
        return Mismatch("the rank of {} is not known", x.name)
    if normal_axes(a, rank) is None or normal_axes(a, rank) != normal_axes(b, rank):
        return Mismatch("axes {} against {}", list(a), list(b))
    return None
