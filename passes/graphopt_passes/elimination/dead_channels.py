"""Channels that are constant over all positions, or unused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from graphopt.ir import Graph, Node, Value
from graphopt.operators.layer import LAYERS, LinearLayer
from graphopt.rewrite import Decline, GraphPass, Numerics, Rewriter
from graphopt_passes.elimination.negligible import SAMPLED


class EliminateDeadChannels(GraphPass):
    """Remove channels that are constant because their filter is all zero, and channels that no reader uses.

    A zero filter in a `Conv`, `ConvTranspose`, `Gemm` or `MatMul` outputs its bias at every position; activations,
    pools and sums of such channels are constant as well. If all readers are convolutions and matrix products, the
    channels' contribution is added to their bias, and the channels are removed: from the operators that produce them,
    from depthwise convolutions in between, and from the weights that read them. If a reader pads with zeros, only zero
    channels can be removed. Channels whose weights in all readers are zero are removed whatever they hold.

    The number of channels stays divisible by the power of two, up to 16, that divided it before, so that blocked
    layouts keep whole blocks; some dead channels stay for that, and at least one block.

    An infinite or NaN activation times a zero filter gave NaN, and does not any more. The model's metadata says how
    many channels were removed.
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
    """A layer's result if it has dead channels, and its input if some are unread, each with its number of channels."""
    tensor = None if node.removed else node.operand(1).constant_tensor
    if tensor is None or not tensor.may_hold_zero(SAMPLED):
        return
    with suppress(Decline):
        layer = LinearLayer.of(node)
        if layer.dead().any():
            yield node.result, layer.channels, layer
        if not node.removed and layer.read is not None and layer.unread().any():
            yield node.operand(0), layer.weight.shape[layer.read], layer
