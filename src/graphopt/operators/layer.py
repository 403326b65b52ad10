"""Linear operators with constant weights, by their input and output channels."""

from __future__ import annotations

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node, Tensor
from graphopt.operators.affine import per_channel
from graphopt.operators.linear import Convolution
from graphopt.records import dataclass

LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")

_SMALL = 1 << 22
"""Most bytes of weights that are searched for unread input channels, whose elements are a page apart."""


def zero_along(array: np.ndarray, axis: int) -> np.ndarray:
    """For each position along an axis, whether all elements there are zero; checks one element of each first."""
    first: list[int | slice] = [0] * array.ndim
    first[axis] = slice(None)
    zero = np.asarray(array[tuple(first)] == 0)
    candidates = np.flatnonzero(zero)
    if candidates.size:
        others = tuple(at for at in range(array.ndim) if at != axis)
        taken = array if candidates.size == zero.size else np.take(array, candidates, axis)
        zero[candidates] = ~taken.any(axis=others)
    zero.flags.writeable = False
    return zero


@dataclass(frozen=True, slots=True)
class LinearLayer:
    """A linear operator with a constant weight, by its input and output channels.

    Attributes:
        node: the operator.
        tensor: its weight.
        weight: the weight as an array.
        made: the axis of the weight for output channels.
        read: the axis of the weight for input channels; None for a depthwise convolution.
        axis: the channel axis of its input and its result.
        rank: the rank of both.
    """

    node: Node
    tensor: Tensor
    weight: np.ndarray
    made: int
    read: int | None
    axis: int
    rank: int

    @classmethod
    def of(cls, node: Node) -> LinearLayer:
        """Read a node; declines if it is none, grouped but not depthwise, or its weight is no constant of floats."""
        if node.op not in LAYERS:
            raise Decline
        weight = node.operand(1)
        tensor = weight.constant_tensor
        if tensor is None:
            raise Decline("{} is not constant", weight.name)
        array = tensor.array()
        if array.dtype not in (np.float32, np.float64) or not array.size:
            raise Decline("the weight {} is not float32 or float64, or is empty", weight.name)
        if node.op in Convolution.ops:
            return cls._of_convolution(node, tensor, array)
        rank = 2 if node.op == "Gemm" else len(node.operand(0).dims())
        if array.ndim != 2 or rank < 2 or node.attr("transA", 0):
            raise Decline("{} is not a product of rows and a constant matrix", node.op)
        made = 0 if node.attr("transB", 0) else 1
        return cls(node, tensor, array, made, 1 - made, rank - 1, rank)

    @classmethod
    def _of_convolution(cls, node: Node, tensor: Tensor, array: np.ndarray) -> LinearLayer:
        group = node.attr("group", 1)
        if array.ndim < 3:
            raise Decline("the weight of {} has rank {}", node.op, array.ndim)
        if group > 1:
            if group != array.shape[0] or array.shape[1] != 1:
                raise Decline("{} has {} groups, but is not depthwise", node.op, group)
            return cls(node, tensor, array, 0, None, 1, array.ndim)
        made = 0 if node.op == "Conv" else 1
        return cls(node, tensor, array, made, 1 - made, 1, array.ndim)

    @property
    def channels(self) -> int:
        """The number of output channels."""
        return int(self.weight.shape[self.made])

    @property
    def is_depthwise(self) -> bool:
        """Whether each output channel reads one input channel of its own."""
        return self.read is None

    def is_uniform(self) -> bool:
        """Whether a spatially constant input channel contributes a constant: nothing is padded with zeros."""
        node = self.node
        return node.op != "ConvTranspose" and not (node.op == "Conv" and Convolution.of(node).pads)

    def dead(self) -> np.ndarray:
        """For each output channel, whether all its weights are zero."""
        return self._zero_along(self.made)

    def _zero_along(self, axis: int) -> np.ndarray:
        found: np.ndarray = self.tensor.figure(("zero along", axis), lambda: zero_along(self.weight, axis))
        return found

    def unread(self) -> np.ndarray:
        """For each input channel, whether all its weights are zero; large weights are assumed to read all."""
        assert self.read is not None
        if self.weight.nbytes > _SMALL:
            return np.zeros(self.weight.shape[self.read], bool)
        return self._zero_along(self.read)

    def bias(self) -> np.ndarray:
        """The bias per output channel in float64, with `beta`; declines if it is not constant and finite."""
        shift = self.node.input(2)
        if shift is None:
            return np.zeros(self.channels)
        if self.node.op != "Gemm":
            return per_channel(shift, 1, 0, self.channels)
        return per_channel(shift, 2, 1, self.channels) * float(self.node.attr("beta", 1.0))

    def added(self, numbers: np.ndarray, channels: np.ndarray) -> np.ndarray:
        """The contribution of constant input `channels`, with one number each, to each output channel."""
        assert self.read is not None
        part = np.moveaxis(np.take(self.weight, channels, self.read), (self.read, self.made), (0, 1))
        sums = part.sum(axis=tuple(range(2, part.ndim)), dtype=np.float64)
        return np.asarray(numbers[channels].astype(np.float64) @ sums * float(self.node.attr("alpha", 1.0)))
