"""Rewriting: the forms of a pass, the gate that changes graphs, the log of events, and the worklist driver.

Everything that passes are written with is exported here, including `Node`, `Value` and `Decline`.
"""

from graphopt.errors import Decline, Tries
from graphopt.ir import Dim, Graph, Model, Node, Value
from graphopt.rewrite.driver import Driver, RewriteLoopError
from graphopt.rewrite.events import Event, Failure, Log, NearMiss, NodeNote, RuleStats
from graphopt.rewrite.options import Options
from graphopt.rewrite.rewriter import Rewriter
from graphopt.rewrite.rule import (
    CUSTOM,
    FAMILIES,
    FIRED,
    Fired,
    GraphPass,
    Level,
    Numerics,
    OpRule,
    Outcome,
    PatternRule,
    Rule,
)
from graphopt.system.machine import Target

__all__ = [
    "CUSTOM", "FAMILIES", "FIRED", "Decline", "Dim", "Driver", "Event", "Failure", "Fired", "Graph", "GraphPass",
    "Level", "Log", "Model", "NearMiss", "Node", "NodeNote", "Numerics", "OpRule", "Options", "Outcome", "PatternRule",
    "RewriteLoopError", "Rewriter", "Rule", "RuleStats", "Target", "Tries", "Value",
]  # fmt: skip
