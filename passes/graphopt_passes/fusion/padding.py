"""Zero padding taken into the operator after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphopt.ir import Dim, Node, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by


@dataclass(frozen=True, slots=True)
class Padding:
    """A `Pad` of the spatial axes with a constant.

    Attributes:
        x: what is padded.
        before: elements added in front, for each spatial axis.
        after: elements added behind, for each spatial axis.
        fill: the constant.
    """

    x: Value
    before: tuple[int, ...]
    after: tuple[int, ...]
    fill: float


def read_padding(value: Value | None, reader: Node, rank: int | None) -> Padding | Mismatch | None:
    """The `Pad` that computes `value`, in any of its opset forms.

    Returns:
        The padding; None when the value comes from something else; a `Mismatch` when windows cannot do the same.
    """
    node = made_by(value, "Pad")
    if value is None or node is None:
        return None
    if node.graph is not reader.graph:
        return Mismatch("{} is computed in an outer graph", value.name)
    if node.attr("mode", "constant") != "constant":
        return Mismatch("the padding mode is {}", node.attr("mode"))
    x, fill, pads = node.input(0), _fill(node), _pads(node, rank)
    if x is None or fill is None:
        return Mismatch("the fill value of {} is not constant", value.name)
    if isinstance(pads, Mismatch):
        return pads
    half = len(pads) // 2
    if min(pads, default=0) < 0:
        return Mismatch("{} crops", value.name)
    if (rank is not None and half != rank) or any(pads[:2]) or any(pads[half : half + 2]):
        return Mismatch("{} pads the batch or the channels", value.name)
    return Padding(x, tuple(pads[2:half]), tuple(pads[half + 2 :]), fill)


def _fill(node: Node) -> float | None:
    if node.graph.opset() < 11:
        return float(node.attr("value", 0.0))
    value = node.input(2)
    if value is None:
        return 0.0
    array = value.const()
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def _pads(node: Node, rank: int | None) -> list[int] | Mismatch:
    """The pads of all axes, those in front of them first."""
    if node.graph.opset() < 11:
        return list(node.attr("pads") or node.attr("paddings") or ())
    given = node.input(1)
    array = given.const() if given is not None else None
    if given is None or array is None:
        return Mismatch("the pads are not constant")
    pads = [int(p) for p in array.reshape(-1)]
    axes = node.input(3)
    if axes is None:
        return pads
    chosen = axes.const()
    if chosen is None or rank is None:
        return Mismatch("the axes of the padding are not constant")
    full, half = [0] * (2 * rank), len(pads) // 2
    for position, axis in enumerate(int(a) % rank for a in chosen.reshape(-1)):
        full[axis], full[rank + axis] = pads[position], pads[half + position]
    return full


def nothing_left(padding: Padding, pads: tuple[int, ...], kernel: Sequence[Dim], node: Node) -> Mismatch | None:
    """Why a window operator must not read what is padded: it may be empty, which runtimes refuse.

    Args:
        padding: the `Pad`.
        pads: what the operator would pad by itself; where that is no whole window, it runs on nothing either way.
        kernel: the size of the window.
        node: the operator.
    """
    axes = len(kernel)
    shape, dilations = padding.x.shape or (None,) * (axes + 2), node.attr("dilations") or (1,) * axes
    for axis, (dim, size, step) in enumerate(zip(shape[2:], kernel, dilations, strict=True)):
        whole = not isinstance(size, int) or pads[axis] + pads[axes + axis] > step * (size - 1)
        if whole and not (isinstance(dim, int) and dim > 0):
            return Mismatch("{} may be empty, and is all padding then", padding.x.name)
    return None


class FusePadIntoConv(OpRule):
    """Let a `Conv` pad by itself what a `Pad` with zeros pads in front of it.

    The `Pad` stays for its other readers, where it has any.
    """

    name = "fuse_pad_into_conv"
    ops = ("Conv",)
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "fuse_pad_into_conv",
        "onnxscript": "FuseConvPad",
        "onnxruntime": "Pad_Fusion",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Add the pads to the attribute."""
        weight = node.input(1)
        if node.inputs[0] is None or node.inputs[0].producer is None or node.inputs[0].producer.op != "Pad":
            return None
        if weight is None or weight.rank is None:
            return Mismatch("the rank of the weight is not known")
        padding = read_padding(node.input(0), node, weight.rank)
        if not isinstance(padding, Padding):
            return padding
        if padding.fill != 0:
            return Mismatch("it pads with {}", padding.fill)
        own = _own_pads(node, len(padding.before))
        if isinstance(own, Mismatch):
            return own
        pads = tuple(p + q for p, q in zip(own, padding.before + padding.after, strict=True))
        problem = nothing_left(padding, pads, weight.shape[2:] if weight.shape is not None else (), node)
        if problem is not None:
            return problem
        attrs = {**node.attrs, "auto_pad": None, "pads": pads}
        return rw.replace(node, [rw.op("Conv", padding.x, *node.inputs[1:], **attrs)])


class FusePadIntoPool(OpRule):
    """Let an `AveragePool` pad by itself what a `Pad` with zeros pads in front of it.

    A `Pad` adds zeros that count, so the pooling gets `count_include_pad`; one that has pads of its own must count
    them already. For `MaxPool` see `fuse_pad_into_max_pool`.
    """

    name = "fuse_pad_into_pool"
    ops = ("AveragePool",)
    opsets = "7-"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxoptimizer": "fuse_pad_into_pool", "onnxruntime": "Pad_Fusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Add the pads to the attribute."""
        return _into_pool(node, 0.0, rw)


class FusePadIntoMaxPool(OpRule):
    """Let a `MaxPool` pad by itself what a `Pad` with minus infinity pads in front of it.

    A pad of zeros is not what `MaxPool` does. It takes `numerics="fast"`, since ONNX Runtime's `MaxPool` gives the
    lowest finite number for a window of nothing but minus infinities once it has pads.
    """

    name = "fuse_pad_into_max_pool"
    ops = ("MaxPool",)
    opsets = "7-"
    numerics = Numerics.FAST
    peers: ClassVar[dict[str, str]] = {"onnxoptimizer": "fuse_pad_into_pool", "onnxruntime": "Pad_Fusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Add the pads to the attribute."""
        return _into_pool(node, -float("inf"), rw)


def _into_pool(node: Node, fill: float, rw: Rewriter) -> Outcome:
    kernel = tuple(node.attr("kernel_shape") or ())
    padding = read_padding(node.input(0), node, len(kernel) + 2)
    if not isinstance(padding, Padding):
        return padding
    if padding.fill != fill:
        return Mismatch("it pads with {}, not {}", padding.fill, fill)
    own = _own_pads(node, len(kernel))
    if isinstance(own, Mismatch):
        return own
    pads = tuple(p + q for p, q in zip(own, padding.before + padding.after, strict=True))
    for problem in (_pool_problem(node, own, pads, kernel), nothing_left(padding, pads, kernel, node)):
        if problem is not None:
            return problem
    counts = {"count_include_pad": 1} if node.op == "AveragePool" else {}
    attrs = {**node.attrs, **counts, "auto_pad": None, "pads": pads}
    return rw.replace(node, [rw.op(node.op_type, padding.x, **attrs)])


def _own_pads(node: Node, axes: int) -> tuple[int, ...] | Mismatch:
    """What a window operator pads by itself, unless that follows from the sizes."""
    mode = node.attr("auto_pad", "NOTSET")
    if mode == "VALID":
        return (0,) * (2 * axes)
    return Mismatch("auto_pad is {}", mode) if mode != "NOTSET" else tuple(node.attr("pads") or (0,) * (2 * axes))


def _pool_problem(node: Node, own: tuple[int, ...], pads: tuple[int, ...], kernel: tuple[int, ...]) -> Mismatch | None:
    if len(node.outputs) > 1 and node.outputs[1] is not None:
        return Mismatch("the indices of the maxima are used")
    if node.attr("ceil_mode", 0):
        return Mismatch("ceil_mode is set")
    if any(pad >= size for pad, size in zip(pads, kernel * 2, strict=True)):
        return Mismatch("the pads would be as large as the window")
    if node.op == "AveragePool" and any(own) and not node.attr("count_include_pad", 0):
        return Mismatch("its own pads are not counted")
    return None
