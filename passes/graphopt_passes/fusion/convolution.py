"""What rules need to know of a convolution: its layout, and arithmetic on its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.rewrite import Mismatch, Rewriter
from graphopt_passes.elimination.facts import made_by, only_reader

CONVOLUTIONS = ("Conv", "ConvTranspose")


@dataclass(frozen=True, slots=True)
class Convolution:
    """A `Conv` or `ConvTranspose` whose result only one node reads.

    Attributes:
        node: the node.
        rank: the rank of its input, weight and output.
        channels: the number of output channels.
        group: the number of groups.
    """

    node: Node
    rank: int
    channels: int
    group: int

    @property
    def x(self) -> Value | None:
        """What it convolves."""
        return self.node.input(0)

    @property
    def has_bias(self) -> bool:
        """Whether it adds a bias."""
        return self.node.input(2) is not None

    @property
    def weight(self) -> np.ndarray | None:
        """A copy of the kernel, None when it is not constant."""
        value = self.node.input(1)
        tensor = value.constant_tensor if value is not None else None
        return tensor.copy() if tensor is not None else None

    def bias(self) -> np.ndarray | Mismatch:
        """The bias in float64, zeros where it has none, or why it cannot be read."""
        value = self.node.input(2)
        if value is None:
            return np.zeros(self.channels)
        array = value.const()
        if array is None:
            return Mismatch("the bias {} is not constant", value.name)
        return array.astype(np.float64)

    def scaled(self, weight: np.ndarray, factor: np.ndarray) -> np.ndarray:
        """The kernel, a copy that may be changed, with each output channel multiplied by its factor in float64.

        It is rounded to the element type of the kernel at once where something is left of it then.
        """
        if self.node.op == "Conv":
            by = factor.reshape(-1, *(1,) * (weight.ndim - 1))
            if weight.dtype in (np.float32, np.float64):
                with np.errstate(all="ignore"):
                    np.multiply(weight, by, out=weight, dtype=np.float64, casting="unsafe")
                again = None if weight.any() else self.weight
                if again is None:
                    return weight
                weight = again
            return np.asarray(weight.astype(np.float64) * by)
        wide = weight.astype(np.float64)
        split = wide.reshape(self.group, -1, *wide.shape[1:])
        by = factor.reshape(self.group, 1, -1, *(1,) * (wide.ndim - 2))
        return np.asarray((split * by).reshape(wide.shape))

    def rebuilt(self, rw: Rewriter, weight: np.ndarray | None, bias: np.ndarray | None) -> Value | Mismatch:
        """The same convolution with other weights, float64 or rounded already; None keeps what is there."""
        old_weight, old_bias = self.node.input(1), self.node.input(2)
        assert old_weight is not None
        dtype = _element_type(self.node)
        if dtype is None:
            return Mismatch("the element type of {} is not known", old_weight.name)
        kernel: Value | None = old_weight
        if weight is not None:
            narrow = narrowed(weight, dtype)
            if narrow is None:
                return Mismatch("the new weights leave the range of the element type of {}", old_weight.name)
            kernel = rw.constant(narrow, like=old_weight)
        addend = old_bias
        if bias is not None:
            shift = narrowed(bias, dtype)
            if shift is None:
                return Mismatch("the new bias leaves the range of the element type of {}", old_weight.name)
            addend = rw.constant(shift, like=old_bias or f"{old_weight.name}_bias")
        result: Value = rw.op(self.node.op_type, self.x, kernel, addend, **self.node.attrs)
        return result


def _element_type(node: Node) -> np.dtype[Any] | None:
    from onnx.helper import tensor_dtype_to_np_dtype

    for value in (*node.inputs, node.output(0)):
        if value is not None and value.dtype in FLOAT_TYPES:
            return np.dtype(tensor_dtype_to_np_dtype(value.dtype))
    return None


def narrowed(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray | None:
    """Float64 numbers in the element type, or None when one of them does not fit or all of them vanish.

    Numbers that were rounded to the element type before are only looked at.
    """
    with np.errstate(all="ignore"):
        result = np.asarray(array).astype(dtype, copy=False)
        if dtype in (np.float32, np.float64):
            total = result.sum()
            if total and np.isfinite(total):
                return result  # a sum is finite only if all numbers are
    if not np.isfinite(result).all():
        return None
    return None if array.any() and not result.any() else result


def sole_convolution(value: Value | None, reader: Node) -> Convolution | Mismatch | None:
    """The convolution that computes `value` for `reader` alone.

    Args:
        value: what the reader reads.
        reader: the node that is to go into the convolution.

    Returns:
        The convolution; None when the value comes from something else; a `Mismatch` when it cannot be changed.
    """
    node = made_by(value, *CONVOLUTIONS)
    if value is None or node is None:
        return None
    problem = only_reader(value, reader)
    if problem is not None:
        return problem
    weight = node.input(1)
    shape = weight.shape if weight is not None else None
    if weight is None or shape is None or len(shape) < 3:
        return Mismatch("the shape of the weight of {} is not known", value.name)
    group = node.attr("group", 1)
    first = shape[0] if node.op == "Conv" else shape[1]
    if not isinstance(first, int):
        return Mismatch("the number of channels of {} is not known", value.name)
    return Convolution(node, len(shape), first if node.op == "Conv" else first * group, group)


def per_channel(constant: np.ndarray, rank: int, channels: int) -> np.ndarray | None:
    """A constant that broadcasts over a result with channels at axis 1, as one float64 number per channel.

    None when it varies along another axis, or would change the shape or the rank of the result.
    """
    if constant.ndim > rank:
        return None
    shape = (1,) * (rank - constant.ndim) + constant.shape
    if any(size != 1 for axis, size in enumerate(shape) if axis != 1) or shape[1] not in (1, channels):
        return None
    return np.broadcast_to(constant.astype(np.float64).reshape(-1), (channels,))
