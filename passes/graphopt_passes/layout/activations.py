"""Elementwise operators of one input: which the blocked convolution takes in, and what they do to padding lanes."""

from __future__ import annotations

import math
from collections.abc import Callable

from graphopt.ir import Node, Value
from graphopt_passes.layout.facts import scalar

Activation = tuple[str, tuple[float, ...]]
"""Name and parameters, as the attributes of the blocked Conv spell them."""


_LARGEST = 3.4028234663852886e38
"""The largest number of 32 bits."""


def _same(bound: float) -> float:
    return bound


def _one(_: float) -> float:
    return 1.0


def _power(bound: float) -> float:
    return math.exp(min(bound, 300.0))


HARMLESS: dict[str, Callable[[float], float]] = {
    "Abs": _same, "Asinh": _same, "Atan": lambda _: 2.0, "Ceil": lambda b: b + 1, "Celu": lambda b: b + 10,
    "Clip": _same, "Cos": _one, "Cosh": _power, "Elu": _same, "Erf": _one, "Exp": _power, "Floor": lambda b: b + 1,
    "Gelu": _same, "HardSigmoid": _one, "HardSwish": _same, "Identity": _same, "LeakyRelu": _same, "Mish": _same,
    "Neg": _same, "Relu": _same, "Round": lambda b: b + 1, "Selu": lambda b: 2 * b, "Shrink": lambda b: b + 1,
    "Sigmoid": _one, "Sign": _one, "Sin": _one, "Sinh": _power, "Softplus": lambda b: b + 1, "Softsign": _one,
    "Swish": _same, "Tanh": _one, "ThresholdedRelu": _same, "com.microsoft::FastGelu": _same,
    "com.microsoft::Gelu": _same, "com.microsoft::QuickGelu": _same,
}  # fmt: skip
"""Operators that keep finite lanes finite: from a bound on the input to a bound on the output."""

OF_ZERO = {"Acos": math.pi / 2, "Asin": 0.0, "Atanh": 0.0, "Sqrt": 0.0, "Tan": 0.0}
"""Operators that may give infinities or NaN, but not of zero: they run blocked where padding lanes are zero."""

ALIGNED_ONLY = frozenset({"Acosh", "Log", "Reciprocal"})
"""Operators that give infinities or NaN of zero; they run blocked where there are no padding lanes."""

UNARY = frozenset(HARMLESS) | frozenset(OF_ZERO) | ALIGNED_ONLY


def lane_bound(node: Node, bound: float) -> float:
    """Bound on padding lanes behind an elementwise node."""
    if node.op == "Clip":
        low, high = clip_bounds(node) or (-math.inf, math.inf)
        return max(bound, *(abs(limit) for limit in (low, high) if abs(limit) < 3e38), 0.0)
    if node.op in ("LeakyRelu", "Elu", "Selu", "ThresholdedRelu", "Shrink", "Celu", "Swish", "HardSigmoid"):
        slopes = [abs(node.attr(name, 0.0) or 0.0) for name in ("alpha", "beta", "gamma", "bias")]
        return float(HARMLESS[node.op](bound) * max(1.0, *slopes) + sum(slopes))
    return HARMLESS[node.op](bound)


def clip_bounds(node: Node) -> tuple[float, float] | None:
    """The bounds of a Clip, where they are constant; a missing one is the largest number, which stops infinities."""
    if "min" in node.attrs or "max" in node.attrs or node.graph.opset() < 11:
        return float(node.attr("min", -_LARGEST)), float(node.attr("max", _LARGEST))
    low = scalar(node.input(1)) if node.input(1) is not None else -_LARGEST
    high = scalar(node.input(2)) if node.input(2) is not None else _LARGEST
    return None if low is None or high is None else (low, high)


def fusible(node: Node) -> Activation | None:
    """The activation that a node is, if the blocked Conv has it."""
    op = node.op
    if op in ("Relu", "Sigmoid", "Tanh"):
        return op, ()
    if op == "HardSwish":
        return op, ()
    if op == "LeakyRelu":
        return op, (float(node.attr("alpha", 0.01)),)
    if op == "HardSigmoid":
        return op, (float(node.attr("alpha", 0.2)), float(node.attr("beta", 0.5)))
    if op == "Clip":
        bounds = clip_bounds(node)
        if bounds is None or not bounds[0] <= bounds[1]:
            return None
        return op, bounds
    return None


def gated_by_sigmoid(node: Node) -> tuple[Value, Node] | None:
    """For a Mul that computes x * Sigmoid(x): x, and the Sigmoid, which nothing else reads."""
    if node.op != "Mul" or len(node.inputs) != 2:
        return None
    for gate, x in (node.inputs, node.inputs[::-1]):
        producer = gate.producer if gate is not None else None
        if producer is None or producer.op != "Sigmoid" or producer.graph is not node.graph:
            continue
        if gate is not None and x is not None and gate.one_use and producer.inputs[0] is x:
            return x, producer
    return None


def hard_swish(value: Value) -> Node | None:
    """The Mul of x * HardSigmoid(x) with alpha 1/6 and beta 1/2, when `value` is read by nothing else."""
    if value.output_count or len(value.users) != 2 or sum(value.users.values()) != 2:
        return None
    gates = [n for n in value.users if n.op == "HardSigmoid" and n.graph is value.graph]
    products = [n for n in value.users if n.op == "Mul" and n.graph is value.graph]
    if not gates or not products or gates[0].outputs[0] not in products[0].inputs:
        return None
    gate = gates[0]
    alpha, beta = float(gate.attr("alpha", 0.2)), float(gate.attr("beta", 0.5))
    out = gate.outputs[0]
    assert out is not None
    return products[0] if abs(alpha * 6 - 1) < 1e-6 and abs(beta - 0.5) < 1e-7 and out.one_use else None
