"""Images taken apart by slices of every second pixel, and the order of channels."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators import Slice
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by

Phase = tuple[int, int]


_MOST_CHANNELS = 1 << 16
"""The order of more is not written down: a model need only state to have them."""


class ConvertSlicesToSpaceToDepth(OpRule):
    """Move pixels to channels with one `SpaceToDepth` instead of joining four `Slice` of every second row and column.

    The sizes must be known and even. Where the slices stand in another order than by rows, a `Gather` puts the channels
    in order, which a convolution behind it takes in.
    """

    name = "convert_slices_to_space_to_depth"
    ops = ("Concat",)
    opsets = "10-"
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "SliceConcatToSpaceToDepthFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Find which rows and columns each part takes."""
        cuts = [
            v.producer for v in node.inputs if v is not None and v.producer is not None and v.producer.op == "Slice"
        ]
        if len(cuts) != 4 or len(node.inputs) != 4 or node.attr("axis") not in (1, -3):
            return None
        x = cuts[0].input(0)
        if x is None or any(cut.input(0) is not x for cut in cuts) or any(cut.graph is not node.graph for cut in cuts):
            return None
        shape = x.shape
        if shape is None or len(shape) != 4 or x.dtype not in (TensorProto.FLOAT, TensorProto.DOUBLE):
            return Mismatch("{} is not known to be an image of floats", x.name)
        if any(not v.one_use for cut in cuts if (v := cut.outputs[0]) is not None):
            return Mismatch("a part has other readers")
        phases = [_phase(cut, shape[2], shape[3]) for cut in cuts]
        if None in phases or sorted(filter(None, phases)) != [(0, 0), (0, 1), (1, 0), (1, 1)]:
            return Mismatch("the parts are not those of every second row and column")
        made = rw.op("SpaceToDepth", x, blocksize=2)
        blocks = [2 * phase[0] + phase[1] for phase in phases if phase is not None]
        if blocks == [0, 1, 2, 3]:
            return rw.replace(node, [made])
        if not isinstance(shape[1], int):
            return Mismatch("the number of channels of {} is not known", x.name)
        if shape[1] > _MOST_CHANNELS:
            return Mismatch("{} channels are too many to state their order", shape[1])
        order = [block * shape[1] + channel for block in blocks for channel in range(shape[1])]
        return rw.replace(node, [rw.op("Gather", made, np.array(order, np.int64), axis=1)])


def _phase(cut: Node, height: object, width: object) -> Phase | None:
    """From which row and column a slice takes every second one to the end."""
    try:
        found = Slice.of(cut).cuts
    except Decline:
        return None
    if sorted(found) != [2, 3]:
        return None
    phase = []
    for axis, size in ((2, height), (3, width)):
        start, end, step = found[axis].start, found[axis].end, found[axis].step
        if not isinstance(size, int) or size % 2 or start not in (0, 1) or step != 2 or not size - 1 <= end <= 1 << 63:
            return None
        if end == size - 1 and start == 1:
            return None
        phase.append(start)
    return phase[0], phase[1]


class FuseGatherIntoConv(OpRule):
    """Let a `Conv` with constant weights read the channels in the order in which they are.

    The `Gather` before it takes each channel once, in a constant order; the convolution has one group.
    """

    name = "fuse_gather_into_conv"
    ops = ("Conv",)
    numerics = Numerics.ROUNDING  # it adds up the channels in another order

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Put the weights in that order."""
        value, weight = node.input(0), node.input(1)
        gather = made_by(value, "Gather")
        if value is None or weight is None or gather is None:
            return None
        indices, x = gather.input(1), gather.input(0)
        if gather.graph is not node.graph:
            return Mismatch("{} is computed in an outer graph", value.name)
        if x is None or indices is None or gather.attr("axis", 0) != 1 or node.attr("group", 1) != 1:
            return Mismatch("not the order of the channels of one group")
        if not value.one_use:
            return Mismatch("{} has other readers", value.name)
        order, weights = indices.const(), weight.const()
        if order is None or weights is None or order.ndim != 1:
            return Mismatch("the order or the weights are not constant")
        count = _channels(x)
        if count is None or order.size != count or weights.ndim < 3 or weights.shape[1] != count:
            return Mismatch("not every channel of {} is known to be taken once", x.name)
        places = np.where(order < 0, order + count, order)
        if sorted(places.tolist()) != list(range(count)):
            return Mismatch("not every channel of {} is known to be taken once", x.name)
        moved = np.empty_like(weights)
        moved[:, places] = weights
        return rw.replace(node, [rw.op("Conv", x, rw.constant(moved, like=weight), *node.inputs[2:], **node.attrs)])


def _channels(x: Value) -> int | None:
    size = x.shape[1] if x.shape is not None and len(x.shape) > 1 else None
    return size if isinstance(size, int) else None
