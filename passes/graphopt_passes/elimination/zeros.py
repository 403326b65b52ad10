"""Optional operands that are zero: biases and initial states."""

from __future__ import annotations

import numpy as np

from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.elementwise import KEEPING

_BIAS = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2, "QLinearConv": 8}
_STATES = {"RNN": (5,), "GRU": (5,), "LSTM": (5, 6)}


class EliminateZeroBias(OpRule):
    """Remove a bias of `Conv`, `ConvTranspose`, `Gemm` or `QLinearConv` that is all zero.

    The sign of a zero result may change, hence the level `rounding`.
    """

    ops = tuple(_BIAS)
    numerics = Numerics.ROUNDING
    peers = {
        "onnxscript": tuple(f"RemoveOptionalBiasFrom{op}" for op in ("Conv", "ConvTranspose", "QLinearConv", "Gemm")),
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        at = _BIAS[node.op]
        bias = node.input(at)
        if bias is None or not bias.holds(0):
            raise Decline
        if not np.isfinite(node.attr("beta", 1.0)):
            raise Decline("beta is {}, expected a finite number", node.attr("beta"))
        return rw.replace(node, [rw.again(node, *node.inputs[:at])])


class EliminateZeroInitialState(OpRule):
    """Remove the initial state of `RNN`, `GRU` and `LSTM` if it is all zero.

    The zeros may be constant, or expanded to a dynamic batch by `Expand`, `ConstantOfShape` and the like; they may be
    one layer's part of all states, or joined from both directions. Negative zeros stay, for the next state may have
    them too. Recurrent weights must be constant and finite, for a runtime may skip their product with a missing state.
    """

    ops = tuple(_STATES)
    opsets = "7-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        given = {index: state for index in _STATES[node.op] if (state := node.input(index))}
        zero = [index for index, state in given.items() if _is_zero(state)]
        if not given:
            raise Decline
        if not zero:
            raise Decline("{} is not known to be zero", next(iter(given.values())).name)
        if not np.isfinite(node.operand(2).array()).all():
            raise Decline("the recurrent weights are not finite")
        return rw.set_inputs(node, dict.fromkeys(zero), "the initial state is zero")


_FURTHEST = 16


def _is_zero(value: Value) -> bool:
    """Whether all elements of a numeric tensor are +0.0 in every run."""
    waiting, steps = [value], _FURTHEST
    while waiting and steps:
        value, steps = waiting.pop(), steps - 1
        if (joined := value.made_by("Concat")) is not None:
            waiting += dict.fromkeys(joined.operands)
        elif (copy := value.made_by(*KEEPING)) is not None:
            waiting.append(copy.operand(0))
        elif not _is_filled_with_zeros(value):
            return False
    return not waiting


def _is_filled_with_zeros(value: Value) -> bool:
    filled = value.made_by("ConstantOfShape")
    if filled is None:
        return value.holds(0) and not np.signbit(value.array()).any()
    filler = filled.attr("value")
    return filler is None or not (filler.array().any() or np.signbit(filler.array()).any())
