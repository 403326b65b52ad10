"""Operators that select between equal operands, or always the same one."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graphopt.ir import FLOAT8_TYPES
from graphopt.match.factors import number
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.elementwise import KEEPING

_ADDING_UP = ("Mean", "Sum")
_DEEPEST = 8
_MOST = 1 << 31
"""Bound of numbers whose sums, with a few others and with sizes, do not overflow."""


class EliminateNopVariadic(OpRule):
    """Remove `Max`, `Mean`, `Min` and `Sum` of one input, and `And`, `Or`, `Max`, `Min` of a value with itself."""

    ops = ("And", "BitwiseAnd", "BitwiseOr", "Max", "Min", "Or", *_ADDING_UP)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        if len(set(node.inputs)) != 1 or (len(node.inputs) > 1 and node.op in _ADDING_UP):
            raise Decline
        return rw.replace(node, [node.operand(0)])


class EliminateNopWhere(OpRule):
    """Remove a `Where` between a value and itself, or with a uniform constant condition.

    `IsNaN` of dequantized integers is such a condition: since PyTorch 2.5 attention asks that of its probabilities.

    Broadcasting must not enlarge the selected operand. Runtimes add both operands, with 0 for elements that are not
    selected, so that a negative zero loses its sign; hence the level `rounding`.
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
    """The operand from which `Where` selects every element; declines if it selects from both."""
    if x is other or condition.holds(True):
        return x
    if condition.holds(False) or _asks_numbers_for_nan(condition):
        return other
    raise Decline("{} selects from both operands", condition.name) if condition.is_const else Decline


def _asks_numbers_for_nan(condition: Value) -> bool:
    """Whether a condition is `IsNaN` of dequantized integers with finite scales, none of which is NaN."""
    asked = condition.made_by("IsNaN")
    maker = asked.operand(0).made_by("DequantizeLinear") if asked else None
    if maker is None or maker.operand(0).dtype in (None, *FLOAT8_TYPES) or not maker.operand(1).is_const:
        return False
    return bool(np.isfinite(maker.operand(1).array()).all())


class EliminateNopScatter(OpRule):
    """Replace a `ScatterND` that writes every slice, or every element, in order with its updates."""

    ops = ("ScatterND",)
    peers = {"onnxscript": ("ScatterAllStatic", "ScatterAllDynamic")}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        data, indices, updates = node.operand(0), node.operand(1), node.operand(2)
        if not indices.rank or not 0 < indices.size(-1) == indices.rank - 1:
            raise Decline
        if node.attr("reduction", "none") != "none":
            raise Decline("it combines {} with the existing elements", updates.name)
        if not data.has_shape_of(updates):
            raise Decline("the shapes of {} and {} are not known to be equal", data.name, updates.name)
        written = indices.array()
        sizes = [data.size(axis) for axis in range(written.shape[-1])]
        places = np.where(written < 0, written + sizes, written)
        if [*places.shape[:-1]] != sizes or not np.array_equal(places, np.moveaxis(np.indices(sizes), 0, -1)):
            raise Decline("it writes the slices in another order")
        return rw.replace(node, [updates])


class EliminateTrueInAnd(OpRule):
    """Replace an `And` with a value that is always true with its other operand, or an `Expand` of it.

    `GreaterOrEqual` of sizes, or of numbers counted up from 0, and 0 is always true: exporters write that for a mask
    without a condition.
    """

    # No pattern: the compared value may have been reshaped in any way.
    ops = ("And",)
    opsets = "8-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        value, other = sorted(node.operands, key=_is_true, reverse=True)
        if not _is_true(value):
            raise Decline
        compared = value.made_by("GreaterOrEqual")
        sizes = rw.op("Shape", value if compared is None else compared.operand(0))
        return rw.replace(node, [other if other.has_shape_of(node.result) else rw.op("Expand", other, sizes)])


def _is_true(value: Value, depth: int = 0) -> int:
    """2 if the value is a true constant, which is removed by preference, 1 if it is always true, else 0."""
    if value.holds(True):
        return 2
    node = value.made_by("GreaterOrEqual", "Expand")
    if node is None or depth == _DEEPEST:
        return 0
    if node.op == "Expand":
        return min(_is_true(node.operand(0), depth + 1), 1)
    counted, bound = node.operand(0), number(node.operand(1), "iu")
    longer = len(node.operand(1).dims()) > len(counted.dims())
    return int(bound is not None and bound <= 0 and not longer and _is_count(counted))


def _is_count(value: Value, depth: int = 0) -> bool:
    """Whether no element can be negative: sizes, numbers counted up from 0, and sums of these."""
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
