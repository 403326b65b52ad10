"""Opsets 1 to 7, in which operators began to broadcast as in NumPy, and lost their forms for training."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.opsets import automatic
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.registry import up
from graphopt.rewrite import Rewriter


@up(7, "Add", "And", "Div", "Equal", "Gemm", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")
def broadcast_from_the_right(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Append axes of size 1 to the second operand, which was aligned with the axes from `axis` on."""
    b, axis = node.operand(1), node.attrs.get("axis")
    behind = 0
    if node.attr("broadcast", 0) and axis is not None:
        rank = len(node.operand(0).dims())
        behind = rank - (axis + rank if axis < 0 else axis) - len(b.dims())
        if behind < 0:
            raise Decline("{} does not have {} axes from axis {} on", node.operand(0).name, len(b.dims()), axis)
    yield
    operands: dict[int, Value] = {}
    if behind:
        b = node.operand(1)
        operands = {1: rw.op("Unsqueeze", b, axes=range(len(b.dims()), len(b.dims()) + behind))}
    if operands or node.attrs:
        rw.set_inputs(node, operands, axis=None, broadcast=None)


@up(7, "PRelu")
def slopes_of_channels(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Append axes of size 1 to slopes per channel."""
    yield
    slope = node.operand(1)
    if slope.shape is not None and (len(slope.shape) != 1 or slope.shape == (1,)):
        return
    slope.dims()
    behind = len(node.operand(0).dims()) - 2
    if behind > 0:
        rw.set_inputs(node, {1: rw.op("Unsqueeze", slope, axes=range(1, 1 + behind))})


@up(6, "Cast")
def type_by_number(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Convert the type, which was a name, to its number."""
    name = node.attrs.get("to")
    if not isinstance(name, str) or name.upper() not in set(TensorProto.DataType.keys()):
        raise Decline("{} is not an element type", name)
    yield
    rw.set_attr(node, to=TensorProto.DataType.Value(name.upper()))


@up(7, "BatchNormalization", "Dropout")
def inference_alone(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Drop `is_test`; the forms for training have no equivalent at opset 7."""
    if not node.attr("is_test", 0):
        raise Decline("is_test=0 was removed in opset 7")
    yield
    rw.set_attr(node, is_test=None)


@up(9, "BatchNormalization")
def each_element_by_itself(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Write out a normalization with spatial=0, in which every element has its own mean and variance."""
    if node.attr("spatial", 1):
        yield from automatic.up(node, change, rw)
        return
    x, scale, bias, mean, variance = (node.operand(i) for i in range(5))
    epsilon = np.asarray(node.attr("epsilon"), tensor_dtype_to_np_dtype(x.element_type()))
    deviation = rw.op("Sqrt", rw.op("Add", variance, epsilon))
    normal = rw.op("Div", rw.op("Sub", x, mean), deviation)
    rw.replace(node, [rw.op("Add", rw.op("Mul", normal, scale), bias)])


@up(2, "GlobalLpPool", "LpPool")
def integer_power(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Convert the power, which was a float, to an integer."""
    power = node.attr("p", 2.0)
    if power != int(power):
        raise Decline("p={} is not an integer, as opset 2 requires", power)
    yield
    rw.set_attr(node, p=int(power))


@up(2, "Pad")
def called_pads(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Rename `paddings` to `pads`."""
    yield
    rw.set_attr(node, paddings=None, pads=node.attrs.get("paddings"))


@up(2, "Split")
def sizes_by_attribute(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Turn the sizes of the parts, which were an operand, into an attribute."""
    axis, sizes = node.attrs.get("axis"), node.attrs.get("split")
    given = node.input(1)
    if axis is None:
        raise Decline("axis is required from opset 2 on")
    if given is not None:
        sizes = tuple(int(size) for size in given.array().reshape(-1))
    yield
    rw.set_inputs(node, {1: None} if given is not None else {}, split=sizes)


@up(6, "Tile")
def repeats_of_all_axes(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Convert the repeats, which were one number along one axis, to a list for all axes."""
    x, count, axis = node.operand(0), node.operand(1).array(), node.operand(2).array()
    repeats = np.ones(len(x.dims()), np.int64)
    repeats[int(axis.item())] = int(count.item())
    yield
    rw.set_inputs(node, {1: repeats, 2: None})


@up(7, "Upsample")
def scales_of_all_axes(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Convert the factors of height and width to scales of all axes, and mode `bilinear` to `linear`."""
    height, width = node.attrs.get("height_scale"), node.attrs.get("width_scale")
    mode = "linear" if node.attrs.get("mode") == "bilinear" else node.attrs.get("mode")
    yield
    rw.set_attr(node, scales=(1.0, 1.0, height, width), height_scale=None, width_scale=None, mode=mode)
