"""Operators that choose where there is nothing to choose."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graphopt.match.factors import number
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.elementwise import KEEPING

_ADDING_UP = ("Mean", "Sum")
_DEEPEST = 8
_MOST = 1 << 31
"""Sums of a few numbers up to this, and of sizes, do not overflow."""


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


class EliminateTrueInAnd(OpRule):
    """Replace `And` with a value that is true throughout by what that makes of the other one: the same, or an `Expand`.

    A comparison is true throughout if sizes, or numbers that are counted up from 0, are at least 0: exporters write
    that for a mask without a condition.
    """

    # No pattern: what is compared may have been reshaped in any way.
    ops = ("And",)
    opsets = "8-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        value, other = sorted(node.operands, key=_is_true, reverse=True)
        if not _is_true(value):
            raise Decline
        compared = value.made_by("GreaterOrEqual")
        sizes = rw.op("Shape", value if compared is None else compared.operand(0))
        return rw.replace(node, [other if other.has_shape_of(node.result) else rw.op("Expand", other, sizes)])


def _is_true(value: Value) -> int:
    """Whether it is true throughout, and 2 where it is constant: that is the better one to leave out."""
    if value.holds(True):
        return 2
    node = value.made_by("GreaterOrEqual", "Expand")
    if node is None:
        return 0
    if node.op == "Expand":
        return min(_is_true(node.operand(0)), 1)
    counted, bound = node.operand(0), number(node.operand(1), "iu")
    longer = len(node.operand(1).dims()) > len(counted.dims())
    return int(bound is not None and bound <= 0 and not longer and _is_count(counted))


def _is_count(value: Value, depth: int = 0) -> bool:
    """Whether no element can be negative: a size, a number that is counted up from 0, or a sum of such."""
    start = number(value, "iu")
    if start is not None:
        return 0 <= start < _MOST
    node = value.producer
    if node is None or depth == _DEEPEST or value.dtype != TensorProto.INT64:
        return False
    if node.op == "Range":
        step = number(node.operand(2), "iu")
        return step == 1 and _is_count(node.operand(0), depth + 1)
    if node.op == "Add":
        return all(_is_count(operand, depth + 1) for operand in node.operands)
    return node.op in ("Shape", "Size") or (node.op in KEEPING and _is_count(node.operand(0), depth + 1))
