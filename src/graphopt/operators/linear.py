"""Operators that are linear in a constant weight: convolutions and matrix products, with arithmetic on the weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.ir.numpy_types import numpy_type
from graphopt.operators.affine import Affine, per_channel
from graphopt.operators.builder import NodeBuilder, with_operand
from graphopt.records import dataclass

PLAIN_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16})
"""Element types of weights that NumPy supports natively."""


def narrowed(array: np.ndarray, dtype: np.dtype[Any], name: str) -> np.ndarray:
    """Round float64 numbers to the element type of a weight or bias; numbers of that type are only checked.

    Raises:
        Decline: one of them overflows, or all of them underflow to zero.
    """
    with np.errstate(all="ignore"):
        result = np.asarray(array).astype(dtype, copy=False)
        if dtype in (np.float32, np.float64):
            total = result.sum()
            if total and np.isfinite(total):
                return result  # a finite sum implies finite numbers
    if not np.isfinite(result).all() or (array.any() and not result.any()):
        raise Decline("the new {} overflow or underflow in their element type", name)
    return result


def narrowed_factors(array: np.ndarray, dtype: np.dtype[Any], name: str) -> np.ndarray:
    """Round float64 factors of single values to an element type.

    Raises:
        Decline: one of them overflows, or loses precision as a denormal: it may multiply large values.
    """
    result = narrowed(array, dtype, name)
    share = 2.0**-13 if dtype.itemsize > 2 else 2.0**-7
    if (np.abs(result.astype(np.float64) - array) > share * np.abs(array)).any():
        raise Decline("the new {} overflow or underflow in their element type", name)
    return result


def narrowed_weights(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Round float64 numbers to the element type of a weight; numbers of that type are only checked.

    Raises:
        Decline: one of them overflows, all of them underflow to zero, or they are so large that a sum of products may
            overflow although its scaled result does not.
    """
    with np.errstate(all="ignore"):
        result = np.asarray(array).astype(dtype, copy=False)
        square = np.vdot(result, result) if dtype in (np.float32, np.float64) else 0
    if square and np.isfinite(square):
        return result
    if np.isinf(square) and np.isfinite(result).all():
        raise Decline("sums of products with the new weights may overflow")
    return narrowed(array, dtype, "weights")


def joint_shape(*constants: np.ndarray) -> tuple[int, ...]:
    """The shape that constants broadcast to, that of one of them.

    Raises:
        Decline: there is none, as in a model that cannot run, or it is none of theirs: a constant of that shape may be
            far larger than all of them.
    """
    shapes = [constant.shape for constant in constants]
    try:
        joint = np.broadcast_shapes(*shapes)
    except ValueError:
        raise Decline("the constants cannot be broadcast") from None
    if joint not in shapes:
        raise Decline("the constants of shapes {} would combine to a larger one", " and ".join(map(str, shapes)))
    return joint


@dataclass(frozen=True, slots=True)
class Linear(ABC):
    """An operator that multiplies with a weight, and adds a bias per output channel.

    Attributes:
        node: the operator.
        x: the data operand.
        kernel: the weight.
        shift: the bias; None if there is none.
        channels: the number of output channels.
        rank: the rank of the result.
    """

    node: Node
    x: Value
    kernel: Value
    shift: Value | None
    channels: int
    rank: int

    ops: ClassVar[tuple[str, ...]]

    @classmethod
    @abstractmethod
    def of(cls, node: Node) -> Linear:
        """Read an operator.

        Raises:
            Decline: it is none, or a required shape is not known.
        """

    @property
    @abstractmethod
    def axis(self) -> int:
        """The channel axis of the result, from the front."""

    @abstractmethod
    def scaled(self, scale: np.ndarray) -> np.ndarray:
        """The weight with each output channel scaled, rounded to its element type.

        Nonzero weights stay nonzero; if all would underflow, the result is float64.

        Raises:
            Decline: it is not constant.
        """

    def of_inputs(self, numbers: np.ndarray) -> np.ndarray:
        """Reshape one number per input channel to broadcast to the weight of a product."""
        return numbers.reshape(1, -1) if self.node.attr("transB", 0) else numbers.reshape(-1, 1)

    def scaled_inputs(self, scale: np.ndarray) -> np.ndarray:
        """The weight with each input channel scaled, rounded as by `scaled`; not for `ConvTranspose`."""
        return _times(_copy(self.kernel), self.of_inputs(scale), self.kernel)

    def of_shift(self, shift: np.ndarray) -> np.ndarray:
        """The shift of the output channels caused by a shift of the input channels, in float64.

        Only for convolutions without padding.
        """
        weighed = self.kernel.array().astype(np.float64) * self.of_inputs(shift)
        return np.asarray(weighed.sum(axis=1 if self.node.attr("transB", 0) else 0) * self.node.attr("alpha", 1.0))

    @abstractmethod
    def write(self, to: NodeBuilder, kernel: Value, bias: Value | None) -> Value:
        """Write the operator with another weight and bias."""

    def bias(self) -> np.ndarray | None:
        """The bias in float64, one number per channel; None if there is none.

        Raises:
            Decline: it is not constant.
        """
        return None if self.shift is None else self.shift.array().astype(np.float64)

    def scaling(self, node: Node, value: Value) -> Affine:
        """The affine function of the channels that a reader of the result, its operand `value`, computes."""
        return Affine.of(node, value, self.rank, self.axis, self.channels)

    def then(self, affine: Affine, to: Any) -> Value:
        """Write the operator with an affine function folded into its weight and bias.

        Args:
            affine: the function of its result.
            to: the gate.

        Raises:
            Decline: weight or bias are not constant, or leave the range of their element type.
        """
        bias = self.bias()
        scaled = None if affine.scale is None else self.scaled(affine.scale)
        dtype, kernel, shift = self._dtype(), self.kernel, self.shift
        if scaled is not None:
            kernel = to.constant(narrowed_weights(scaled, dtype), like=self.kernel)
        row = affine.of_bias(bias, self.channels)
        if row is not None:
            like = self.shift or f"{self.kernel.name}_bias"
            shift = to.constant(narrowed(row, dtype, "biases"), like=like)
        return self.write(to, kernel, shift)

    def _dtype(self) -> np.dtype[Any]:
        for value in (self.kernel, self.x, self.shift, self.node.result):
            if value is not None and value.dtype in FLOAT_TYPES:
                return numpy_type(value.dtype)
        raise Decline("the element type of {} is not known", self.kernel.name)


@dataclass(frozen=True, slots=True)
class Convolution(Linear):
    """A `Conv` or `ConvTranspose`."""

    ops: ClassVar[tuple[str, ...]] = ("Conv", "ConvTranspose")

    @classmethod
    def of(cls, node: Node) -> Convolution:
        """Read a convolution; its weight need not be constant."""
        if node.op not in cls.ops:
            raise Decline
        weight = node.operand(1)
        shape = weight.shape
        if shape is None or len(shape) < 3:
            raise Decline("the shape of the weight of {} is not known", node.result.name)
        first = shape[0] if node.op == "Conv" else shape[1]
        if not isinstance(first, int):
            raise Decline("the number of channels of {} is not known", node.result.name)
        if not first:
            raise Decline("{} has no channels", node.result.name)
        group, bias = node.attr("group", 1), node.input(2)
        if isinstance(shape[0], int) and shape[0] % group:
            raise Decline("{} has {} channels, not a multiple of {} groups", weight.name, shape[0], group)
        channels = first if node.op == "Conv" else first * group
        if bias is not None and bias.is_const and bias.shape != (channels,):
            raise Decline("{} has shape {}, not that of a bias for {} channels", bias.name, bias.shape, channels)
        return cls(node, node.operand(0), weight, bias, channels, len(shape))

    @property
    def axis(self) -> int:
        """Channels follow the batch."""
        return 1

    @property
    def group(self) -> int:
        """The number of groups."""
        return int(self.node.attr("group", 1))

    @property
    def pads(self) -> bool:
        """Whether it pads its input with zeros, or may do so."""
        return any(self.node.attr("pads") or ()) or self.node.attr("auto_pad", "NOTSET") not in ("NOTSET", "VALID")

    def scaled(self, scale: np.ndarray) -> np.ndarray:
        """Scale output channels: the first axis, or for a transposed convolution the second one of each group."""
        weight = _copy(self.kernel)
        if self.node.op == "Conv":
            return _times(weight, scale.reshape(-1, *(1,) * (weight.ndim - 1)), self.kernel)
        split = weight.reshape(self.group, -1, *weight.shape[1:])
        by = scale.reshape(self.group, 1, -1, *(1,) * (weight.ndim - 2))
        return _times(split, by, self.kernel).reshape(weight.shape)

    def of_inputs(self, numbers: np.ndarray) -> np.ndarray:
        """Expand one number per input channel to the first two axes of the kernel, to broadcast to it."""
        outputs, inputs, *spatial = self.kernel.sizes()
        by = np.repeat(numbers.reshape(self.group, inputs), outputs // self.group, axis=0)
        return np.asarray(by.reshape(outputs, inputs, *(1,) * len(spatial)))

    def of_shift(self, shift: np.ndarray) -> np.ndarray:
        """Sum over all weights of an output channel."""
        weighed = self.kernel.array().astype(np.float64) * self.of_inputs(shift)
        return np.asarray(weighed.reshape(self.channels, -1).sum(axis=1))

    def write(self, to: NodeBuilder, kernel: Value, bias: Value | None) -> Value:
        """Write the convolution with another weight and bias."""
        return to.again(self.node, self.x, kernel, bias)


@dataclass(frozen=True, slots=True)
class MatrixProduct(Linear):
    """A `Gemm`, or a `MatMul` of two matrices, with a constant right operand; its bias includes `beta`."""

    ops: ClassVar[tuple[str, ...]] = ("Gemm", "MatMul")

    @classmethod
    def of(cls, node: Node) -> MatrixProduct:
        """Read a product whose result is a matrix."""
        x = node.operand(0)
        product = cls.of_rows(node, x)
        if node.op == "MatMul" and x.rank != product.rank:
            raise Decline("{} is not known to be a matrix", x.name)
        return product

    @classmethod
    def of_rows(cls, node: Node, x: Value) -> MatrixProduct:
        """Read a product whose left operand is a matrix, or has rows along several axes.

        Args:
            node: the product.
            x: its left operand, or that reshaped to a matrix.
        """
        if node.op not in cls.ops:
            raise Decline
        weight = node.operand(1)
        if not weight.is_const:
            raise Decline("the right operand of {} is not constant", node.result.name)
        dims = weight.sizes()
        if len(dims) != 2 or weight.dtype not in PLAIN_FLOATS:
            raise Decline("{} is not a matrix of a float type", weight.name)
        return cls(node, x, weight, node.input(2), dims[0 if node.attr("transB", 0) else 1], 2)

    @property
    def axis(self) -> int:
        """Channels are columns."""
        return 1

    def bias(self) -> np.ndarray | None:
        """The bias as a row, times `beta`."""
        if self.shift is None:
            return None
        bias = self.shift.array()
        if bias.shape[:-1] not in ((), (1,)) or bias.size not in (1, self.channels):
            raise Decline("the bias {} is not one row", self.shift.name)
        row = np.broadcast_to(bias.astype(np.float64).reshape(-1), (self.channels,))
        beta = self.node.attr("beta", 1.0)
        return np.asarray(row * beta) if beta else np.zeros(self.channels)  # with `beta` = 0 the operand is not read

    def scaled(self, scale: np.ndarray) -> np.ndarray:
        """Scale the columns of the result."""
        by = scale.reshape(-1, 1) if self.node.attr("transB", 0) else scale
        return _times(_copy(self.kernel), by, self.kernel)

    def write(self, to: NodeBuilder, kernel: Value, bias: Value | None) -> Value:
        """Write a `Gemm`."""
        attrs = {key: value for key, value in self.node.attrs.items() if key != "beta" or bias is self.shift}
        result: Value = to.op("Gemm", self.x, kernel, bias, **attrs)
        return result


@dataclass(frozen=True, slots=True)
class RowProduct(Linear):
    """A `MatMul` of rows along any number of axes with a constant matrix, and the `Add` of a constant row after it.

    `node` is the product; the `Add`, if any, is its only reader.
    """

    ops: ClassVar[tuple[str, ...]] = ("Add", "MatMul")

    @classmethod
    def of(cls, node: Node) -> RowProduct:
        """Read a product, or the sum of a product and a constant."""
        product, bias = node, None
        if node.op == "Add":
            sides = [(a, b) for a, b in (node.operands, node.operands[::-1]) if a.made_by("MatMul") and b.is_const]
            if not sides:
                raise Decline
            value, bias = sides[0]
            product = value.sole_source("MatMul", reader=node)
        if product.op != "MatMul":
            raise Decline
        weight, rank = product.operand(1), product.result.rank
        if not weight.is_const or weight.rank != 2 or weight.dtype not in PLAIN_FLOATS:
            raise Decline("{} is not a constant matrix of floats", weight.name)
        if rank is None or rank < 2:
            raise Decline("{} is not known to have rank 2 or more", product.result.name)
        return cls(product, product.operand(0), weight, bias, weight.sizes()[1], rank)

    @property
    def axis(self) -> int:
        """Channels are the last axis."""
        return self.rank - 1

    def bias(self) -> np.ndarray | None:
        """The constant of the `Add`, which must not enlarge the product by broadcasting."""
        return None if self.shift is None else per_channel(self.shift, self.rank, self.axis, self.channels)

    def scaled(self, scale: np.ndarray) -> np.ndarray:
        """Scale the columns of the matrix."""
        return _times(_copy(self.kernel), scale, self.kernel)

    def write(self, to: NodeBuilder, kernel: Value, bias: Value | None) -> Value:
        """Write a `MatMul`, and an `Add` if there is a bias."""
        return with_operand(to, "Add", to.op("MatMul", self.x, kernel), bias)


def _copy(value: Value) -> np.ndarray:
    """A mutable copy of a constant.

    Raises:
        Decline: it is not constant.
    """
    tensor = value.constant_tensor
    if tensor is None:
        raise Decline("{} is not constant", value.name)
    return tensor.copy()


def _times(weight: np.ndarray, by: np.ndarray, kept: Value) -> np.ndarray:
    """Multiply a weight by factors in float64, and round to its element type.

    A nonzero weight does not become zero, since an infinite activation would give NaN there: it becomes at least the
    smallest denormal. If all weights would underflow, the result is float64; overflow gives infinities.

    Args:
        weight: a mutable copy of the weight, of any shape.
        by: the factors, broadcast to that shape.
        kept: the constant of which it is a copy.
    """
    with np.errstate(all="ignore"):
        result: np.ndarray = weight
        if weight.dtype in (np.float32, np.float64):
            np.multiply(weight, by, out=weight, dtype=np.float64, casting="unsafe")
        else:
            result = np.asarray((weight.astype(np.float64) * by).astype(weight.dtype))
        if result.all():
            return result
        wide = kept.array().astype(np.float64).reshape(result.shape)
        if not result.any() and (wide * by).any():
            return np.asarray(wide * by)
        vanished = (result == 0) & (wide != 0) & (by != 0)
        if vanished.any():
            least = np.nextafter(np.zeros((), result.dtype), np.ones((), result.dtype))
            result[vanished] = np.where(np.signbit(wide) == np.signbit(by), least, -least)[vanished]
    return result


def block_diagonal(kernel: np.ndarray, group: int, merge: int) -> np.ndarray:
    """The kernel `[out, in / group, *size]` of a convolution with each `merge` groups joined to a block-diagonal one.

    If `merge` does not divide the number of groups, the last one is padded with groups of zeros.
    """
    if merge == 1:
        return kernel
    outputs, inputs = kernel.shape[:2]
    per_group, whole = outputs // group, -(-group // merge)
    parts = np.zeros((whole * merge, per_group, inputs, *kernel.shape[2:]), kernel.dtype)
    parts[:group] = kernel.reshape(group, *parts.shape[1:])
    parts = parts.reshape(whole, merge, *parts.shape[1:])
    wide = np.zeros((*parts.shape[:3], merge, *parts.shape[3:]), kernel.dtype)
    for index in range(merge):
        wide[:, index, :, index] = parts[:, index]
    return wide.reshape(whole * merge * per_group, merge * inputs, *kernel.shape[2:])
