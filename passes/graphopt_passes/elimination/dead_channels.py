"""Channels that hold one number at every position, or that have no use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from graphopt.ir import Graph, Node, Value
from graphopt.operators.layer import LAYERS, LinearLayer
from graphopt.rewrite import Decline, GraphPass, Numerics, Rewriter
from graphopt_passes.elimination.negligible import SAMPLED


class EliminateDeadChannels(GraphPass):
    """Remove channels that are constant because their whole filter is zero, and those that are not read.

    A filter of zeros in a `Conv`, `ConvTranspose`, `Gemm` or `MatMul` makes its bias, at every position; activations,
    pools and sums of such channels are constant as well. Where they end in convolutions and matrix products, what
    they add there becomes part of the bias, and they go: from the operators that made them, from depthwise
    convolutions on the way, and from the weights that read them. Where the reader pads with zeros only a channel of
    zeros can go. Channels that the weights of all readers multiply with zero go too, whatever they hold.

    The number of channels stays divisible by the power of two, up to 16, that it was divisible by, so that no block
    of a blocked layout is broken; some dead channels stay for that, and at least one such block does.

    An infinite or NaN activation that met a filter of zeros gave NaN, and gives a number now. The model's metadata
    says how many channels were removed.
    """

    ops = LAYERS
    numerics = Numerics.ROUNDING
    finite = True
    late = True

    def run(self, graph: Graph, rw: Rewriter) -> None:
        seen: set[Value] = set()
        for node in [node for node in graph if node.op in self.ops]:
            for value, channels, layer in _suspects(node):
                if value not in seen:
                    from graphopt_passes.elimination.narrowing import narrow  # few networks have such channels

                    seen.add(value)
                    with rw.attempt(node):
                        seen |= narrow(value, channels, layer, rw)


def _suspects(node: Node) -> Iterator[tuple[Value, int, LinearLayer]]:
    """The result of a layer when it has dead channels, its input when some are not read; each with their number."""
    tensor = None if node.removed else node.operand(1).constant_tensor
    if tensor is None or not tensor.may_hold_zero(SAMPLED):
        return
    with suppress(Decline):
        layer = LinearLayer.of(node)
        if layer.dead().any():
            yield node.result, layer.channels, layer
        if not node.removed and layer.read is not None and layer.unread().any():
            yield node.operand(0), layer.weight.shape[layer.read], layer
