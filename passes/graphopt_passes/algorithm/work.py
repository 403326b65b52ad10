"""Cost model that decides which of two forms of a computation is faster.

A rule states the work of both forms as amounts of the kinds in `RATES`: elements processed by a kernel, rows,
multiply-adds, and kernels started. It writes the other form if the model predicts it to be faster by more than the
model's error. The rates are nanoseconds on one thread, in the cache, of an AMD EPYC of family 26 with AVX512 and
onnxruntime 1.32.0, the minimum of five runs of `graphopt tune`, whose measurements replace them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import ClassVar

from onnx import TensorProto

from graphopt.ir.types import element_count
from graphopt.rewrite import Decline, Dim, Level, Rewriter, Rule, Value
from graphopt.system.machine import Target
from graphopt.system.tuned import figures

RATES: dict[str, float] = {
    "kernel": 1200.0,  # starting a kernel of any kind, once
    "element": 0.075,  # read and written by a simple elementwise kernel, like `Add` or `Exp`
    "move": 0.1,  # moved by a `Transpose` of one axis
    "softmax": 0.18,  # `Softmax` along an axis that at most one other follows
    "softmax row": 8.2,  # each row of that
    "softmax apart": 4.9,  # `Softmax` along an axis that several others follow
    "reduce": 0.065,  # `ReduceSum`, `ReduceMean`, `ReduceMax`, `ReduceMin` along the last axes, or after other axes
    "reduce rows": 0.081,  # `ReduceSum` and `ReduceMean` along the first axes
    "reduce leading": 0.26,  # the same where only axes of size 1 come first and others follow
    "reduce powers": 0.45,  # `ReduceL1`, `ReduceL2`, `ReduceSumSquare` and `ReduceLogSum` along any axes
    "reduce logarithms": 3.4,  # `ReduceLogSumExp`
    "log": 1.4,  # `Log`
    "power": 3.0,  # `Pow` by the general function
    "square": 0.24,  # `Pow` of 2
    "softplus": 9.5,  # `Softplus`
    "elu": 1.4,  # `Elu`
    "celu": 1.7,  # `Celu`
    "read": 0.04,  # read by a matrix product of one row or column
    "column": 0.16,  # an element of a matrix that is multiplied by a constant column
    "product apart": 1.4,  # an element of a matrix that is multiplied by a vector of one axis
    "product row": 69.0,  # each row of that
    "product": 0.01,  # a multiply-add of a product of matrices
    "matrix": 75.0,  # each small product of a batch: by the same matrix, or a plane by its kernel
    "einsum": 0.68,  # an element of the operands and the result of `Einsum`, besides the product
    "sum apart": 2.2,  # `CumSum` along the last axis
    "depth to space": 1.1,  # `DepthToSpace` in blocks of 2; larger blocks are copied in longer pieces
    "gather apart": 0.61,  # `GatherElements` of repeated indices
    "gather last": 2.4,  # `Gather` along the last axis
    "average": 1.0,  # an element of each window of `AveragePool` since opset 19
    "taps": 0.12,  # an element of each window of a depthwise convolution
    "strided taps": 0.3,  # the same with strides
    "global pool": 0.12,  # `GlobalAveragePool`, `GlobalMaxPool`
    "resize linear": 1.1,  # an element of the result of a linear `Resize` with channels first
    "resize cubic": 58.0,  # the same of a cubic one
    "resize nearest": 0.33,  # the same of a nearest one
    "resize doubled": 0.055,  # the same by the kernel for scale 2
    "resize filtered": 1.3,  # an element of the operand or the result of `Resize` with `antialias`
    "resize linear of bytes": 3.3,  # an element of the result of a linear `Resize` of bytes with channels first
    "resize last": 1.9,  # an element of the result of a cubic `Resize` with channels last
    "normalize": 0.34,  # `LayerNormalization` along the last axis
    "position": 0.62,  # `ArgMax` along the last axis
    "position of few": 1.1,  # `ArgMax` over two values along an inner axis
    "first of many": 0.45,  # `TopK` of k = 1
    "first": 1.4,  # each row of that
    "prelu": 4.2,  # `PRelu`
    "selu": 1.5,  # `Selu`
    "shrink": 5.6,  # `Shrink`
    "lrn": 19.0,  # `LRN`
    "channel taps": 0.12,  # an element of each window along channels
    "lp normalization": 0.64,  # `LpNormalization`
    "where": 0.36,  # `Where` with a condition that is broadcast
    "bound": 0.21,  # `Min` with a bound that is broadcast
    "columns of volumes": 0.6,  # an element of the result of a 3-D `ConvTranspose`, besides the product
    "columns of images": 0.1,  # the same of a 2-D one
    "transposed taps": 0.33,  # an element of the window of each pixel of a depthwise `ConvTranspose`
    "spectrum": 11.0,  # `DFT` of frames whose length is a power of 2
    "spectrum of any length": 75.0,  # `DFT` of others
    "resize linear last": 0.3,  # an element of the result of a linear `Resize` with channels last
    "expand last": 0.48,  # an element that `Expand` repeats along the last axis
    "tile last": 1.8,  # an element that `Tile` repeats along the last axis
    "move apart": 2.3,  # moved by a `Transpose` of several axes, including the last
    "gathered row": 2.8,  # a row that `Gather` copies, besides its elements
    "rotate": 0.2,  # `RotaryEmbedding` of halves
    "rotate pairs": 0.2,  # `RotaryEmbedding` of adjacent elements
    "bytes": 0.0075,  # moved along whole rows
    "bytes cut": 0.044,  # copied to longer rows, or shorter ones
    "bytes looked up": 0.26,  # rescaled by `QLinearConcat`
    "bytes scaled": 0.055,  # rescaled by `QLinearAdd` with a number
    "bytes multiplied": 0.18,  # multiplied by a number by `QLinearMul`
    "short row": 6.1,  # a row of an elementwise kernel whose operand is broadcast over rows
    "bytes row": 13.0,  # a row of 64 of the same in bytes; shorter rows take up to three times that
    "bytes to floats": 0.08,  # an element of `DequantizeLinear`
    "floats to bytes": 0.065,  # an element of `QuantizeLinear`
    "halves to bytes": 1.7,  # the same of float16
    "softmax of bytes": 2.5,  # an element of `QLinearSoftmax`
    "taps of three": 0.78,  # an element of a quantized convolution's windows of three channels, more than of four
    "taps of lanes": 0.024,  # an element of each window of a quantized depthwise convolution, channels a multiple of 16
    "taps of eights": 0.07,  # the same of a multiple of 8
    "taps of odd channels": 0.082,  # the same of other numbers of channels
    "byte group": 27.0,  # a position of a group of a quantized convolution
    "byte part": 6.3,  # a position of a quantized convolution without groups
    "byte product": 0.002,  # a multiply-add of a quantized convolution without groups
    "byte product of group": 0.0032,  # a multiply-add of one with groups
    "byte sixteen": 0.08,  # a multiply-add with each of 16 outputs, if there are no more than 16
    "byte rest": 0.035,  # a multiply-add with the remainder of outputs modulo 16, below 16 or not in fours
    "unsigned eight": 0.115,  # a multiply-add with each of up to 8 outputs of unsigned weights
    "unsigned sixteen": 0.115,  # the same of up to 16
    "byte rest written": 0.25,  # each output, if their number is not a multiple of four
    "row cut": 2.0,  # a row that `Slice` shortens
    "bytes of gemm": 0.2,  # written by `QGemm`, more than by a convolution
    "bytes of product": 0.13,  # written by `QLinearMatMul`, more than by a convolution
    "bytes between orders": 0.035,  # moved by a `Transpose` to channels last
    "floats between orders": 0.11,
    "image pass": 0.012,  # a pass over an element of quantized images, channels first, and last
    "image pass last": 0.022,
    "maximum of bytes": 18.0,  # an element of a quantized pool's result, channels first, and last
    "maximum of bytes last": 0.2,
    "average of bytes": 7.7,
    "average of bytes last": 4.8,
    "underflow": 0.0,  # an exponential in `Softmax` that is denormal or zero, besides the element
    "denormal product": 0.0,  # a multiply-add with a denormal number, besides the product
}
"""Nanoseconds of each kind of work: per element, unless the comment says otherwise."""

_ON: dict[str, dict[str, float]] = {
    "xeon": {"underflow": 15.0, "denormal product": 1.4},
    "avx2": {
        "kernel": 3000.0, "element": 0.16, "move": 0.18, "softmax": 0.45, "softmax row": 18.0, "softmax apart": 9.2,
        "reduce": 0.12, "reduce rows": 0.19, "reduce leading": 0.63, "reduce powers": 0.87, "reduce logarithms": 4.9,
        "log": 1.9, "power": 5.8, "square": 0.45, "softplus": 13.0, "elu": 2.3, "celu": 2.3, "read": 0.07,
        "column": 0.34, "product apart": 2.5, "product row": 120.0, "product": 0.042, "einsum": 0.52, "sum apart": 3.4,
        "depth to space": 2.1, "gather apart": 0.99, "gather last": 8.1, "average": 1.8, "taps": 0.21,
        "strided taps": 0.63, "global pool": 0.22, "resize linear": 1.6, "resize cubic": 94.0, "resize nearest": 0.75,
        "resize doubled": 0.17, "resize filtered": 2.4, "resize linear of bytes": 4.6, "resize last": 2.9,
        "normalize": 0.51, "position": 0.48, "position of few": 2.1, "first of many": 0.93, "first": 9.3, "prelu": 5.1,
        "selu": 2.2, "shrink": 7.1, "lrn": 29.0, "channel taps": 0.28, "lp normalization": 1.2, "where": 1.1,
        "columns of volumes": 0.38, "transposed taps": 0.5, "spectrum": 17.0,
        "spectrum of any length": 120.0, "resize linear last": 0.42, "expand last": 0.71, "tile last": 3.2,
        "move apart": 4.5, "gathered row": 7.2, "rotate": 0.33, "rotate pairs": 0.36, "bytes": 0.03, "bytes cut": 0.096,
        "bytes multiplied": 0.22, "bytes to floats": 0.13, "floats to bytes": 0.27, "softmax of bytes": 3.2,
        "taps of three": 0.64, "taps of eights": 0.1, "taps of odd channels": 0.12, "byte group": 44.0,
        "byte part": 13.0, "byte product": 0.01, "byte product of group": 0.012, "byte sixteen": 0.2,
        "byte rest": 0.054, "byte rest written": 0.39, "unsigned eight": 0.26,
        "unsigned sixteen": 0.35, "row cut": 5.3, "bytes of gemm": 0.24, "bytes of product": 0.24,
        "bytes between orders": 0.06, "floats between orders": 0.18, "image pass": 0.035, "image pass last": 0.055,
        "maximum of bytes": 23.0, "maximum of bytes last": 0.34, "average of bytes": 14.0, "average of bytes last": 8.3,
    },
}  # fmt: skip
"""Rates that differ greatly on a core, or with an instruction set, unless they are measured.

Those of AVX2 are the minimum of five runs of `graphopt tune` on one thread of a Zen 3 core with onnxruntime 1.32.0; for
17 to 255 outputs that are no multiple of four, each took 0 to 1.3 ns more, about 0.35 in the middle.
"""

MARGIN = 0.85
"""The largest predicted ratio of times at which the other form is written: the accuracy of the model."""

SMALL = 16
"""The value assumed for an unknown size; the other form must be faster even there."""

TUNED = "convert_softmax_to_rows"
"""The pass under whose name `graphopt tune` stores the rates of all passes."""

Work = Mapping[str, float]
"""Amounts of work, by kind."""


def count(dims: Iterable[Dim | None]) -> int:
    """The number of elements along axes."""
    return element_count(dims, SMALL)


def joined(dims: Sequence[Dim]) -> int | None:
    """The size of merged axes; None if one of their sizes is unknown."""
    return count(dims) if all(isinstance(dim, int) for dim in dims) else None


MOST_ELEMENTS = 1 << 40
"""No machine's memory holds as many."""


def size_of(value: Value) -> int:
    """The number of elements of a value; declines if its rank is unknown, it is empty, or no machine holds so many."""
    elements = count(value.dims())
    if not 0 < elements < MOST_ELEMENTS:
        raise Decline("{} is empty" if not elements else "{} is larger than any machine's memory", value.name)
    return elements


def check_count(number: int, of: str = "channels", most: int = 1 << 16) -> None:
    """Decline to write out a list that is longer than in any real model; a model need only declare such a size."""
    if number > most:
        raise Decline("{} {} are too many to write out", number, of)


def floats(x: Value) -> int:
    """The number of elements of a float32 value; declines for other types, whose kernels were not timed."""
    if x.dtype != TensorProto.FLOAT:
        raise Decline("{} is not float32, for which the kernels were measured", x.name)
    return size_of(x)


_PART, _ROW = 1000, 20


def reduced(x: Value, axes: Sequence[int]) -> float:
    """How many elements of a whole row a sum or extremum over some axes takes as long as.

    Each row in memory takes as long as `_ROW` more of them, even if it is a single element, and each part before axes
    that others follow as `_PART`.
    """
    parts = count(x.dims()[: min(axes)]) if max(axes) < len(x.dims()) - 1 else 0
    return size_of(x) + _ROW * rows_with(x, axes) + _PART * parts


def rows_with(x: Value, axes: Sequence[int]) -> float:
    """The number of rows in memory along which a value and its reduction over some axes are read alike."""
    dims = x.dims()
    first = last = len(dims) - 1
    while first and (first - 1 in axes) == (last in axes):
        first -= 1
    return size_of(x) / count(dims[first:])


def rates_of(target: Target) -> Mapping[str, float]:
    """The rates measured on a target's machines, and built-in rates for kinds that were not measured."""
    kept = (figures(TUNED, target) or {}).get("rates", {}).items()
    measured = {kind: rate for kind, rate in kept if kind in RATES and isinstance(rate, float) and 0 < rate < inf}
    return built_in(target) | measured


def built_in(target: Target) -> dict[str, float]:
    """The built-in rates of a target."""
    return RATES | _ON.get(target.core or target.name, {})


def price(work: Work, rates: Mapping[str, float]) -> float:
    """The time of some work in microseconds."""
    return sum(amount * rates[kind] for kind, amount in work.items()) / 1e3


class Weighed(Rule):
    """A rule that writes another form of a computation where the cost model predicts that it is faster.

    `Options(extra={name: {"force": True}})` writes it wherever it is correct.
    """

    level: ClassVar[Level] = Level.EXTENDED
    opsets: ClassVar[str] = "7-"  # before, ONNX Runtime has no kernels for most elementwise operators

    def weigh(self, rw: Rewriter, now: Work, then: Work) -> None:
        """Decline unless another form is faster than the operators at present, by more than the model's error."""
        before, after = self._prices(rw, now, then)
        if after > before:
            raise Decline("it is expected to take {:.0f} us, the other form {:.0f} us", before, after)
        if after > MARGIN * before:
            raise Decline("the other form is expected to be {:.2f} times as fast: within the margin", before / after)

    def weigh_against(self, rw: Rewriter, other: Work, then: Work) -> None:
        """Decline unless a form is faster than another one, which a separate rule writes."""
        before, after = self._prices(rw, other, then)
        if after > before:
            raise Decline("another form is expected to take {:.0f} us, this one {:.0f} us", before, after)

    def _prices(self, rw: Rewriter, now: Work, then: Work) -> tuple[float, float]:
        """Both times in microseconds; zeros if the other form is forced."""
        if rw.options.forces(self.name):
            return 0.0, 0.0
        rates = rates_of(rw.target)
        return price(now, rates), price(then, rates)
