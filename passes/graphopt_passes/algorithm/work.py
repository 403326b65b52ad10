"""Which of two forms of a computation is faster: the work of each, priced by the machine's rates for each kind of work.

A rule that has another form for an operator states what both do, as amounts of the kinds of work in `RATES`: elements
that pass through a kernel of some kind, rows, multiply-adds, and kernels that are started. Sizes that are not known
count as small ones. The other form is written where the model expects it to be faster by more than the model's error.

The rates are nanoseconds on one thread, of an AMD EPYC of family 26 with AVX512 and onnxruntime 1.32.0, in the cache;
what `graphopt tune` measures on a machine takes their place there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import ClassVar

from onnx import TensorProto

from graphopt.rewrite import Decline, Dim, Level, Rewriter, Rule, Value
from graphopt.system.machine import Target, host
from graphopt.system.tuned import figures

RATES: dict[str, float] = {
    "kernel": 1200.0,
    "element": 0.075,
    "move": 0.1,
    "softmax": 0.18,
    "softmax row": 8.2,
    "softmax apart": 4.9,
    "reduce": 0.065,
    "reduce rows": 0.081,
    "reduce leading": 0.26,
    "reduce powers": 0.45,
    "reduce logarithms": 3.4,
    "log": 1.4,
    "power": 3.0,
    "square": 0.24,
    "softplus": 9.5,
    "elu": 1.4,
    "celu": 1.7,
    "read": 0.04,
    "column": 0.16,
    "product apart": 1.4,
    "product row": 69.0,
    "product": 0.01,
    "einsum": 0.68,
    "sum apart": 2.2,
    "depth to space": 1.1,
    "gather apart": 0.61,
    "gather last": 2.4,
    "average": 1.0,
    "taps": 0.12,
    "strided taps": 0.3,
    "global pool": 0.12,
    "resize linear": 1.1,
    "resize cubic": 58.0,
    "resize nearest": 0.33,
    "resize doubled": 0.055,
    "resize filtered": 1.3,
    "resize last": 1.9,
    "normalize": 0.34,
    "position": 0.62,
    "position of few": 1.1,
    "first of many": 0.45,
    "first": 1.4,
    "prelu": 4.2,
    "selu": 1.5,
    "shrink": 5.6,
    "lrn": 19.0,
    "channel taps": 0.2,
    "lp normalization": 0.64,
    "where": 0.36,
    "bound": 0.21,
    "whole taps": 1.25,
    "columns of volumes": 0.6,
    "columns of images": 0.1,
    "transposed taps": 0.33,
    "spectrum": 11.0,
    "spectrum of any length": 75.0,
    "resize linear last": 0.3,
    "expand last": 0.48,
    "tile last": 1.8,
    "move apart": 2.3,
    "gathered row": 2.8,
    "rotate": 0.2,
    "rotate pairs": 0.2,
    "bytes": 0.25,
    "bytes cut": 0.5,
    "bytes looked up": 0.26,
    "bytes scaled": 0.09,
    "taps of three": 2.2,
    "taps of lanes": 0.08,
    "taps of eights": 0.3,
    "taps of odd channels": 0.5,
    "byte group": 110.0,
    "byte part": 60.0,
    "byte product": 0.0047,
    "byte product of group": 0.008,
    "bytes of gemm": 0.2,
    "bytes of product": 0.13,
}
"""Nanoseconds of each kind of work, for each element unless it says otherwise.

- `kernel`: starting a kernel of any kind, once.
- `element`: read and written by a simple elementwise kernel, like `Add` or `Exp`.
- `move`: moved by a `Transpose` of one axis.
- `softmax`, `softmax row`: `Softmax` along an axis with at most one behind it, an element and a row.
- `softmax apart`: `Softmax` along an axis with several behind it.
- `reduce`: `ReduceSum`, `ReduceMean`, `ReduceMax` and `ReduceMin` along the last axes, or behind other axes.
- `reduce rows`: `ReduceSum` and `ReduceMean` of the first axes of all.
- `reduce leading`: the same where only axes of size 1 come first and others follow.
- `reduce powers`: `ReduceL1`, `ReduceL2`, `ReduceSumSquare` and `ReduceLogSum` along any axes.
- `reduce logarithms`: `ReduceLogSumExp`.
- `log`, `power`, `square`: `Log`, `Pow` by its general function, and of 2.
- `softplus`, `elu`, `celu`: `Softplus`, `Elu`, `Celu`.
- `column`: of a matrix that is multiplied by a constant column.
- `product`: a multiply-add of a product of matrices.
- `einsum`: what `Einsum` does to an element of its operands and its result beside multiplying.
- `sum apart`: `CumSum` along the last axis.
- `depth to space`: `DepthToSpace` in blocks of 2; larger blocks are copied in longer pieces.
- `gather apart`, `gather last`: `GatherElements` of repeated indices; `Gather` along the last axis.
- `average`: an element of each window of `AveragePool` since opset 19.
- `taps`, `strided taps`: an element of each window of a depthwise convolution, with strides of 1 and others.
- `global pool`: `GlobalAveragePool`, `GlobalMaxPool`.
- `resize linear`, `resize cubic`: an element of the result of `Resize` with channels first; `resize last`: cubic, last.
- `resize nearest`, `resize doubled`: an element of a nearest `Resize`, and by the kernel for images twice as large.
- `resize filtered`: an element of the operand or the result of `Resize` with `antialias`.
- `normalize`: `LayerNormalization` along the last axis.
- `position`, `position of few`: `ArgMax` along the last axis, and of two values in front of others.
- `first of many`, `first`: `TopK` of one, an element and a row.
- `product apart`, `product row`: of a matrix that is multiplied by a vector of one axis, an element and a row.
- `read`: read by a matrix product of one row or column.
- `prelu`, `selu`, `shrink`, `lrn`: `PRelu`, `Selu`, `Shrink`, `LRN`.
- `channel taps`: an element of each window along channels.
- `lp normalization`: `LpNormalization`.
- `where`, `bound`: `Where` with a condition that is stretched, `Min` with a bound that is.
- `whole taps`: a place of the kernel of a depthwise convolution that is as large as the image.
- `columns of volumes`, `columns of images`: what `ConvTranspose` adds up for an element of its result, beside the
  product.
- `transposed taps`: an element of the window of each pixel of a depthwise `ConvTranspose`.
- `spectrum`, `spectrum of any length`: `DFT` of frames whose length is a power of 2, and of others.
- `resize linear last`: an element of the result of a linear `Resize` with channels last.
- `expand last`, `tile last`: an element that `Expand` and `Tile` repeat along the last axis.
- `move apart`: moved by a `Transpose` that moves several axes, the last one among them.
- `gathered row`: a row that `Gather` finds, beside its elements.
- `rotate`, `rotate pairs`: `RotaryEmbedding` of halves, and of neighbours.
- `bytes`: moved along whole rows; `bytes cut`: put into longer rows, or shorter ones.
- `bytes looked up`, `bytes scaled`: brought to another scale by `QLinearConcat`, by `QLinearAdd` with a number.
- `taps of three`: a place in the windows of a quantized convolution that three channels are gathered from, more than
  four take.
- `taps of lanes`, `taps of eights`, `taps of odd channels`: an element of each window of a quantized depthwise
  convolution of channels that are a multiple of 16, of 8, and no such.
- `byte group`, `byte part`: a position of a group of a quantized convolution, and of one without groups; `byte
  product of group`, `byte product`: a multiply-add there.
- `bytes of gemm`, `bytes of product`: written by `QGemm` and by `QLinearMatMul`, more than a convolution takes.
"""

MARGIN = 0.85
"""The part of the time that the other form may be expected to take: the model is no better than that."""

SMALL = 16
"""What a size that is not known counts as; the other form has to pay there already."""

TUNED = "convert_softmax_to_rows"
"""The pass under whose name `graphopt tune` keeps the measured rates of all."""

Work = Mapping[str, float]
"""Amounts of work, by kind."""


def count(dims: Iterable[Dim | None]) -> int:
    """How many elements there are along axes."""
    return prod(dim if isinstance(dim, int) else SMALL for dim in dims)


def size_of(value: Value) -> int:
    """How many elements a value has; declines where its rank is not known, or it has none."""
    elements = count(value.dims())
    if not elements:
        raise Decline("{} is empty", value.name)
    return elements


def floats(x: Value) -> int:
    """How many elements a value of float32 has; declines where it is of another type, whose kernels were not timed."""
    if x.dtype != TensorProto.FLOAT:
        raise Decline("{} is not of float32, whose kernels were measured", x.name)
    return size_of(x)


def rates_of(target: Target) -> Mapping[str, float]:
    """What was measured on machines of a target, the built-in figures where nothing was."""
    stated = (figures(TUNED, target) or {}).get("rates", {})
    return RATES | {
        kind: rate for kind, rate in stated.items() if kind in RATES and isinstance(rate, float) and rate > 0
    }


def price(work: Work, rates: Mapping[str, float]) -> float:
    """Microseconds of some work."""
    return sum(amount * rates[kind] for kind, amount in work.items()) / 1e3


class Weighed(Rule):
    """A rule that writes another form of a computation where that is faster.

    `Options(extra={name: {"force": True}})` writes it wherever it is right.
    """

    level: ClassVar[Level] = Level.EXTENDED
    peers: ClassVar[dict[str, str]] = {}

    def weigh(self, rw: Rewriter, now: Work, then: Work) -> None:
        """Decline unless another form is faster, by more than the model's error.

        Args:
            rw: the gate, for the settings of the run.
            now: the work of the operators as they are.
            then: the work of the other form.
        """
        if rw.options.extra.get(self.name, {}).get("force"):
            return
        before, after = self._prices(rw, now, then)
        if after > before:
            raise Decline("it is expected to take {:.0f} us, the other form {:.0f} us", before, after)
        if after > MARGIN * before:
            raise Decline("the other form is expected to be {:.2f} times as fast: within the margin", before / after)

    def weigh_against(self, rw: Rewriter, other: Work, then: Work) -> None:
        """Decline unless a form is faster than another one that a rule of its own writes.

        Args:
            rw: the gate, for the settings of the run.
            other: the work of that.
            then: the work of this one.
        """
        if rw.options.extra.get(self.name, {}).get("force"):
            return
        before, after = self._prices(rw, other, then)
        if after > before:
            raise Decline("another form is expected to take {:.0f} us, this one {:.0f} us", before, after)

    @staticmethod
    def _prices(rw: Rewriter, now: Work, then: Work) -> tuple[float, float]:
        rates = rates_of(rw.options.target or host())
        return price(now, rates), price(then, rates)
