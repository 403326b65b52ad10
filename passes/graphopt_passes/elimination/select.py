"""Operators that choose where there is nothing to choose."""

from __future__ import annotations

import numpy as np

from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value

_ADDING_UP = ("Mean", "Sum")


class EliminateNopVariadic(OpRule):
    """Remove `Max`, `Mean`, `Min` and `Sum` of one input, and `And`, `Or`, `Max`, `Min` of a value with itself."""

    ops = ("And", "BitwiseAnd", "BitwiseOr", "Max", "Min", "Or", *_ADDING_UP)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        if len(set(node.inputs)) != 1 or (len(node.inputs) > 1 and node.op in _ADDING_UP):
            raise Decline
        return rw.replace(node, [node.operand(0)])


class EliminateNopWhere(OpRule):
    """Remove `Where` between a value and itself, or with a condition that is constant throughout.

    Broadcasting must not enlarge what is chosen. Runtimes add the two sides up, with 0 where one is not chosen, so that
    a negative zero loses its sign; hence the level `rounding`.
    """

    ops = ("Where",)
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        operands = condition, x, other = node.operand(0), node.operand(1), node.operand(2)
        chosen = _chosen(condition, x, other)
        if not chosen.has_shape_of(node.result):
            for value in operands:
                if value is not chosen:
                    value.check_fits(chosen)
        return rw.replace(node, [chosen])


def _chosen(condition: Value, x: Value, other: Value) -> Value:
    """The operand that `Where` takes every element from."""
    if x is other or condition.holds(True):
        return x
    if condition.holds(False):
        return other
    raise Decline("{} chooses from both", condition.name) if condition.is_const else Decline


class EliminateNopScatter(OpRule):
    """Replace `ScatterND` that writes every slice, or every element, in order by what it writes."""

    ops = ("ScatterND",)
    peers = {"onnxscript": ("ScatterAllStatic", "ScatterAllDynamic")}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        data, indices, updates = node.operand(0), node.operand(1), node.operand(2)
        if not indices.rank or not 0 < indices.size(-1) == indices.rank - 1:
            raise Decline
        if node.attr("reduction", "none") != "none":
            raise Decline("it combines {} with what is there", updates.name)
        if not data.has_shape_of(updates):
            raise Decline("the shapes of {} and {} are not known to be equal", data.name, updates.name)
        written = indices.array()
        sizes = [data.size(axis) for axis in range(written.shape[-1])]
        if not np.array_equal(np.where(written < 0, written + sizes, written), np.moveaxis(np.indices(sizes), 0, -1)):
            raise Decline("it writes the slices in another order")
        return rw.replace(node, [updates])
