"""Constants, copies, padding and broadcasting."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import onnx

from graphopt.errors import Decline
from graphopt.ir import Node, Tensor, Value
from graphopt.operators import Pad
from graphopt.opsets import automatic
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.computed import listed
from graphopt.opsets.meanings.registry import down
from graphopt.opsets.types import lacking
from graphopt.rewrite import Rewriter


@down(25, "Constant")
@down(24, "Constant")
@down(23, "Constant")
@down(21, "Constant")
@down(19, "Constant")
@down(13, "Constant")
@down(9, "Constant")
def as_initializer(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Replace a constant of a type that `Constant` does not support with an initializer."""
    if change.before is None or not any(True for _ in lacking(node, change.before)):
        yield from automatic.down(node, change, rw)
        return
    tensor = node.constant_tensor()
    if tensor is None:
        raise Decline("it is sparse")
    if node.graph.in_function:
        raise Decline("{} is a constant of a function, which has no initializers", node.result.name)
    _stand_for(node, rw.constant(tensor), rw)


@down(25, "Identity")
@down(24, "Identity")
@down(23, "Identity")
@down(21, "Identity")
@down(19, "Identity")
@down(16, "Identity")
@down(14, "Identity")
@down(13, "Identity")
def read_at_its_source(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Remove an `Identity` of a type that it does not support before, such as a sequence."""
    if change.before is not None and any(True for _ in lacking(node, change.before)):
        with suppress(Decline):  # it is kept if both names must stay
            rw.replace(node, [node.operand(0)])
            return
    yield from automatic.down(node, change, rw)


@down(12, "Constant")
def as_tensor(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """State numbers and lists as a tensor."""
    tensor = node.constant_tensor()
    if tensor is None:
        yield from automatic.down(node, change, rw)
        return
    yield
    rw.set_attr(node, **{**dict.fromkeys(node.attrs), "value": tensor})


@down(11, "Constant")
def as_dense(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """State a sparse constant as a dense one."""
    sparse = node.attrs.get("sparse_value")
    if sparse is None:
        yield from automatic.down(node, change, rw)
        return
    proto = sparse.sparse_tensor
    values, indices = (onnx.numpy_helper.to_array(_plain(each)) for each in (proto.values, proto.indices))
    dense = np.zeros(tuple(proto.dims), values.dtype)
    dense[tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, dense.shape)] = values
    yield
    rw.set_attr(node, sparse_value=None, value=Tensor.from_array(dense))


def _plain(tensor: onnx.TensorProto) -> onnx.TensorProto:
    return onnx.TensorProto.FromString(tensor.SerializeToString())


def _stand_for(node: Node, value: Value, rw: Rewriter) -> None:
    """Replace a node with a constant, behind an `Identity` if its result is a graph output."""
    rw.replace(node, [rw.op("Identity", value) if node.result.output_count else value])


@down(9, "ConstantOfShape")
def expanded(node: Node, change: Change, rw: Rewriter) -> None:
    """Expand a scalar, which has rank 0, since the shape may be empty."""
    stated = node.attrs.get("value")
    number = stated.array() if isinstance(stated, Tensor) else np.zeros(1, np.float32)
    rw.replace(node, [rw.op("Expand", rw.constant(number.reshape(())), listed(rw, node.operand(0)))])


@down(8, "Expand")
def tiled(node: Node, change: Change, rw: Rewriter) -> None:
    """Repeat axes of size 1 by `Tile`."""
    x, shape = node.operand(0), listed(rw, node.operand(1))
    rank, length = len(x.dims()), math.prod(node.operand(1).sizes())
    if rank < length:
        x = rw.op("Unsqueeze", x, axes=range(length - rank))
    elif length < rank:
        shape = rw.op("Concat", np.ones(rank - length, np.int64), shape, axis=0)
    if not max(rank, length):
        _stand_for(node, x, rw)
        return
    dims = (1,) * (length - rank) + node.operand(0).dims()
    if all(isinstance(dim, int) for dim in dims):
        ones = np.asarray([dim == 1 for dim in dims], np.int64)
        repeats = rw.op("Add", rw.op("Mul", shape, ones), 1 - ones)
    else:
        one = np.asarray(1, np.int64)
        single = rw.op("Cast", rw.op("Equal", rw.op("Shape", x), one), to=onnx.TensorProto.INT64)
        repeats = rw.op("Add", rw.op("Mul", shape, single), rw.op("Sub", one, single))
    rw.replace(node, [rw.op("Tile", x, repeats)])


@down(18, "Pad")
def pads_of_all_axes(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Extend pads of some axes to all axes."""
    if node.input(3) is not None:
        pad = Pad.of(node, len(node.operand(0).dims()))
        rw.set_inputs(node, {1: np.asarray(pad.before + pad.after, np.int64), 3: None})
    yield from automatic.down(node, change, rw)


@down(19, "Pad")
def wrapped(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Replace padding in `wrap` mode with `Gather`."""
    if node.attr("mode", "constant") != "wrap":
        yield from automatic.down(node, change, rw)
        return
    pad = Pad.of(node, len(node.operand(0).dims()))
    result = pad.x
    for axis, (before, after) in enumerate(zip(pad.before, pad.after, strict=True)):
        if before or after:
            start, end = max(-before, 0), pad.x.size(axis) - max(-after, 0)
            if end <= start:
                raise Decline("axis {} is empty after cropping, and cannot be wrapped", axis)
            # Negative pads cut elements off before the rest is wrapped.
            places = np.arange(-max(before, 0), end - start + max(after, 0), dtype=np.int64)
            result = rw.op("Gather", result, start + places % (end - start), axis=axis)
    if result is pad.x:
        raise Decline("it pads nothing")
    rw.replace(node, [result])


@down(18, "CenterCropPad")
def sizes_of_64_bits(node: Node, change: Change, rw: Rewriter) -> None:
    """Cast int32 sizes to int64: the standard's body compares them with an int64 shape."""
    x, sizes = node.operand(0), node.operand(1)
    if sizes.dtype != onnx.TensorProto.INT32:
        raise Decline
    rw.replace(node, [rw.op("CenterCropPad", x, rw.op("Cast", sizes, to=onnx.TensorProto.INT64), **node.attrs)])
