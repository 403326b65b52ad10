"""Padding folded into the operator after it."""

from __future__ import annotations

from typing import ClassVar

from graphopt.match import Match, OpBuilder, Pattern
from graphopt.operators import Pad, Window
from graphopt.rewrite import Decline, Node, Numerics, PatternRule, Rewriter, Value
from graphopt_passes.reach import reach

Pads = tuple[int, ...]
"""The pads before each spatial axis, then the pads after each."""


class FusePadInto(PatternRule):
    """Fold a `Pad` into the pads of the window operator after it.

    The `Pad` stays for its other readers, where it has any.

    Attributes:
        into: the operator.
        fill: the number that it pads with.
    """

    into: ClassVar[str]
    fill: ClassVar[float] = 0.0

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        return op.AnyOf(self.into)(op.Pad(x, ..., _shared=True, _bind="pad"), ..., _bind="window")

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        node = m.window
        kernel = node.operand(1).dims()[2:] if node.op == "Conv" else tuple(node.attr("kernel_shape") or ())
        pad, window = Pad.of(m.pad, len(kernel) + 2), Window.of(node, kernel)
        if pad.mode != "constant":
            raise Decline("the padding mode is {}", pad.mode)
        if pad.number != self.fill:
            raise Decline("it pads with {}, not {}", pad.number, self.fill)
        (before, after), own = pad.spatial, window.before + window.after
        if window.same:
            raise Decline("auto_pad is {}", window.same)
        pads = tuple(p + q for p, q in zip(own, before + after, strict=True))
        if node.op != "Conv":
            _check_pool(node, own, pads)
        _check_not_empty(m.x, pads, window)
        counts = {"count_include_pad": 1} if node.op == "AveragePool" else {}
        return rw.again(node, m.x, *node.inputs[1:], **counts, auto_pad=None, pads=pads)


def _check_pool(node: Node, own: Pads, pads: Pads) -> None:
    """Decline if the result of a pool would change with the pads, or runtimes would refuse it."""
    if len(node.results) > 1:
        raise Decline("the indices of the maxima are used")
    if node.attr("ceil_mode", 0):
        raise Decline("ceil_mode is set")
    if any(pad >= size for pad, size in zip(pads, (node.attr("kernel_shape") or ()) * 2, strict=True)):
        raise Decline("the pads would be as large as the window")
    if node.op == "AveragePool" and any(own) and not node.attr("count_include_pad", 0):
        raise Decline("it has pads, but count_include_pad is 0")


def _check_not_empty(x: Value, pads: Pads, window: Window) -> None:
    """Decline if a window operator may read an empty input with pads; runtimes refuse that.

    Where the pads do not fill a window there is no output: unknown sizes are then assumed to be positive.
    """
    axes = len(window.kernel)
    shape = x.shape or (None,) * (axes + 2)
    if len(shape) != axes + 2:
        raise Decline("{} does not have the rank of the window", x.name)
    for axis, (dim, size, step) in enumerate(zip(shape[2:], window.kernel, window.dilations, strict=True)):
        whole = not isinstance(size, int) or pads[axis] + pads[axes + axis] > step * (size - 1)
        if dim == 0 or (whole and not (isinstance(dim, int) and dim > 0)):
            raise Decline("{} may be empty, and would then be only padding", x.name)


class FusePadIntoConv(FusePadInto):
    """Fold a `Pad` with zeros into the pads of the `Conv` after it.

    The `Pad` stays for its other readers, where it has any.
    """

    into = "Conv"
    peers = {
        "onnxoptimizer": "fuse_pad_into_conv",
        "onnxruntime": "Pad_Fusion",
        "onnxslim": "FusionPadConv",
        "onnxscript": ("FuseConvPad", "FuseConvIntegerPad"),
    }


class FusePadIntoPool(FusePadInto):
    """Fold a `Pad` with zeros into the pads of the `AveragePool` after it.

    The zeros of a `Pad` count, so the pool gets `count_include_pad`; one that has pads of its own must count them
    already. For `MaxPool` see `fuse_pad_into_max_pool`. Runtimes refuse to pool an empty image; unknown sizes are
    assumed to be positive.
    """

    into = "AveragePool"
    opsets = "7-"
    numerics = Numerics.ROUNDING
    peers = {"onnxoptimizer": "fuse_pad_into_pool", "onnxruntime": "Pad_Fusion"}


class FusePadIntoMaxPool(FusePadInto):
    """Fold a `Pad` with minus infinity into the pads of the `MaxPool` after it.

    `MaxPool` does not pad with zeros; `fuse_zero_pad_into_max_pool` is for zeros that do no harm. This takes
    `numerics="fast"`, since ONNX Runtime's `MaxPool` gives the lowest finite number for a window of only minus
    infinities once it has pads. Unknown sizes are assumed to be positive, as in `fuse_pad_into_pool`.
    """

    into, fill = "MaxPool", -float("inf")
    opsets = "7-"
    numerics = Numerics.FAST
    peers = {"onnxoptimizer": "fuse_pad_into_pool", "onnxruntime": "Pad_Fusion"}


class FuseZeroPadIntoMaxPool(FusePadInto):
    """Fold a `Pad` with zeros into the pads of the `MaxPool` after it, where no number is negative.

    After a `Relu`, or another operator with a nonnegative result, as in ResNet and DenseNet of Keras: each window holds
    an element of the image, which is at least 0. A window of NaN and padding loses the zeros, which were its maximum.
    Unknown sizes are assumed to be positive, as in `fuse_pad_into_pool`.
    """

    into = "MaxPool"
    opsets = "7-"
    numerics = Numerics.ROUNDING
    finite = True

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        low, _ = reach(m.x)
        if low < 0:
            raise Decline("{} may hold negative numbers", m.x.name)
        if any(step != 1 for step in m.window.attr("dilations") or ()):
            raise Decline("a dilated window may contain only padding")
        return super().rewrite(m, rw)
