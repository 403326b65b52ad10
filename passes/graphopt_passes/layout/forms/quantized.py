"""Images that are quantized and dequantized between operators on floats."""

from __future__ import annotations

from functools import partial

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.ir.numpy_types import numpy_type
from graphopt_passes.fusion.contrib.parameters import BYTES, Quantized, dequantized, quantized
from graphopt_passes.layout.cost import Costs, Price
from graphopt_passes.layout.emitter import Built, Emitter
from graphopt_passes.layout.form import Form, Written
from graphopt_passes.layout.known import Known
from graphopt_passes.layout.lanes import Lanes

_CONVOLUTIONS = ("Conv", "ConvTranspose", "com.microsoft::FusedConv")
_PASSES = 3
"""Passes over memory: each of the two operators reads and writes an image, one of them of floats."""


def rounded(node: Node, known: Known) -> Written:
    """The blocked form of a pair of operators that quantize an image per tensor, and dequantize it.

    Bytes are left to operators on bytes, which are made after the layout.
    """
    quantize = node.operand(0).sole_source("QuantizeLinear", "com.microsoft::QuantizeLinear", reader=node)
    x = quantize.operand(0)
    layout = known.layout_of_image(x)
    there, back = quantized(quantize), dequantized(node.result)
    if not (there.is_whole and back.is_whole):
        raise Decline("{} is not quantized per tensor", x.name)
    if there.dtype in BYTES and not all(map(_multiplies_floats, node.result.users)):
        raise Decline("{} has readers that may become 8-bit operators", node.result.name)
    lanes = _lanes(known.lanes(x), there, back)
    form = Written(
        node, [x], [layout], known.sizes(x), lanes, name="quantized", make=partial(_pair, x, quantize, node),
        cost=_cost,
    )  # fmt: skip
    form.companion = quantize
    return form


def _multiplies_floats(user: Node) -> bool:
    """Whether a product takes floats, even if its first operand was dequantized."""
    return user.op in _CONVOLUTIONS and user.operand(1).is_const


def _lanes(lanes: Lanes, there: Quantized, back: Quantized) -> Lanes:
    """The padding lanes after both operators, which lie within the quantized range in any case."""
    ends = np.iinfo(numpy_type(there.dtype))
    steps = [float(ends.min), float(ends.max)]
    if lanes.bounded:
        scale, zero = float(there.scale.item()), int(there.zero.item())
        found = (np.rint(end / scale) + zero for end in (lanes.low, lanes.high))
        steps = [min(max(float(step), steps[0]), steps[1]) for step in found]
    return Lanes.within(*((step - int(back.zero.item())) * float(back.scale.item()) for step in steps)).rounded()


def _cost(form: Form, costs: Costs) -> Price:
    return form.passes(costs, _PASSES)


def _pair(x: Value, quantize: Node, node: Node, emit: Emitter) -> Built:
    made, layout, _ = emit.enter(x)
    for each in (quantize, node):
        made = emit.rw.again(each, made, *each.inputs[1:])
    return [(made, layout)]
