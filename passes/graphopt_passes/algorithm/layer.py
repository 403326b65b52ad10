"""Which convolutions Winograd's algorithm can compute, and their sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch
from graphopt_passes.algorithm.transforms import Filtering

KERNEL = 3
"""Height and width of the kernels."""


class Geometry:
    """Sizes of a convolution, whichever form its values have.

    Attributes:
        kernel: its kernel, [K, C, ...].
        source: height and width of its input.
        pads: top, left, bottom, right.
        strides: vertical and horizontal.
    """

    __slots__ = ()

    kernel: np.ndarray
    source: tuple[int, int]
    pads: tuple[int, int, int, int]
    strides: tuple[int, int]

    @property
    def outputs(self) -> int:
        """Output channels."""
        return int(self.kernel.shape[0])

    @property
    def inputs(self) -> int:
        """Input channels."""
        return int(self.kernel.shape[1])

    @property
    def sides(self) -> tuple[int, int]:
        """Height and width of the kernel."""
        height, width = self.kernel.shape[2:]
        return int(height), int(width)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the result."""
        top, left, bottom, right = self.pads
        (height, width), (rows, columns), (down, across) = self.source, self.sides, self.strides
        return (height + top + bottom - rows) // down + 1, (width + left + right - columns) // across + 1

    def tiles(self, tile: int) -> tuple[int, int]:
        """Rows and columns of tiles, those at ragged edges included."""
        (height, width), (rows, columns) = self.size, Filtering(tile, self.sides).outputs
        return -(-height // rows), -(-width // columns)


@dataclass(frozen=True, slots=True, eq=False)
class Layer(Geometry):
    """A 3x3 convolution of stride 1.

    Attributes:
        node: the `Conv`.
        relu: the `Relu` that alone reads its result.
        weight: its kernel, as a value.
        kernel: its kernel, [K, C, 3, 3].
        bias: its bias, None where it has none.
        batch: images at once; None when that is not fixed.
        source: height and width of its input.
        pads: top, left, bottom, right.
        strides: of one.
    """

    node: Node
    relu: Node | None
    weight: Value
    kernel: np.ndarray
    bias: np.ndarray | None
    batch: int | None
    source: tuple[int, int]
    pads: tuple[int, int, int, int]
    strides: tuple[int, int] = (1, 1)

    @property
    def x(self) -> Value:
        """What it convolves; another value once the layer in front of it is converted."""
        value = self.node.inputs[0]
        assert value is not None
        return value


def read_layer(node: Node) -> Layer | Mismatch | None:
    """The layer that a `Conv` computes; None when it is not 3x3; a `Mismatch` when the algorithm cannot do the same."""
    x, weight = node.input(0), node.input(1)
    if x is None or weight is None or weight.shape is None or tuple(weight.shape[2:]) != (KERNEL, KERNEL):
        return None
    pads = pads_of(node)
    if isinstance(pads, Mismatch):
        return pads
    strides = strides_of(node)
    if strides != (1, 1):
        return Mismatch("its strides are {}", strides)
    if weight.dtype != TensorProto.FLOAT:
        return Mismatch("the element type of {} is not float", weight.name)
    kernel = weight.const()
    if kernel is None:
        return Mismatch("the weight {} is not constant", weight.name)
    if not kernel.size:
        return Mismatch("{} has no elements", weight.name)
    found = extents(x)
    if isinstance(found, Mismatch):
        return found
    bias = _bias(node)
    if isinstance(bias, Mismatch):
        return bias
    layer = Layer(node, _relu_after(node), weight, kernel, bias, found[0], found[1:], pads)
    if min(layer.size) < 1:
        return Mismatch("its result is empty")
    return layer


def pads_of(node: Node, kernel: tuple[int, int] = (KERNEL, KERNEL)) -> tuple[int, int, int, int] | Mismatch:
    """Top, left, bottom and right pads of a convolution that the algorithm can compute."""
    dilations = tuple(node.attr("dilations") or (1, 1))
    if dilations != (1, 1):
        return Mismatch("its dilations are {}", dilations)
    if node.attr("group", 1) != 1:
        return Mismatch("it has {} groups", node.attr("group"))
    auto = node.attr("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        if strides_of(node) != (1, 1):
            return Mismatch("its pads are {} and its strides {}", auto, strides_of(node))
        above, left = (side // 2 for side in kernel)
        return above, left, above, left
    pads = (0, 0, 0, 0) if auto == "VALID" else tuple(node.attr("pads") or (0, 0, 0, 0))
    if min(pads) < 0:
        return Mismatch("its pads {} crop", pads)
    top, left, bottom, right = pads
    return top, left, bottom, right


def strides_of(node: Node) -> tuple[int, int]:
    """Vertical and horizontal stride of a convolution."""
    down, across = node.attr("strides") or (1, 1)
    return down, across


def extents(x: Value) -> tuple[int | None, int, int] | Mismatch:
    """Batch (None when it is not fixed), height and width of an image."""
    shape = x.shape
    if shape is None or len(shape) != 4:
        return Mismatch("the shape of {} is not known", x.name)
    batch, _, height, width = shape
    if not isinstance(height, int) or not isinstance(width, int):
        return Mismatch("height and width of {} are not fixed", x.name)
    if batch == 0:
        return Mismatch("{} is empty", x.name)
    return (batch if isinstance(batch, int) else None), height, width


def _bias(node: Node) -> np.ndarray | Mismatch | None:
    value = node.input(2)
    if value is None:
        return None
    bias = value.const()
    return bias if bias is not None else Mismatch("the bias {} is not constant", value.name)


def _relu_after(node: Node) -> Node | None:
    result = node.output(0)
    if result is None or not result.one_use:
        return None
    reader = next(iter(result.users))
    return reader if reader.op == "Relu" and reader.graph is node.graph else None
