"""Zero padding taken into the operator after it."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.operators import Pad, Window
from graphopt.rewrite import Decline, Dim, Node, Numerics, OpRule, Outcome, Rewriter, Value

# No patterns: the view of `Pad` reads its forms, which have their parameters at different places.

Pads = tuple[int, ...]
"""What is padded in front of each spatial axis, then what is padded behind each."""


def _padding(node: Node, kernel: Sequence[Dim], fill: float) -> tuple[Value, Pads, Pads]:
    """What a `Pad` pads that a window operator reads, its pads, and those of the operator."""
    pad = Pad.of(node.operand(0).source("Pad", reader=node), len(kernel) + 2)
    if pad.mode != "constant":
        raise Decline("the padding mode is {}", pad.mode)
    if pad.number != fill:
        raise Decline("it pads with {}, not {}", pad.number, fill)
    (before, after), window = pad.spatial, Window.of(node, kernel)
    if window.same:
        raise Decline("auto_pad is {}", window.same)
    return pad.x, before + after, window.before + window.after


def _check_not_empty(x: Value, pads: Pads, kernel: Sequence[Dim], node: Node) -> None:
    """Decline where a window operator may read what is padded and empty; runtimes refuse that.

    Args:
        x: what is padded.
        pads: what the operator would pad by itself; where that is no whole window, nothing comes out, so that sizes
            which are not known are taken for more than 0.
        kernel: the size of the window.
        node: the operator.
    """
    axes = len(kernel)
    shape, dilations = x.shape or (None,) * (axes + 2), node.attr("dilations") or (1,) * axes
    for axis, (dim, size, step) in enumerate(zip(shape[2:], kernel, dilations, strict=True)):
        whole = not isinstance(size, int) or pads[axis] + pads[axes + axis] > step * (size - 1)
        if dim == 0 or (whole and not (isinstance(dim, int) and dim > 0)):
            raise Decline("{} may be empty, and is all padding then", x.name)


class FusePadIntoConv(OpRule):
    """Let a `Conv` pad by itself what a `Pad` with zeros pads in front of it.

    The `Pad` stays for its other readers, where it has any.
    """

    ops = ("Conv",)
    peers = {
        "onnxoptimizer": "fuse_pad_into_conv",
        "onnxruntime": "Pad_Fusion",
        "onnxslim": "FusionPadConv",
        "onnxscript": ("FuseConvPad", "FuseConvIntegerPad"),
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        if node.operand(0).made_by("Pad") is None:
            raise Decline
        kernel = node.operand(1).dims()[2:]
        x, given, own = _padding(node, kernel, 0.0)
        pads = tuple(p + q for p, q in zip(own, given, strict=True))
        _check_not_empty(x, pads, kernel, node)
        attrs = {**node.attrs, "auto_pad": None, "pads": pads}
        return rw.replace(node, [rw.op("Conv", x, *node.inputs[1:], **attrs)])


class FusePadIntoPool(OpRule):
    """Let an `AveragePool` pad by itself what a `Pad` with zeros pads in front of it.

    A `Pad` adds zeros that count, so the pooling gets `count_include_pad`; one that has pads of its own must count
    them already. For `MaxPool` see `fuse_pad_into_max_pool`.
    """

    ops = ("AveragePool",)
    opsets = "7-"
    numerics = Numerics.ROUNDING
    peers = {"onnxoptimizer": "fuse_pad_into_pool", "onnxruntime": "Pad_Fusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        return _into_pool(node, 0.0, rw)


class FusePadIntoMaxPool(OpRule):
    """Let a `MaxPool` pad by itself what a `Pad` with minus infinity pads in front of it.

    A pad of zeros is not what `MaxPool` does. It takes `numerics="fast"`, since ONNX Runtime's `MaxPool` gives the
    lowest finite number for a window of nothing but minus infinities once it has pads.
    """

    ops = ("MaxPool",)
    opsets = "7-"
    numerics = Numerics.FAST
    peers = {"onnxoptimizer": "fuse_pad_into_pool", "onnxruntime": "Pad_Fusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        return _into_pool(node, -float("inf"), rw)


def _into_pool(node: Node, fill: float, rw: Rewriter) -> Outcome:
    kernel = tuple(node.attr("kernel_shape") or ())
    x, given, own = _padding(node, kernel, fill)
    pads = tuple(p + q for p, q in zip(own, given, strict=True))
    _check_pool(node, own, pads, kernel)
    _check_not_empty(x, pads, kernel, node)
    counts = {"count_include_pad": 1} if node.op == "AveragePool" else {}
    attrs = {**node.attrs, **counts, "auto_pad": None, "pads": pads}
    return rw.replace(node, [rw.op(node.op_type, x, **attrs)])


def _check_pool(node: Node, own: Pads, pads: Pads, kernel: tuple[int, ...]) -> None:
    """Decline where a pool would give something else with the pads, or runtimes would refuse it."""
    if any(value is not None for value in node.outputs[1:]):
        raise Decline("the indices of the maxima are used")
    if node.attr("ceil_mode", 0):
        raise Decline("ceil_mode is set")
    if any(pad >= size for pad, size in zip(pads, kernel * 2, strict=True)):
        raise Decline("the pads would be as large as the window")
    if node.op == "AveragePool" and any(own) and not node.attr("count_include_pad", 0):
        raise Decline("its own pads are not counted")
