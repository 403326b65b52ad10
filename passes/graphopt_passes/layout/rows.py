"""Convolutions along one axis, written as those of images of one row, which the blocked layout has kernels for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.ir import Graph, Node, Value
from graphopt.rewrite import GraphPass, Level, Numerics, Rewriter
from graphopt.system.machine import host
from graphopt_passes.fusion.axes import absolute, read_axes, write_with_axes
from graphopt_passes.layout import timing
from graphopt_passes.layout.activations import ELEMENTWISE

_CONVOLUTIONS = ("Conv", "ConvTranspose")
_TOGETHER = frozenset({"Add", "Div", "Max", "Mean", "Min", "Mul", "PRelu", "Pow", "Sub", "Sum"})
_POOLS = frozenset({"AveragePool", "MaxPool"})
_GLOBAL = frozenset({"GlobalAveragePool", "GlobalMaxPool"})
_AXES = {0: 0, 1: 1, 2: 3, -1: -1, -2: 1, -3: 0}
"""Where an axis of [N, C, L] is in [N, C, 1, L]."""

_UNKNOWN_LENGTH = 1000


class ConvertConv1dTo2d(GraphPass):
    """Compute 1-D convolutions, and what lies between them, as 2-D ones over images of one row.

    The blocked layout, which follows, has kernels for these only: depthwise ones along 3200 positions take 0.3 of the
    time there, dense ones 0.8 to 1. Nothing moves in memory; `Unsqueeze` and `Squeeze` stand at both ends. It is done
    where the kernels' cost model says that it pays. A `MaxPool` that sees NaN may drop or keep it, as in blocks.

    `Options(extra={"convert_conv_1d_to_2d": {"force": True}})` converts whatever it costs.
    """

    name = "convert_conv_1d_to_2d"
    level = Level.LAYOUT
    numerics = Numerics.ROUNDING
    opsets = "7-"
    peers: ClassVar[dict[str, str]] = {}

    def run(self, graph: Graph, rw: Rewriter) -> None:
        """Convert the operators of one graph in order."""
        target = rw.options.target or host()
        convs = [node for node in graph if node.op == "Conv" and _is_row_wise(node)]
        if not convs or graph.in_function or target.block not in (8, 16):
            return
        gain = sum(_gain(node, target) for node in convs)
        if gain <= 0 and not rw.options.extra.get(self.name, {}).get("force"):
            rw.decline("blocks gain {:.1f} us over all convolutions along one axis", gain, node=convs[0])
            return
        builder = _Builder(self.name, rw)
        for node in list(graph):
            if rw.log.full:
                break
            if not node.removed:
                with rw.attempt(node):
                    builder.convert(node)


def _is_row_wise(node: Node) -> bool:
    """Whether a convolution works along one axis, with a constant kernel of float32."""
    weight, x = node.input(1), node.input(0)
    tensor = weight.constant_tensor if weight is not None else None
    if x is None or tensor is None or tensor.dtype != TensorProto.FLOAT:
        return False
    return len(tensor.dims) == 3 and 0 not in tensor.dims and x.shape is not None and len(x.shape) == 3


def _gain(node: Node, target: Any) -> float:
    """Microseconds that blocks save for one convolution; a lone one between reorders of its own must save them too."""
    weight, out = node.inputs[1], node.outputs[0]
    assert weight is not None
    tensor = weight.constant_tensor
    assert tensor is not None
    outputs, inputs, kernel = tensor.dims
    group = int(node.attr("group", 1))
    shape = (out.shape if out is not None else None) or (None, None, None)
    batch, length = shape[0], shape[-1]
    images = batch if isinstance(batch, int) and batch > 0 else 1
    positions = length if isinstance(length, int) and length > 0 else _UNKNOWN_LENGTH
    plain, blocked = timing.convolution(
        inputs * group, outputs, (1, kernel), (1, positions), target, batch=images, group=group
    )
    return plain - blocked - timing.reorder(outputs, images * positions, target)


class _Builder:
    """Makes nodes on images of one row.

    Args:
        rule: name of the pass.
        rw: the gate.
    """

    def __init__(self, rule: str, rw: Rewriter) -> None:
        self.rule = rule
        self.rw = rw
        self._images: dict[Value, Value] = {}
        """Images of one row, by the values of three dimensions that they stand for."""
        self._entered: dict[Value, Value] = {}

    def convert(self, node: Node) -> None:
        """Replace a node by its form on images, where it has one."""
        maker = _MAKERS.get(node.op)
        old = node.output(0)
        if maker is None or old is None or len(node.outputs) != 1 or old.shape is None or len(old.shape) != 3:
            return
        self.rw.begin(self.rule, node)
        self._entered = {}
        made = maker(self, node)
        if made is None:
            return
        row = write_with_axes(self.rw, "Squeeze", made, [2], 13)
        self.rw.replace(node, [row])
        self._images.update(self._entered)
        self._images[row] = made

    def known(self, value: Value | None) -> Value | None:
        """The image that a value stands for, if it is one already."""
        return self._images.get(value) if value is not None else None

    def enter(self, value: Value) -> Value:
        """The image of a value."""
        found = self._images.get(value) or self._entered.get(value)
        if found is None:
            found = self._entered[value] = write_with_axes(self.rw, "Unsqueeze", value, [2], 13)
        return found

    def op(self, node: Node, *inputs: Value | np.ndarray | None, **changed: Any) -> Value:
        """The same operator with other inputs and some other attributes."""
        made: Value = self.rw.op(node.op_type, *inputs, domain=node.domain, **{**node.attrs, **changed})
        return made


def _widened(node: Node) -> dict[str, Any]:
    """The attributes of a window along one axis for an image of one row."""
    changed: dict[str, Any] = {}
    for name, neutral in (("kernel_shape", 1), ("strides", 1), ("dilations", 1), ("output_padding", 0)):
        stated = node.attrs.get(name)
        if stated is not None:
            changed[name] = (neutral, *stated)
    pads = node.attrs.get("pads")
    if pads is not None:
        changed["pads"] = (0, pads[0], 0, pads[1])
    return changed


def _convolution(build: _Builder, node: Node) -> Value | None:
    x, weight = node.input(0), node.input(1)
    if x is None or weight is None or not _is_row_wise(node) or node.attr("output_shape"):
        return None
    if node.op == "ConvTranspose" and build.known(x) is None:
        return None
    array = weight.const()
    assert array is not None
    kernel = build.rw.constant(array.reshape(*array.shape[:2], 1, array.shape[2]), like=weight)
    return build.op(node, build.enter(x), kernel, *node.inputs[2:], **_widened(node))


def _pool(build: _Builder, node: Node) -> Value | None:
    image = build.known(node.inputs[0])
    return build.op(node, image, **_widened(node)) if image is not None else None


def _unary(build: _Builder, node: Node) -> Value | None:
    image = build.known(node.inputs[0])
    if image is None or any(v is not None and not _is_number(v) for v in node.inputs[1:]):
        return None
    return build.op(node, image, *node.inputs[1:])


def _is_number(value: Value) -> bool:
    tensor = value.constant_tensor
    return value.shape == () if tensor is None else tensor.numel == 1 and len(tensor.dims) <= 3


def _together(build: _Builder, node: Node) -> Value | None:
    """Elementwise operators of several inputs; constants may hold a number for each channel."""
    if not any(build.known(v) is not None for v in node.inputs):
        return None
    operands: list[Value | None] = []
    for value in node.inputs:
        if value is None:
            return None
        tensor = value.constant_tensor
        if build.known(value) is not None or _is_number(value):
            operands.append(build.known(value) or value)
        elif tensor is not None and len(tensor.dims) <= 3:
            array = tensor.array()
            wide = array.reshape(*array.shape[:-1], 1, array.shape[-1]) if array.ndim > 1 else array
            operands.append(build.rw.constant(wide, like=value))
        elif value.shape is not None and len(value.shape) == 3 and tensor is None:
            operands.append(build.enter(value))
        else:
            return None
    return build.op(node, *operands)


def _normalization(build: _Builder, node: Node) -> Value | None:
    image = build.known(node.inputs[0])
    return build.op(node, image, *node.inputs[1:]) if image is not None else None


def _concat(build: _Builder, node: Node) -> Value | None:
    if None in node.inputs or not any(build.known(value) is not None for value in node.inputs):
        return None
    images = [build.enter(value) for value in node.inputs if value is not None]
    return build.op(node, *images, axis=_AXES[int(node.attrs["axis"])])


def _slice(build: _Builder, node: Node) -> Value | None:
    image, axes = build.known(node.inputs[0]), node.ints("axes")
    if image is None or axes is None or any(axis not in _AXES for axis in axes):
        return None
    moved = np.array([_AXES[axis] for axis in axes], np.int64)
    return build.op(node, image, *node.inputs[1:3], moved, node.input(4))


def _pad(build: _Builder, node: Node) -> Value | None:
    image = build.known(node.inputs[0])
    pads = node.ints("pads")
    if image is None or pads is None or len(pads) != 6 or node.input(3) is not None:
        return None
    wide = (*pads[:2], 0, pads[2], *pads[3:5], 0, pads[5])
    if len(node.inputs) == 1:
        return build.op(node, image, pads=wide)
    return build.op(node, image, np.array(wide, np.int64), node.input(2))


def _mean(build: _Builder, node: Node) -> Value | None:
    """The mean along the row."""
    image, axes = build.known(node.inputs[0]), read_axes(node)
    if image is None or not isinstance(axes, tuple) or absolute(axes, 3) != (2,) or not node.attr("keepdims", 1):
        return None
    return write_with_axes(build.rw, "ReduceMean", image, [2, 3], 18)


_MAKERS: dict[str, Callable[[_Builder, Node], Value | None]] = {
    **dict.fromkeys(ELEMENTWISE, _unary),
    **dict.fromkeys(_TOGETHER, _together),
    **dict.fromkeys(_CONVOLUTIONS, _convolution),
    **dict.fromkeys(_POOLS | _GLOBAL, _pool),
    "BatchNormalization": _normalization,
    "Concat": _concat,
    "Pad": _pad,
    "ReduceMean": _mean,
    "Slice": _slice,
}
