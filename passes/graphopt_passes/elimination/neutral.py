"""Arithmetic with a neutral element."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.rewrite import Decline, Numerics, OpRule, Outcome, Rewriter

_EITHER, _RIGHT = True, False

NEUTRAL: dict[str, tuple[float | bool, bool]] = {
    "Add": (0, _EITHER), "Sub": (0, _RIGHT),
    "Mul": (1, _EITHER), "Div": (1, _RIGHT), "Pow": (1, _RIGHT),
    "And": (True, _EITHER), "Or": (False, _EITHER), "Xor": (False, _EITHER),
    "BitwiseOr": (0, _EITHER), "BitwiseXor": (0, _EITHER), "BitShift": (0, _RIGHT),
}  # fmt: skip
"""Each operator with its neutral element, and the operand that holds it."""

_EXACT_POWERS = FLOAT_TYPES | {TensorProto.INT32}
"""Types whose powers are exact: runtimes compute those of 64-bit integers in double precision."""


class NeutralElement(OpRule):
    """Remove a binary operator one of whose operands is its neutral element."""

    constant = True

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Return the other operand, if broadcasting with the neutral one does not enlarge it."""
        number, side = NEUTRAL[node.op]
        x, neutral = node.operand(0), node.operand(1)
        one_way = not node.graph.broadcasts(node.op)  # only the second operand is broadcast
        if not neutral.holds(number):
            x, neutral = neutral, x
            if not neutral.holds(number):
                raise Decline
            if one_way or side is not _EITHER:
                raise Decline("{} is the left operand", neutral.name)
        self.check(node, x, neutral)
        if not one_way:
            neutral.check_fits(x)
        return rw.replace(node, [x])

    def check(self, node: Node, x: Value, neutral: Value) -> None:
        """Decline where the element is not neutral for all numbers."""


class EliminateNopWithUnit(NeutralElement):
    """Remove arithmetic with the neutral element: `x - 0`, `x * 1`, `x / 1`, `x ** 1`, `and true`, `or false`.

    `Add` of 0 is included for integers, and for -0.0, the neutral element of floats; adding +0.0 changes the sign of a
    negative zero, and has its own pass. Broadcasting must not enlarge the result.
    """

    ops = tuple(NEUTRAL)
    peers = {
        "onnxoptimizer": "eliminate_nop_with_unit",
        "onnxruntime": "NoopElimination",
        "onnxscript": ("mul_by_1_rule", "add_0_rule", "sub_0_rule", "div_by_1_rule"),
    }

    def check(self, node: Node, x: Value, neutral: Value) -> None:
        if node.op == "Pow" and x.dtype not in _EXACT_POWERS:
            raise Decline("Pow is not exact in the element type of {}", x.name)
        if node.op in ("Add", "Sub") and neutral.dtype in FLOAT_TYPES:
            negative = node.op == "Add"
            if (np.signbit(neutral.array()) != negative).any():
                raise Decline("{} changes the sign of zeros", neutral.name)


class EliminateAdditionOfZero(NeutralElement):
    """Remove `x + 0.0` and `x - -0.0`, which change only the sign of negative zeros."""

    ops = ("Add", "Sub")
    numerics = Numerics.ROUNDING
    peers = {"onnxoptimizer": "eliminate_nop_with_unit", "onnxruntime": "NoopElimination", "onnxscript": "add_0_rule"}
