"""Quantized convolutions with channels last, whose kernels process channels by fours, by sixteens, or all at once.

Added channels hold the zero point of the image, and added weights hold their zero point, so sums do not change.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.operators.linear import block_diagonal
from graphopt.operators.quantizing import check_parameters
from graphopt.operators.transpose import LAST
from graphopt.records import dataclass
from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import MOST_ELEMENTS, Weighed, Work, check_count, count, price, rates_of
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST_OF_BYTES, ONE
from graphopt_passes.fusion.contrib.sums import is_depthwise, sums_bytes_exactly, window_rows

FOUR = 4
"""Number of channels gathered at once, and of outputs written at once."""
LANES = 16
"""Number of outputs that kernels compute at once."""
_BIAS = 8
"""The input index of the bias, which always has one number per output; scales and zero points may be scalars."""
_LARGEST_WINDOW = 49
"""Window size above which the kernel processes three channels as fast as four."""
_LARGEST_WINDOWS = {"avx2": 9}
"""The same by target: for 112x112 positions and 16 to 64 outputs on a Zen 3, four channels took 0.58 to 0.86 of the
time of three with 3x3 windows, 0.86 to 1.14 with 5x5, and 0.99 to 1.37 with 7x7."""
_FEWEST_CHANNELS = 8
_TAPS_OF_VOLUMES = 5
"""Windows of volumes are gathered by a slower kernel: this many elements per `byte group` unit of work."""


@dataclass(frozen=True, slots=True)
class ByteConvolution:
    """A `QLinearConv` with channels last and constant weights.

    Attributes:
        node: the operator.
        weight: [outputs, inputs per group, *window].
        zeros: the zero point of the weights, per output.
        group: number of groups.
        positions: number of positions in the result.
    """

    node: Node
    weight: np.ndarray
    zeros: np.ndarray
    group: int
    positions: int

    @classmethod
    def of(cls, node: Node, ranks: Sequence[int] = (len(LAST),)) -> ByteConvolution:
        """Read a node; declines if channels are not last, the rank differs, or its weights are not constant."""
        tensor = node.operand(3).constant_tensor
        if not node.attr("channels_last", 0) or tensor is None or len(tensor.dims) not in ranks or 0 in tensor.dims:
            raise Decline
        weight, group = tensor.array(), int(node.attr("group", 1))
        check_parameters(node, weight)
        zeros = np.broadcast_to(node.operand(5).array().reshape(-1), (len(weight),))
        batch, *image = (node.result.shape or (None,) * weight.ndim)[:-1]
        # An open batch size is mostly 1, and must repay the kernels that the other form starts.
        positions = (batch if isinstance(batch, int) else 1) * count(image)
        check_count(positions, "positions", MOST_ELEMENTS)
        return cls(node, weight, zeros, group, positions)

    @property
    def taps(self) -> int:
        """Number of window elements per channel of the result, over all positions."""
        return self.positions * prod(self.weight.shape[2:])

    def filled(self, shape: tuple[int, ...]) -> np.ndarray:
        """Weights for `shape` outputs and inputs that contribute nothing: all zero points."""
        missing = shape[0] - len(self.zeros)
        zeros = np.concatenate([self.zeros, np.broadcast_to(self.zeros[-1:], (max(missing, 0),))])
        return np.broadcast_to(zeros[: shape[0], None, None, None], (*shape, *self.weight.shape[2:])).copy()

    def part(
        self, channels: slice | np.ndarray, x: Value, weight: np.ndarray, rw: Rewriter, *, group: int = 1,
        wide: int = 0, **attrs: Any,
    ) -> Value:  # fmt: skip
        """A convolution of `x` for some output channels, padded to `wide` channels at the end.

        Declines if the processor does not sum the products of these weights exactly.
        """
        self.check_sums(weight, group, rw)
        inputs = list(self.node.inputs)
        inputs[0], inputs[3] = x, rw.constant(weight, like=inputs[3])
        for at in (4, 5, _BIAS):
            value = self.node.input(at)
            if value is None or (at != _BIAS and value.sizes() in ONE):
                continue
            row = value.array()[channels]
            row = np.concatenate([row, np.broadcast_to(row[-1:], (max(wide - len(row), 0),))])
            inputs[at] = rw.constant(row, like=value)
        return rw.again(self.node, *inputs, group=group, **attrs)

    def check_sums(self, weight: np.ndarray, group: int, rw: Rewriter) -> None:
        """Decline if partial sums of products may overflow: with another order of summation the result differs."""
        signed = self.node.operand(0).dtype == TensorProto.INT8
        if weight.dtype != np.int8 or signed or is_depthwise(group, weight.shape):
            return
        if not sums_bytes_exactly(weight, rw.target, window_rows):
            raise Decline("the processor accumulates products in 16 bits, which may overflow in another order")


def _with_zeros(x: Value, axis: int, channels: int, zero: Value, rw: Rewriter) -> Value:
    """Append channels of zero points to an image; the kernel of `Pad` is several times slower than `Concat`."""
    sizes = list(x.sizes())
    sizes[axis] = channels
    check_count(prod(sizes), "zeros", 1 << 26)
    point = zero.array().reshape(())
    return rw.op("Concat", x, rw.constant(np.full(sizes, point, point.dtype), like=zero), axis=axis)


class OfBytes(Weighed, OpRule):
    """Replace a quantized convolution with another form.

    Attributes:
        ranks: the ranks of the operand that the form supports.
    """

    ops = (f"{DOMAIN}::QLinearConv",)
    opsets = f"11-{NEWEST_OF_BYTES}"
    ranks: ClassVar[tuple[int, ...]] = (len(LAST),)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        convolution = ByteConvolution.of(node, self.ranks)
        if not rw.target.is_x86:
            raise Decline("the target is not x86, for which the kernels were measured")
        convolution.check_sums(convolution.weight, convolution.group, rw)
        return rw.replace(node, [self.write(convolution, rw)])

    @abstractmethod
    def write(self, convolution: ByteConvolution, rw: Rewriter) -> Value:
        """Write the other form; declines where it is not faster."""


class ConvertThreeChannelsToFour(OfBytes):
    """Pad quantized images of three channels to four, before the `Transpose` that moves channels last.

    With four channels, the kernel for signed weights gathers four bytes at a time.
    """

    def write(self, convolution: ByteConvolution, rw: Rewriter) -> Value:
        node, weight = convolution.node, convolution.weight
        if convolution.group != 1 or weight.shape[1] != FOUR - 1:
            raise Decline
        moved = node.operand(0).source("Transpose", reader=node)
        image = moved.operand(0)
        if tuple(moved.attr("perm", ())) != LAST or image.rank != len(LAST):
            raise Decline
        target = rw.target
        if prod(weight.shape[2:]) > _LARGEST_WINDOWS.get(target.name, _LARGEST_WINDOW):
            raise Decline("the window is large: already fast")
        if weight.dtype != np.int8 and target.name in _LARGEST_WINDOWS:
            raise Decline("the weights are unsigned, and their kernel does not gather channels")
        self.weigh(rw, {"taps of three": convolution.taps}, {"kernel": 1, "bytes": 2 * count(image.sizes())})
        wider = _with_zeros(image, 1, 1, node.operand(2), rw)
        wide = convolution.filled((len(weight), FOUR))
        wide[:, : FOUR - 1] = weight
        return convolution.part(slice(None), rw.op("Transpose", wider, perm=LAST), wide, rw)


class ConvertByteGroupsToDense(OfBytes):
    """Replace grouped quantized convolutions with one or several dense ones, whose added weights contribute nothing.

    The kernel iterates over groups at every position. Each dense part joins the number of groups that is fastest.
    """

    ranks = (3, 4, 5)

    def write(self, convolution: ByteConvolution, rw: Rewriter) -> Value:
        weight, group = convolution.weight, convolution.group
        outputs, inputs = len(weight) // group, weight.shape[1]
        if group == 1 or inputs == 1 or outputs <= 1 or len(weight) % group:  # there may be more groups than outputs
            raise Decline
        rates = rates_of(rw.target)
        works = {each: self._dense_work(convolution, each) for each in range(1, group + 1)}
        each = min(works, key=lambda each: price(works[each], rates))
        products = convolution.positions * weight.size
        now = {"kernel": 1, **_gathered(convolution, group, "byte group"), "byte product of group": products}
        self.weigh(rw, now, works[each])
        x, starts, last = convolution.node.operand(0), range(0, group, each), weight.ndim - 1
        sizes = [min(each, group - start) for start in starts]
        images: Sequence[Value] = (x,)
        if len(sizes) > 1:
            images = rw.outputs(len(sizes), "Split", x, axis=last, split=tuple(size * inputs for size in sizes))
        made = []
        for start, size, image in zip(starts, sizes, images, strict=True):
            own = slice(start * outputs, (start + size) * outputs)
            made.append(convolution.part(own, image, _dense(convolution, own, size), rw))
        return rw.op("Concat", *made, axis=last) if len(made) > 1 else made[0]

    def _dense_work(self, convolution: ByteConvolution, each: int) -> Work:
        """The work of parts of `each` groups, and of one part of the remaining groups."""
        whole, rest = divmod(convolution.group, each)
        parts, positions = whole + (rest > 0), convolution.positions
        products = positions * convolution.weight.size // convolution.group * (whole * each**2 + rest**2)
        moved = positions * len(convolution.weight) if parts > 1 else 0
        gathered = _gathered(convolution, parts, "byte part")
        return {"kernel": parts + 2, **gathered, "byte product": products, "bytes": moved}


def _gathered(convolution: ByteConvolution, parts: int, of_images: str) -> Work:
    """The work of gathering the windows of `parts` convolutions."""
    if convolution.weight.ndim > len(LAST):
        return {"byte group": convolution.taps * parts // _TAPS_OF_VOLUMES}
    return {of_images: convolution.positions * parts}


def _dense(convolution: ByteConvolution, own: slice, groups: int) -> np.ndarray:
    """The weights of several groups as one block-diagonal weight."""
    zeros = convolution.zeros[own].reshape(-1, *(1,) * (convolution.weight.ndim - 1))
    # The intermediate difference may wrap around in bytes; adding the zero points wraps it back.
    return np.asarray(block_diagonal(convolution.weight[own] - zeros, groups, groups) + zeros)


class ConvertDepthwiseBytesToLanes(OfBytes):
    """Pad the channels of quantized depthwise convolutions to a multiple of sixteen, and slice the result."""

    def write(self, convolution: ByteConvolution, rw: Rewriter) -> Value:
        node, weight = convolution.node, convolution.weight
        channels = len(weight)
        if weight.shape[1] != 1 or convolution.group != channels or channels < _FEWEST_CHANNELS:
            raise Decline
        if channels % LANES == 0:
            raise Decline("{} channels already fill the vector lanes", channels)
        wide = -(-channels // LANES) * LANES
        taps, x = convolution.taps, node.operand(0)
        half = "taps of eights" if channels % (LANES // 2) == 0 else "taps of odd channels"
        moved = wide * (count(x.sizes()[:-1]) + convolution.positions)
        self.weigh(
            rw, {"kernel": 1, half: taps * channels}, {"kernel": 3, "taps of lanes": taps * wide, "bytes cut": moved}
        )
        wider = _with_zeros(x, 3, wide - channels, node.operand(2), rw)
        kernel = convolution.filled((wide, 1))
        kernel[:channels] = weight
        made = convolution.part(slice(None), wider, kernel, rw, group=wide, wide=wide)
        return rw.op("Slice", made, starts=(0,), ends=(channels,), axes=(3,))
