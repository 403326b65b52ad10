"""What is known of values while forms are chosen: layout, extents, and what padding lanes hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from onnx import TensorProto

from graphopt.ir import Node, Tensor, Value
from graphopt.match import Mismatch
from graphopt_passes.layout.extents import Extents, anonymous, declared, refine
from graphopt_passes.layout.lanes import ZERO, Lanes
from graphopt_passes.layout.weights import Layout

FLOAT = TensorProto.FLOAT


class Kind(Enum):
    """How a node runs on blocked values.

    Attributes:
        label: what it is called in plans and events.
        mixes: its results are sums over all lanes of the first operand, so that padding lanes, though their weights
            are zero, must be bounded. In all other kinds a lane of the result depends on the same lane of operands.
    """

    label: str
    mixes: bool

    def __init__(self, label: str, mixes: bool) -> None:
        self.label = label
        self.mixes = mixes

    CONV = "conv", True
    GROUPED = "grouped", True
    TRANSPOSED = "transposed", True
    DEPTHWISE = "depthwise", False
    AFFINE = "affine", False
    GATE = "gate", False
    SPREAD_GATE = "spread gate", False
    PIXEL_GATE = "pixel gate", False
    ELEMENTWISE = "elementwise", False
    PRELU = "prelu", False
    SILU = "silu", False
    POOL = "pool", False
    GLOBAL_POOL = "global pool", False
    GLOBAL_ROW = "global row", False
    UPSAMPLE = "upsample", False
    CONCAT = "concat", False
    SPLIT = "split", False
    SLICE = "slice", False
    PAD = "pad", False
    CROP = "crop", False
    TO_NHWC = "to nhwc", False
    FROM_NHWC = "from nhwc", False


@dataclass(slots=True)
class Form:
    """How one node can run on blocked values.

    Attributes:
        node: the node.
        kind: which builder makes the blocked node, and whether it needs bounded lanes.
        operands: inputs that are read blocked.
        layouts: layout of each output, if the operands are blocked as expected.
        extents: batch, height and width of the outputs.
        lanes: what padding lanes of the outputs hold, when those of the operands hold what `Facts` says.
        plain: the first operand may stay in NCHW at no cost (a convolution over fewer channels than a block).
        head: it becomes a convolution that can take in an activation, and a residual sum before it.
        sums: whether a head takes in residual sums.
        by_plain: the first operand is read by way of NCHW, since its padding lanes may hold anything.
        note: what to say of it in the event.
        data: what else the builder needs.
    """

    node: Node
    kind: Kind
    operands: list[Value]
    layouts: list[Layout]
    extents: Extents
    lanes: Lanes
    plain: bool = False
    head: bool = False
    sums: bool = True
    by_plain: bool = False
    note: str = ""
    data: dict[str, object] = field(default_factory=dict)


Answer = Form | Mismatch | None
"""What is found of a node: its blocked form; why it has none; None for nodes that are no business of layouts."""


class Facts:
    """Layout, extents and padding of values, as they would be if all that can were blocked.

    Attributes:
        block: channels per block.
    """

    def __init__(self, block: int) -> None:
        self.block = block
        self._layouts: dict[Value, Layout] = {}
        self._extents: dict[Value, Extents] = {}
        self._lanes: dict[Value, Lanes] = {}

    def learn(self, form: Form) -> None:
        """Take in what a form says of its outputs."""
        outputs = [v for v in form.node.outputs if v is not None]
        for value, layout in zip(outputs, form.layouts, strict=False):
            self._layouts[value] = layout
            self._extents[value] = form.extents
            # A value whose node stays in NCHW after all is reordered, which makes them zero.
            self._lanes[value] = ZERO if self.aligned(layout) else form.lanes | ZERO

    def derive(self, value: Value, extents: Extents) -> None:
        """Note the extents of a value whose producer stays as it is."""
        self._extents[value] = extents

    def layout(self, value: Value | None) -> Layout | None:
        """Layout of the value once blocked; None unless it is a float image with a known number of channels."""
        if value is None:
            return None
        known = self._layouts.get(value)
        if known is not None:
            return known
        shape = value.shape
        if value.dtype != FLOAT or shape is None or len(shape) != 4 or not isinstance(shape[1], int):
            return None
        return (shape[1],) if shape[1] > 0 else None

    def extents(self, value: Value) -> Extents:
        """Batch, height and width."""
        known = self._extents.get(value)
        if known is None:
            known = self._extents[value] = declared(value) or anonymous(value)
        return known

    def refined(self, derived: Extents | None, node: Node) -> Extents:
        """Extents of a node's first output: derived ones made precise by its type, or those of its type alone."""
        value = node.outputs[0]
        assert value is not None
        return refine(derived, value) if derived is not None else self.extents(value)

    def lanes(self, value: Value) -> Lanes:
        """What the padding lanes hold."""
        return self._lanes.get(value, ZERO)

    def aligned(self, layout: Layout) -> bool:
        """Whether a layout has no padding lanes."""
        return all(channels % self.block == 0 for channels in layout)


def image_and_kernel(node: Node, outputs: int) -> tuple[Value, Tensor] | Mismatch | None:
    """What a convolution in two dimensions reads, and its constant kernel; its bias, if any, is constant, too.

    Args:
        node: a `Conv` or `ConvTranspose`.
        outputs: the axis of the kernel that the bias is along.
    """
    x, w, b = node.input(0), node.input(1), node.input(2)
    tensor = w.constant_tensor if w is not None else None
    if x is None or w is None:
        return None
    if tensor is None:
        return Mismatch("weight {} is not constant", w.name) if w.rank == 4 else None
    if len(tensor.dims) != 4 or 0 in tensor.dims:
        return None
    if tensor.dtype != FLOAT:
        return Mismatch("weight {} is not float32", w.name)
    bias = b.constant_tensor if b is not None else None
    if b is not None and (bias is None or bias.dims != tensor.dims[outputs : outputs + 1]):
        return Mismatch("bias {} is not constant", b.name)
    return x, tensor


def scalar(value: Value | None) -> float | None:
    """The number that a constant of one element holds."""
    array = value.const(max_bytes=64) if value is not None else None
    if array is None or array.size != 1 or array.dtype == object:
        return None
    return float(array.reshape(-1)[0])


def channel_vector(value: Value, channels: int) -> np.ndarray | None:
    """The numbers of a float constant that has one for each channel: [C,1,1] or [1,C,1,1]."""
    tensor = value.constant_tensor
    if tensor is None or tensor.dtype != FLOAT or tensor.numel != channels or len(tensor.dims) not in (3, 4):
        return None
    if tensor.dims[-3] != channels or channels == 1:
        return None
    return tensor.array().reshape(-1)


def integers(value: Value | None) -> list[int] | None:
    """The contents of a small constant of integers."""
    array = value.const(max_bytes=4096) if value is not None else None
    return None if array is None else [int(i) for i in array.reshape(-1)]
