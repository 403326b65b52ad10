"""Activations of blocked convolutions, and the padding lanes after elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators import Bounds
from graphopt_passes import elementwise
from graphopt_passes.layout.lanes import ANYTHING, UNARY, Lanes, clipped, combined, mapped, number

Activation = tuple[str, tuple[float, ...]]
"""Name and parameters, as attributes of the blocked Conv."""

ELEMENTWISE = frozenset({*UNARY, "Clip"})
"""Elementwise operators of one image."""


def lanes_behind(node: Node, operands: Sequence[Lanes]) -> Lanes:
    """The lanes of an elementwise node's result, from lanes or bounds of its operands."""
    if node.op == "Clip":
        bounds = _bounds(node)
        return ANYTHING if bounds is None else clipped(operands[0], *bounds)
    if node.op in UNARY:
        return mapped(node.op, operands[0], lambda name, absent: float(node.attr(name, absent)))
    return combined(node.op_type, operands)


def lanes_of_activation(node: Node, lanes: Lanes) -> Lanes:
    """The padding lanes after the activation of a `FusedConv`."""
    name, numbers = node.attr("activation"), tuple(node.attr("activation_params") or ())
    if name is None:
        return lanes
    if name == "Clip":
        return clipped(lanes, *numbers) if len(numbers) == _BOUNDS else ANYTHING
    given = dict(zip(("alpha", "beta"), numbers, strict=False))
    return mapped(name, lanes, lambda key, absent: float(given.get(key, absent))) if name in UNARY else ANYTHING


_BOUNDS = 2


def range_of(value: Value) -> Lanes:
    """The bounds of a value that is broadcast over lanes, as its producer implies them."""
    tensor, producer = value.constant_tensor, value.producer
    if tensor is not None and tensor.numel == 1:
        return number(tensor.array().reshape(-1)[0])
    if producer is not None and producer.op == "Clip":
        return Lanes.within(*(_bounds(producer) or (-math.inf, math.inf)))
    bounds = _RANGES.get(producer.op) if producer is not None else None
    return ANYTHING if bounds is None else Lanes(*bounds).rounded()


_RANGES = {
    **dict.fromkeys(("HardSigmoid", "Sigmoid", "Softmax"), (0, 1)),
    **dict.fromkeys(("Cos", "Erf", "Sin", "Softsign", "Tanh"), (-1, 1)),
}
"""Operators whose results lie within bounds for all operands."""


def _bounds(clip: Node) -> tuple[float, float] | None:
    """The constant bounds of a Clip; a missing one is the largest number."""
    try:
        bounds = Bounds.of(clip)
    except Decline:
        return None
    return float(bounds.low), float(bounds.high)


def activation_of(node: Node) -> Activation | None:
    """A node as an activation of the blocked Conv; None if that does not have it."""
    if node.op == "Clip":
        bounds = _bounds(node)
        return None if bounds is None else ("Clip", bounds)
    parameters = ACTIVATIONS.get(node.op)
    return None if parameters is None else (node.op, tuple(float(node.attr(each)) for each in parameters))


ACTIVATIONS = {**elementwise.ACTIVATIONS, "Clip": ("min", "max"), "HardSwish": ()}
"""Activations of the blocked Conv, with their parameters in order."""
