"""The pass that has a faster form of an operator, or the reason why none has."""

from __future__ import annotations

from collections import Counter

import onnx

from graphopt.audit.settings import Settings
from graphopt.ir import Model
from graphopt.pipeline import registry
from graphopt.rewrite import Level, Numerics

FAMILIES = ("algorithm", "layout", "fusion")
"""Families of passes with other forms of operators, in the order in which their reasons are reported."""

_ALONE = "two interface values"
"""Part of the reason why a single operator between an input and an output stays, which says nothing about others."""


def other_form(proto: onnx.ModelProto) -> str:
    """The result of the passes on a model of one operator.

    Args:
        proto: the model, with the shapes that its inputs have.

    Returns:
        The passes that fired; else the most frequent reason of those that looked at it; "" if none knows the operator.
    """
    misses: list[tuple[str, str]] = []
    for level in (Level.EXTENDED, Level.ALL):
        _, log = Settings(level, numerics=Numerics.FAST).run(Model.load(proto), explain=True)
        fired = dict.fromkeys(event.rule for event in log.events if _family(event.rule) in FAMILIES)
        if fired:
            return ", ".join(fired)
        told = (miss for miss in log.near_misses.values() if _ALONE not in miss.reason)
        misses += [(_family(miss.rule), miss.reason) for miss in told]
    for family in FAMILIES:
        reasons = Counter(reason for of, reason in misses if of == family)
        if reasons:
            return max(reasons, key=reasons.__getitem__)
    return ""


def _family(name: str) -> str:
    return registry().rule_class(name).family
