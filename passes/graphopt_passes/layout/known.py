"""The first phase: layouts, sizes and padding lanes of values, node by node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from graphopt.analysis import ShapeAnalysis, Size
from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt_passes.layout.lanes import ZERO, Lanes
from graphopt_passes.layout.weights import Layout

FLOAT = TensorProto.FLOAT

_NUMBERS = {int}

Sizes = tuple[Size, Size, Size]
"""Batch, height and width: numbers or expressions."""


class Known:
    """Layout, sizes and padding lanes of values, as they would be if all nodes that can be were blocked.

    Attributes:
        block: channels per block.
    """

    def __init__(self, block: int) -> None:
        self.block = block
        self._shapes = ShapeAnalysis()
        self._layouts: dict[Value, Layout] = {}
        self._lanes: dict[Value, Lanes] = {}

    def follow(self, node: Node) -> None:
        """Analyze the next node; fixed sizes, and values that are no images, need no analysis."""
        shape = node.result.shape
        if shape is None or (len(shape) == 4 and {*map(type, shape)} != _NUMBERS):
            self._shapes.update(node)

    def learn(self, node: Node, gives: Sequence[Layout], sizes: Sizes, lanes: Lanes) -> None:
        """Record what the form of a node states of its outputs."""
        if 0 in sizes[1:]:
            return  # nothing reads it in blocks
        for value, layout in zip(node.results, gives, strict=False):
            self._layouts[value] = layout
            # If its node stays in NCHW after all, the value is reordered, which makes its padding lanes zero.
            self._lanes[value] = ZERO if self.aligned(layout) else lanes | ZERO
            if self._shapes.shape(value) is None:
                self._state(value, sum(layout), sizes)

    def assume_image(self, value: Value, channels: int, reader: Node) -> None:
        """Infer from its reader that a value of unknown rank is an image."""
        if self._shapes.shape(value) is None:
            fresh = self._shapes.fresh
            self._state(value, channels, (fresh(), fresh(), fresh()))
            self._shapes.update(reader)

    def _state(self, value: Value, channels: int, sizes: Sizes) -> None:
        self._shapes.set_shape(value, (sizes[0], channels, *sizes[1:]))

    def layout(self, value: Value | None) -> Layout | None:
        """Layout of the value once blocked; None unless it is a float image with a known number of channels.

        Empty images have none: pools, and blocked convolutions, which many operators become, refuse them.
        """
        if value is None:
            return None
        known = self._layouts.get(value)
        if known is not None:
            return known
        channels = value.dim(1)
        if value.dtype != FLOAT or value.rank != 4 or not isinstance(channels, int):
            return None
        return None if 0 in value.dims()[1:] else (channels,)

    def image(self, node: Node) -> tuple[Value, Layout]:
        """The first input of a node, a float image of known channels, and its layout."""
        x = node.operand(0)
        return x, self.layout_of_image(x)

    def layout_of_image(self, value: Value) -> Layout:
        """Layout of the value once blocked; declines unless it is an image that has one."""
        layout = self.layout(value)
        if layout is None:
            raise Decline
        return layout

    def sizes(self, value: Value) -> Sizes:
        """Batch, height and width of an image."""
        shape = self._shapes.shape(value)
        if shape is None or len(shape) != 4:
            fresh = self._shapes.fresh
            return fresh(), fresh(), fresh()
        return shape[0], shape[2], shape[3]

    def lanes(self, value: Value) -> Lanes:
        return self._lanes.get(value, ZERO)

    def aligned(self, layout: Layout) -> bool:
        """Whether a layout has no padding lanes."""
        block = self.block
        for channels in layout:  # noqa: SIM110 -- runs for every value
            if channels % block:
                return False
        return True


def is_number(value: Value, rank: int = 4) -> bool:
    """Whether a value is a single number that broadcasts to images of rank `rank` without changing their shape."""
    tensor = value.constant_tensor
    return value.shape == () if tensor is None else tensor.numel == 1 and len(tensor.dims) <= rank


def check_broadcasts(node: Node) -> None:
    """Decline if an operator that does not broadcast reads a number, which does not have the shape of an image."""
    if not node.graph.broadcasts(node.op) and any(map(is_number, node.operands)):
        raise Decline("{} does not broadcast at opset {}", node.op, node.graph.opset())


def channel_vector(value: Value, channels: int) -> np.ndarray | None:
    """The numbers of a float constant with one per channel: [C,1,1] or [1,C,1,1]."""
    tensor = value.constant_tensor
    if tensor is None or tensor.dtype != FLOAT or tensor.numel != channels or len(tensor.dims) not in (3, 4):
        return None
    if tensor.dims[-3] != channels or channels == 1:
        return None
    return tensor.array().reshape(-1)
