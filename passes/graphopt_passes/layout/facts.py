"""What is known of values while forms are chosen: layout, extents, and how large padding lanes can get."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from onnx import TensorProto

from graphopt.ir import Node, Tensor, Value
from graphopt.match import Mismatch
from graphopt_passes.layout.extents import Extents, anonymous, declared, refine
from graphopt_passes.layout.weights import Layout

FLOAT = TensorProto.FLOAT
TOO_LARGE = 1e30
"""Above this, what is in padding lanes may overflow on the way to weights of zero, and become NaN there."""


@dataclass(slots=True)
class Form:
    """How one node can run on blocked values.

    Attributes:
        node: the node.
        kind: which builder makes the blocked node.
        operands: inputs that are read blocked.
        layouts: layout of each output, if the operands are blocked as expected.
        extents: batch, height and width of the outputs.
        plain: the first operand may stay in NCHW at no cost (a convolution over fewer channels than a block).
        head: it becomes a convolution that can take in an activation, and a residual sum before it.
        sums: whether a head takes in residual sums.
        lane: bound on what padding lanes of the output hold.
        note: what to say of it in the event.
        data: what else the builder needs.
    """

    node: Node
    kind: str
    operands: list[Value]
    layouts: list[Layout]
    extents: Extents
    plain: bool = False
    head: bool = False
    sums: bool = True
    lane: float = 0.0
    note: str = ""
    data: dict[str, object] = field(default_factory=dict)


class Facts:
    """Layout, extents and padding of values, as they would be if all that can were blocked.

    Attributes:
        block: channels per block.
    """

    def __init__(self, block: int) -> None:
        self.block = block
        self._layouts: dict[Value, Layout] = {}
        self._extents: dict[Value, Extents] = {}
        self._lanes: dict[Value, float] = {}

    def learn(self, form: Form) -> None:
        """Take in what a form says of its outputs."""
        outputs = [v for v in form.node.outputs if v is not None]
        for value, layout in zip(outputs, form.layouts, strict=False):
            self._layouts[value] = layout
            self._extents[value] = form.extents
            self._lanes[value] = form.lane

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

    def lane(self, value: Value) -> float:
        """Bound on what the padding lanes hold."""
        return self._lanes.get(value, 0.0)

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
