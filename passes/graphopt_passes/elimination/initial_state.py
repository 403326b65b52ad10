"""Initial states of recurrent operators that are what they are without being given."""

from __future__ import annotations

import numpy as np

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import all_equal

_STATES = {"RNN": (5,), "GRU": (5,), "LSTM": (5, 6)}
"""Which inputs are states that start as zeros when they are left out."""

_COPIES = ("Expand", "Identity", "Reshape", "Squeeze", "Tile", "Transpose", "Unsqueeze")
"""Operators that put out nothing but elements of their first input."""

_FURTHEST = 16


class EliminateZeroInitialState(OpRule):
    """Leave out the initial state of `RNN`, `GRU` and `LSTM` where it is all zeros.

    The zeros may be stored or spread out to a dynamic batch by `Expand`, `ConstantOfShape` and the like. The recurrent
    weights have to be constant and finite, for a runtime may skip their product with a state that is not there.
    """

    name = "eliminate_zero_initial_state"
    ops = ("RNN", "GRU", "LSTM")
    opsets = "7-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look where each state comes from."""
        drop = [index for index in _STATES[node.op] if (state := node.input(index)) is not None and is_zero(state)]
        if drop:
            weights = node.input(2)
            numbers = weights.const() if weights is not None else None
            if weights is None or numbers is None or not np.isfinite(numbers).all():
                return Mismatch("the recurrent weights are not known to be finite")
            return rw.set_inputs(node, dict.fromkeys(drop), "the initial state is zero")
        given = next((node.input(index) for index in _STATES[node.op] if node.input(index) is not None), None)
        return None if given is None else Mismatch("{} is not known to be zero", given.name)


def is_zero(value: Value) -> bool:
    """Whether a tensor holds nothing but zeros in every run.

    Args:
        value: a tensor of numbers.
    """
    for _ in range(_FURTHEST):
        if value.is_const:
            return all_equal(value, 0)
        producer = value.producer
        if producer is None:
            return False
        if producer.op == "ConstantOfShape":
            filler = producer.attr("value")
            return filler is None or not filler.array().any()
        source = producer.input(0)
        if producer.op not in _COPIES or source is None:
            return False
        value = source
    return False
