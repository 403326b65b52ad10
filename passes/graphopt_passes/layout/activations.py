"""Elementwise operators of one input: which the blocked convolution takes in, and what they do to padding lanes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphopt.ir import Node, Value
from graphopt_passes.layout.facts import scalar
from graphopt_passes.layout.lanes import ANYTHING, UNARY, Lanes, clipped, combined, mapped, number

Activation = tuple[str, tuple[float, ...]]
"""Name and parameters, as the attributes of the blocked Conv spell them."""


ELEMENTWISE = frozenset({*UNARY, "Clip"})
"""Elementwise operators of one image."""

_LARGEST = 3.4028234663852886e38
"""The largest number of 32 bits."""


def lanes_behind(node: Node, operands: Sequence[Lanes]) -> Lanes:
    """What an elementwise node makes of padding lanes.

    Args:
        node: an elementwise operator.
        operands: lanes of its operands, or the bounds of what is spread over all lanes.
    """
    if node.op == "Clip":
        bounds = clip_bounds(node)
        return ANYTHING if bounds is None else clipped(operands[0], *bounds)
    if node.op in UNARY:
        return mapped(node.op, operands[0], lambda name, absent: float(node.attr(name, absent)))
    return combined(node.op_type, operands)


def lanes_of_activation(node: Node, lanes: Lanes) -> Lanes:
    """What the activation that a `FusedConv` has makes of padding lanes."""
    name, numbers = node.attr("activation"), tuple(node.attr("activation_params") or ())
    if name is None:
        return lanes
    if name == "Clip":
        return clipped(lanes, *numbers) if len(numbers) == _BOUNDS else ANYTHING
    given = dict(zip(("alpha", "beta"), numbers, strict=False))
    return mapped(name, lanes, lambda key, absent: float(given.get(key, absent))) if name in UNARY else ANYTHING


_BOUNDS = 2


def range_of(value: Value) -> Lanes:
    """The bounds of a value that is spread over lanes, as its producer tells them."""
    constant = scalar(value)
    if constant is not None:
        return number(constant)
    producer = value.producer
    if producer is not None and producer.op == "Clip":
        return Lanes.within(*(clip_bounds(producer) or (-math.inf, math.inf)))
    bounds = _RANGES.get(producer.op) if producer is not None else None
    return ANYTHING if bounds is None else Lanes(*bounds).rounded()


_RANGES = {
    **dict.fromkeys(("HardSigmoid", "Sigmoid", "Softmax"), (0, 1)),
    **dict.fromkeys(("Cos", "Erf", "Sin", "Softsign", "Tanh"), (-1, 1)),
}
"""Operators whose results lie within bounds whatever they read."""


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
