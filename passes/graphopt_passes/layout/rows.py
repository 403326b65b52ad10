"""1-D convolutions, written as 2-D convolutions of images of one row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from graphopt.analysis.pool_sizes import is_dilated_beyond_padding
from graphopt.operators import Pad, Reduction
from graphopt.rewrite import Decline, Graph, GraphPass, Node, Rewriter, Value
from graphopt.system.machine import BLOCKS
from graphopt_passes.layout import edges, timing
from graphopt_passes.layout.activations import ELEMENTWISE
from graphopt_passes.layout.blocks import ForBlocks
from graphopt_passes.layout.known import check_broadcasts, is_number
from graphopt_passes.shared import Shared

_WEIGHED = ("Conv", "com.microsoft::FusedConv")
_CONVOLUTIONS = (*_WEIGHED, "ConvTranspose")
_TOGETHER = frozenset({"Add", "Div", "Max", "Mean", "Min", "Mul", "PRelu", "Pow", "Sub", "Sum"})
_REPEATED = ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")
_AXES = {0: 0, 1: 1, 2: 3, -1: -1, -2: 1, -3: 0}
"""The axis of [N, C, 1, L] for each axis of [N, C, L]."""

_UNKNOWN_LENGTH = 1000
_READ = 0.6
"""The time of a blocked kernel to read weights that are in no near cache, relative to the matrix product."""

_FOURS = 4
"""Channels that are not a multiple of this are padded, and blocked only if that gains more than the model's error."""


class ConvertConv1dTo2d(ForBlocks, GraphPass):
    """Replace 1-D convolutions, and the operators between them, with 2-D ones over images of one row.

    The blocked layout has kernels for 2-D only: depthwise ones take 0.3 of the time there, dense ones 0.8 to 1.
    `Unsqueeze` and `Squeeze` stand at both ends. This is done if it pays by the cost model; the last convolutions stay
    as they are if they alone would lose by it. A `MaxPool` that reads NaN may drop or keep it, as in blocks.

    `Options(extra={"convert_conv_1d_to_2d": {"force": True}})` converts whatever it costs.
    """

    ops = _WEIGHED

    def run(self, graph: Graph, rw: Rewriter) -> None:
        target = rw.target
        convs = [node for node in graph if node.op in _WEIGHED and _is_row_wise(node)]
        if not convs or graph.in_function or target.block not in BLOCKS:
            return
        gains = {node: _gain(node, target) for node in convs}
        left = {node for node in _last(graph) if gains.get(node, 0) < 0}
        gain = sum(gains[node] for node in convs if node not in left)
        if gain <= 0 and not rw.options.forces(self.name):
            rw.decline("blocks gain {:.1f} us over all convolutions along one axis", sum(gains.values()), node=convs[0])
            return
        rows = _Rows(rw)
        for node in list(graph):
            if not node.removed and node.op in _FORMS and (node not in left or rw.options.forces(self.name)):
                with rw.attempt(node):
                    rows.convert(node)


def _is_row_wise(node: Node) -> bool:
    """Whether a convolution is 1-D, with a constant kernel of float32."""
    x, weight = node.input(0), node.input(1)
    tensor = weight.constant_tensor if weight is not None else None
    if x is None or tensor is None or tensor.dtype != TensorProto.FLOAT:
        return False
    return len(tensor.dims) == 3 and 0 not in tensor.dims and x.rank == 3


def _last(graph: Graph) -> list[Node]:
    """The convolutions whose results reach no other through operators with forms for images, so that each may stay."""
    leads: set[Node] = set()
    last: list[Node] = []
    for node in reversed(graph.listed()):
        if node.op not in _FORMS:
            continue
        readers = [user for value in node.results for user in value.users]
        if any(user in leads or user.op in _CONVOLUTIONS for user in readers):
            leads.add(node)
        elif node.op in _WEIGHED:
            last.append(node)
    return last


def _gain(node: Node, target: Any) -> float:
    """Microseconds that blocks save for one convolution, less the reorders of its result and of an outside operand.

    Kernels may be long and the axis short. A position whose window reaches into the padding is computed alone, which
    takes twice the time unless a `Pad` pays, and all weights are read again for every few positions. Kernels of one tap
    have no padding and prefetch their weights; depthwise ones compute each position alone, and have few weights.
    """
    (outputs, inputs, kernel), group = node.operand(1).sizes(), int(node.attr("group", 1))
    rates = timing.rates_of(target)
    batch, *_, length = node.result.shape or (None, None)
    images = batch if isinstance(batch, int) and batch > 0 else 1
    positions = length if isinstance(length, int) and length > 0 else _UNKNOWN_LENGTH
    plain, blocked = timing.convolution(
        inputs * group, outputs, (1, kernel), (1, positions), target, batch=images, group=group
    )
    if inputs > 1 and kernel > 1:
        beyond = _padding(node)
        alone = blocked * min(beyond / positions, 1)
        if kernel >= edges.WIDTH and target.name in edges.MEASURED:
            alone = min(alone, edges.time_to_pad(inputs * group * images * (positions + beyond), target))
        blocked += alone
        blocked += 4 * outputs * inputs * kernel * (_READ / rates.weight - 1 / rates.stream)
    maker, reads_rows, channels = node.operand(0).producer, group == 1 and inputs < target.block, inputs * group
    more = 0 if reads_rows or channels % _FOURS == 0 else rates.error
    entering = 0 if reads_rows or (maker and maker.op in _FORMS) else channels * (2 if more else 1)
    return plain - (1 + more) * blocked - timing.reorder(outputs + entering, images * positions, target)


def _padding(node: Node) -> float:
    """How many positions of the result depend on padding."""
    return sum(node.attr("pads") or ()) / (node.attr("strides") or (1,))[0]


class _Rows(Shared):
    """Writes nodes on images of one row; the readers of a value of rank 3 share its image."""

    def convert(self, node: Node) -> None:
        """Replace a node with its form on images; declines if it has none."""
        if len(node.outputs) != 1 or node.result.rank != 3:
            raise Decline
        self.begin()
        made = _FORMS[node.op](self, node)
        row = self.rw.op("Squeeze", made, axes=(2,))
        self.rw.replace(node, [row])
        self.keep({row: made})

    def image(self, node: Node) -> Value:
        """The image of the first input; declines if there is none yet."""
        image = self.kept(node.operand(0))
        if image is None:
            raise Decline
        return image

    def enter(self, value: Value) -> Value:
        return self.once(value, lambda: self.rw.op("Unsqueeze", value, axes=(2,)))


def _widened(node: Node) -> dict[str, Any]:
    """The attributes of a 1-D window, for an image of one row."""
    neutral = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_padding": 0}
    changed = {name: (number, *node.attrs[name]) for name, number in neutral.items() if name in node.attrs}
    if "pads" in node.attrs:
        pads = node.attrs["pads"]
        if len(pads) != 2:
            raise Decline("{} pads one axis by {} numbers", node.result.name, len(pads))
        changed["pads"] = (0, pads[0], 0, pads[1])
    return changed


def _convolution(rows: _Rows, node: Node) -> Value:
    x, weight = node.operand(0), node.operand(1)
    if not _is_row_wise(node) or node.attr("output_shape"):
        raise Decline
    if node.op == "ConvTranspose":
        rows.image(node)
    array = weight.array()
    kernel = rows.rw.constant(array.reshape(*array.shape[:2], 1, array.shape[2]), like=weight)
    added = [value and rows.enter(value) for value in node.inputs[3:]]  # the residual of a FusedConv
    return rows.rw.again(node, rows.enter(x), kernel, *node.inputs[2:3], *added, **_widened(node))


def _unary(rows: _Rows, node: Node) -> Value:
    if any(value is not None and not is_number(value, 3) for value in node.inputs[1:]):
        raise Decline
    return _again(rows, node)


def _together(rows: _Rows, node: Node) -> Value:
    """Elementwise operators of several inputs; constants may hold one number per channel."""
    if not any(map(rows.kept, node.inputs)):
        raise Decline
    check_broadcasts(node)
    return rows.rw.again(node, *(_operand(rows, node.operand(at)) for at in range(len(node.inputs))))


def _operand(rows: _Rows, value: Value) -> Value:
    if rows.kept(value) or is_number(value, 3):
        return rows.kept(value) or value
    array = value.const()
    if array is None and value.rank == 3:
        return rows.enter(value)
    if array is None or array.ndim > 3:
        raise Decline
    return rows.rw.constant(np.expand_dims(array, -2), like=value) if array.ndim > 1 else value


def _again(rows: _Rows, node: Node) -> Value:
    if is_dilated_beyond_padding(node):
        raise Decline("the runtime plans memory for another size of {}, which may fail", node.result.name)
    return rows.rw.again(node, rows.image(node), *node.inputs[1:], **_widened(node))


def _normalization(rows: _Rows, node: Node) -> Value:
    if not node.attr("spatial", 1):
        raise Decline("{} has spatial=0: every position has its own statistics", node.result.name)
    return _again(rows, node)


def _concat(rows: _Rows, node: Node) -> Value:
    if None in node.inputs or not any(map(rows.kept, node.inputs)):
        raise Decline
    images = [rows.enter(value) for value in node.operands]
    return rows.rw.again(node, *images, axis=_AXES[int(node.attrs["axis"])])


def _slice(rows: _Rows, node: Node) -> Value:
    image, axes = rows.image(node), node.ints("axes")
    if axes is None or any(axis not in _AXES for axis in axes):
        raise Decline
    return rows.rw.again(node, image, *node.inputs[1:], axes=[_AXES[axis] for axis in axes])


def _pad(rows: _Rows, node: Node) -> Value:
    image, pad = rows.image(node), Pad.of(node)
    pads = (*pad.before[:2], 0, *pad.before[2:], *pad.after[:2], 0, *pad.after[2:])
    return rows.rw.op("Pad", image, pads=pads, constant_value=pad.fill or None, mode=node.attrs.get("mode"))


def _mean(rows: _Rows, node: Node) -> Value:
    image, mean = rows.image(node), Reduction.of(node)
    if mean.axes != (2,) or not mean.keepdims:
        raise Decline
    return rows.rw.op("ReduceMean", image, axes=(2, 3))


_FORMS: dict[str, Callable[[_Rows, Node], Value]] = {
    **dict.fromkeys(ELEMENTWISE, _unary),
    **dict.fromkeys(_TOGETHER, _together),
    **dict.fromkeys(_CONVOLUTIONS, _convolution),
    **dict.fromkeys(_REPEATED, _again),
    "BatchNormalization": _normalization,
    "Concat": _concat,
    "Pad": _pad,
    "ReduceMean": _mean,
    "Slice": _slice,
}
