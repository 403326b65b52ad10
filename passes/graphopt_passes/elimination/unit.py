"""Arithmetic with the neutral element."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import all_equal

_UNITS: dict[str, tuple[float | bool, bool]] = {
    "Add": (0, True), "Sub": (0, False), "Mul": (1, True), "Div": (1, False), "Pow": (1, False),
    "And": (True, True), "Or": (False, True), "Xor": (False, True),
    "BitwiseOr": (0, True), "BitwiseXor": (0, True), "BitShift": (0, False),
}  # fmt: skip
"""Operator to its neutral element, and whether that may stand on the left too."""

_EXACT_POWERS = FLOAT_TYPES | {TensorProto.INT32}
"""Runtimes compute powers of 64-bit integers in double precision, so that only these are exact to begin with."""


class EliminateNopWithUnit(OpRule):
    """Remove arithmetic with the neutral element: `x - 0`, `x * 1`, `x / 1`, `x ** 1`, `and true`, `or false`.

    `Add` of 0 is included for integers, and for the float -0.0, which is the neutral element; adding +0.0 changes
    the sign of a negative zero and has a pass of its own. Broadcasting must not enlarge the result.
    """

    name = "eliminate_nop_with_unit"
    ops = tuple(_UNITS)
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "eliminate_nop_with_unit",
        "onnxruntime": "NoopElimination",
        "onnxscript": "mul_by_1_rule",
        "onnxsim": "eliminate_nop_with_unit",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for a constant that is the neutral element."""
        found = _with_unit(node)
        if found is None or isinstance(found, Mismatch):
            return found
        x, unit = found
        if node.op in ("Add", "Sub") and unit.dtype in FLOAT_TYPES:
            array = unit.const()
            if array is None or bool(np.any(np.signbit(array) != (node.op == "Add"))):
                return Mismatch("{} changes the sign of negative zeros", unit.name)
        return rw.replace(node, [x])


class EliminateAdditionOfZero(OpRule):
    """Remove `x + 0.0` and `x - -0.0`, which change nothing but the sign of negative zeros."""

    name = "eliminate_addition_of_zero"
    ops = ("Add", "Sub")
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "eliminate_nop_with_unit",
        "onnxruntime": "NoopElimination",
        "onnxscript": "add_0_rule",
        "onnxsim": "eliminate_nop_with_unit",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for a constant that is zero."""
        found = _with_unit(node)
        return found if found is None or isinstance(found, Mismatch) else rw.replace(node, [found[0]])


def _with_unit(node: Node) -> tuple[Value, Value] | Mismatch | None:
    """The operand that is kept and the one that is neutral."""
    number, either_side = _UNITS[node.op]
    if len(node.inputs) != 2:
        return None
    a, b = node.inputs
    if a is None or b is None:
        return None
    old = node.graph.opset() < 7  # the shape of the first operand is the result's then, whatever the second's
    if b.is_const and all_equal(b, number):
        x, unit = a, b
    elif either_side and not old and a.is_const and all_equal(a, number):
        x, unit = b, a
    else:
        return None
    if node.op == "Pow" and x.dtype not in _EXACT_POWERS:
        return Mismatch("powers of {} are not exact", x.name)
    problem = None if old else _grows(x, unit)
    return (x, unit) if problem is None else problem


def _grows(x: Value, unit: Value) -> Mismatch | None:
    """Why broadcasting with the neutral element may enlarge the result."""
    dims = unit.shape or ()
    if not dims:
        return None
    if x.shape is None:
        return Mismatch("the rank of {} is not known", x.name)
    if len(dims) > len(x.shape):
        return Mismatch("{} of rank {} raises the rank of {}", unit.name, len(dims), x.name)
    for dim, size in zip(x.shape[len(x.shape) - len(dims) :], dims, strict=True):
        if size not in (1, dim):
            return Mismatch("{} may stretch {} along an axis of size {}", unit.name, x.name, dim or "unknown")
    return None
