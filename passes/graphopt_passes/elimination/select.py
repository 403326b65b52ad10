"""Operators that choose where there is nothing to choose."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.ir import Dim, Node, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import all_equal, same_shape


class EliminateNopVariadic(OpRule):
    """Remove `Max`, `Mean`, `Min` and `Sum` of one input, and `And`, `Or`, `Max`, `Min` of a value with itself."""

    name = "eliminate_nop_variadic"
    ops = ("And", "BitwiseAnd", "BitwiseOr", "Max", "Mean", "Min", "Or", "Sum")

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Count the different inputs."""
        distinct = set(node.inputs)
        if len(distinct) != 1 or (len(node.inputs) > 1 and node.op in ("Mean", "Sum")):
            return None
        return rw.replace(node, [node.inputs[0]])


class EliminateNopWhere(OpRule):
    """Remove `Where` between a value and itself, or with a condition that is constant throughout.

    Broadcasting must not enlarge what is chosen. Runtimes add the two sides up, with 0 where one is not chosen, so that
    a negative zero loses its sign; hence the level `rounding`.
    """

    name = "eliminate_nop_where"
    ops = ("Where",)
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Find what is always chosen, then compare the shapes."""
        condition, x, z = node.inputs
        y = node.outputs[0]
        if condition is None or x is None or z is None or y is None:
            return None
        chosen = x if x is z or all_equal(condition, True) else z if all_equal(condition, False) else None
        if chosen is None:
            return None
        if same_shape(chosen, y) or all(other is chosen or _fits(other, chosen) for other in (condition, x, z)):
            return rw.replace(node, [chosen])
        return Mismatch("broadcasting may enlarge {}", chosen.name)


def _fits(value: Value, into: Value) -> bool:
    """Whether broadcasting with `value` surely leaves the shape of `into` as it is."""
    shape: tuple[Dim, ...] | None = value.shape
    if shape == ():
        return True
    if shape is None or into.shape is None or len(shape) > len(into.shape):
        return False
    last = into.shape[len(into.shape) - len(shape) :]
    return all(dim == 1 or (dim is not None and dim == size) for dim, size in zip(shape, last, strict=True))


class EliminateNopScatter(OpRule):
    """Replace `ScatterND` that writes every slice in order by what it writes."""

    name = "eliminate_nop_scatter"
    ops = ("ScatterND",)
    peers: ClassVar[dict[str, str]] = {"onnxscript": "ScatterAllStatic"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Compare the indices with 0, 1, 2, ... up to the size."""
        data, indices, updates = node.inputs
        if data is None or indices is None or updates is None or node.attr("reduction", "none") != "none":
            return None
        shape = indices.shape
        if shape is None or len(shape) != 2 or shape[1] != 1 or not indices.is_const:
            return None
        if not same_shape(data, updates):
            return Mismatch("the shapes of {} and {} are not known to be equal", data.name, updates.name)
        found = indices.const()
        rows = data.shape[0] if data.shape else None
        if found is None or not isinstance(rows, int) or rows != len(found):
            return Mismatch("it writes {} of {} slices", shape[0], rows or "unknown")
        if not np.array_equal(np.where(found < 0, found + rows, found).reshape(-1), np.arange(rows)):
            return Mismatch("it writes the slices in another order")
        return rw.replace(node, [updates])
