"""Which pass has a faster form of an operator, or why none has."""

from __future__ import annotations

from collections import Counter

import onnx

from graphopt.audit.settings import Settings
from graphopt.ir import Model
from graphopt.pipeline import registry
from graphopt.rewrite import Level, Numerics

FAMILY = "algorithm"
"""The passes that know other forms of slow operators."""


def other_form(proto: onnx.ModelProto) -> str:
    """What the passes make of a model of one operator.

    Args:
        proto: the model, with the shapes that its inputs have.

    Returns:
        The passes that fired; else the reason that most of those give that looked at it; "" where none knows the
        operator.
    """
    _, log = Settings(Level.EXTENDED, numerics=Numerics.FAST).run(Model.load(proto), explain=True)
    fired = dict.fromkeys(event.rule for event in log.events if _knows_forms(event.rule))
    if fired:
        return ", ".join(fired)
    reasons = Counter(miss.reason for miss in log.near_misses.values() if _knows_forms(miss.rule))
    return max(reasons, key=reasons.__getitem__, default="")


def _knows_forms(name: str) -> bool:
    return registry().rule_class(name).family == FAMILY
