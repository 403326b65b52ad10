"""Convolutions that Winograd's algorithm may compute, their sizes, and the choices of a cost model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators import Window
from graphopt.records import dataclass
from graphopt_passes.algorithm.transforms import Filtering

L = TypeVar("L", bound="Layer")

KERNEL = 3
"""Height and width of the kernels."""


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """A convolution, in NCHW or blocked layout.

    Attributes:
        node: the operator.
        kernel: its weights, [K, C, ...], including zero channels that pad blocks.
        batch: batch size; None if it is not fixed.
        source: height and width of its input.
        pads: top, left, bottom, right.
        strides: vertical and horizontal.
    """

    node: Node
    kernel: np.ndarray
    batch: int | None
    source: tuple[int, int]
    pads: tuple[int, int, int, int]
    strides: tuple[int, int]

    @property
    def x(self) -> Value:
        """The operand that it convolves; it changes when the preceding layer is converted."""
        return self.node.operand(0)

    @property
    def weight(self) -> Value:
        return self.node.operand(1)

    @property
    def is_open(self) -> bool:
        """Whether the batch is not fixed."""
        return self.batch is None

    @property
    def bias(self) -> np.ndarray | None:
        value = self.node.input(2)
        return None if value is None else value.array()

    @property
    def outputs(self) -> int:
        return int(self.kernel.shape[0])

    @property
    def inputs(self) -> int:
        return int(self.kernel.shape[1])

    @property
    def sides(self) -> tuple[int, int]:
        height, width = self.kernel.shape[2:]
        return int(height), int(width)

    @property
    def size(self) -> tuple[int, int]:
        top, left, bottom, right = self.pads
        (height, width), (rows, columns), (down, across) = self.source, self.sides, self.strides
        return (height + top + bottom - rows) // down + 1, (width + left + right - columns) // across + 1

    def tiles(self, tile: int) -> tuple[int, int]:
        """Numbers of rows and columns of tiles, including partial tiles at the edges."""
        (height, width), (rows, columns) = self.size, Filtering(tile, self.sides).outputs
        return -(-height // rows), -(-width // columns)

    def biases(self, tile: int) -> int:
        """Number of copies of the bias: one per coefficient of a tile."""
        return Filtering(tile, self.sides).area

    def growth(self, tile: int) -> int:
        """Bytes by which the weights and the bias grow."""
        repeated = 4 * self.outputs * self.biases(tile) if self.bias is not None and tile > 1 else 0
        kept = len(self.weight.users) > 1
        transformed = 4 * Filtering(tile, self.sides).area * self.inputs * self.outputs
        return transformed + repeated - (0 if kept else self.kernel.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class PlainLayer(Layer):
    """A 3x3 convolution of stride 1 in NCHW."""

    relu: Node | None  # the only reader of its result

    def biases(self, tile: int) -> int:
        """One per tile of a fixed batch."""
        rows, columns = self.tiles(tile)
        return self.batch * rows * columns if self.batch is not None else tile * tile


def read_plain(node: Node) -> PlainLayer:
    """Read a `Conv`; declines without a reason if it is not 3x3."""
    x, weight = node.operand(0), node.operand(1)
    if (weight.shape or ())[2:] != (KERNEL, KERNEL):
        raise Decline
    pads, strides = moves_of(node, (KERNEL, KERNEL))
    if strides != (1, 1):
        raise Decline("its strides are {}", strides)
    if weight.dtype != TensorProto.FLOAT:
        raise Decline("the element type of {} is not float", weight.name)
    kernel = weight.array()
    if not kernel.size:
        raise Decline("{} is empty", weight.name)
    batch, source = extents(x)
    return checked(PlainLayer(node, kernel, batch, source, pads, strides, _relu_after(node)))


def checked(layer: L) -> L:
    """Return the layer; declines if its bias is not one constant per channel, or its result is empty."""
    bias = layer.bias
    if bias is not None and bias.shape != (layer.outputs,):
        raise Decline("the bias has shape {}, expected one number for each of {} channels", bias.shape, layer.outputs)
    if min(layer.size) < 1:
        raise Decline("its result is empty")
    return layer


def moves_of(node: Node, kernel: tuple[int, int]) -> tuple[tuple[int, int, int, int], tuple[int, int]]:
    """Pads (top, left, bottom, right) and strides of a convolution; declines if the algorithm does not support it."""
    window = Window.of(node, kernel)
    if window.dilations != (1, 1):
        raise Decline("its dilations are {}", window.dilations)
    if node.attr("group", 1) != 1:
        raise Decline("it has {} groups", node.attr("group"))
    (top, left), (bottom, right) = window.padding()
    if min(top, left, bottom, right) < 0:
        raise Decline("its pads {} are negative", (top, left, bottom, right))
    down, across = window.strides
    return (top, left, bottom, right), (down, across)


def extents(x: Value) -> tuple[int | None, tuple[int, int]]:
    """Batch size (None if it is not fixed), then height and width; declines if the image may be empty."""
    shape = x.dims()
    if len(shape) != 4:
        raise Decline("the shape of {} is not known", x.name)
    batch, _, height, width = shape
    if not isinstance(height, int) or not isinstance(width, int):
        raise Decline("the height and width of {} are not known", x.name)
    if batch == 0:
        raise Decline("{} is empty", x.name)
    return (batch if isinstance(batch, int) else None), (height, width)


def _relu_after(node: Node) -> Node | None:
    reader = node.result.read_by("Relu")
    return reader if reader is not None and reader.graph is node.graph else None


@dataclass(frozen=True, slots=True)
class Choice:
    """An algorithm for a layer.

    Attributes:
        tile: m of F(m x m, r x r); 1 for a product with the taps as channels.
        saved: milliseconds saved over the direct convolution.
        growth: bytes by which the constants of the layer grow.
        tables: bytes of index tables, which layers of equal sizes share.
    """

    tile: int
    saved: float
    growth: int
    tables: int = 0


def slower(direct: float, others: Mapping[int, float], kernel: tuple[int, int] = (3, 3)) -> Decline:
    """The reason why a layer stays direct."""
    parts = [f"{Filtering(tile, kernel)} {time:.2f} ms" for tile, time in others.items()]
    return Decline("direct convolution is expected to be faster: {:.2f} ms, {}", direct, ", ".join(parts))
