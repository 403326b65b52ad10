"""Parts of a shape, one operator at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from graphopt.ir import Dim, Node
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import constant_ints, int_list, normal_axes
from graphopt_passes.folding.store import store


class EliminateShapeOp(OpRule):
    """Replace `Shape` by the numbers it gives, where all of them are fixed.

    Only the part between `start` and `end` has to be fixed.
    """

    name = "eliminate_shape_op"
    ops = ("Shape",)
    peers: ClassVar[dict[str, str]] = {"onnxoptimizer": "eliminate_shape_op"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Read the sizes off the type of the input."""
        dims = shape_dims(node)
        if dims is None or isinstance(dims, Mismatch):
            return dims
        sizes = fixed_sizes(node, dims)
        return sizes if isinstance(sizes, Mismatch) else store(rw, node, [np.asarray(sizes, np.int64)])


class EliminateShapeGather(OpRule):
    """Replace `Gather` from a shape by the sizes it picks, where these are fixed.

    The other sizes may be dynamic. The result has the rank of the indices, whatever that is.
    """

    name = "eliminate_shape_gather"
    ops = ("Gather",)
    peers: ClassVar[dict[str, str]] = {"onnxoptimizer": "eliminate_shape_gather"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Pick the sizes that the constant indices name."""
        shape_node = _shape_of(node)
        indices = node.input(1)
        dims = None if shape_node is None else shape_dims(shape_node)
        if dims is None or isinstance(dims, Mismatch):
            return dims
        if indices is None:
            return None
        array = indices.const(1 << 12)
        if array is None:
            return Mismatch("{} is not constant", indices.name)
        at = [int(index) for index in array.reshape(-1)]
        wrong = next((index for index in at if not -len(dims) <= index < len(dims)), None)
        if wrong is not None:
            return Mismatch("index {} is out of range for {} dimensions", wrong, len(dims))
        sizes = fixed_sizes(node, [dims[index] for index in at])
        if isinstance(sizes, Mismatch):
            return sizes
        return store(rw, node, [np.asarray(sizes, np.int64).reshape(array.shape)])


class EliminateSliceAfterShape(OpRule):
    """Replace `Slice` of a shape by the sizes it cuts out, where these are fixed.

    `start` and `end` of the `Shape` count: the slice is of what it puts out, not of the whole shape.
    """

    name = "eliminate_slice_after_shape"
    ops = ("Slice",)
    peers: ClassVar[dict[str, str]] = {"onnxoptimizer": "eliminate_slice_after_shape"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Cut out the sizes between the constant bounds."""
        shape_node = _shape_of(node)
        dims = None if shape_node is None else shape_dims(shape_node)
        if dims is None or isinstance(dims, Mismatch):
            return dims
        part = _vector_slice(node)
        if isinstance(part, Mismatch):
            return part
        sizes = fixed_sizes(node, dims[part])
        return sizes if isinstance(sizes, Mismatch) else store(rw, node, [np.asarray(sizes, np.int64)])


_LARGEST = (1 << 63) - 1


class EliminateNopSize(OpRule):
    """Replace `Size` by the number of elements, where the shape is fixed."""

    name = "eliminate_nop_size"
    ops = ("Size",)
    peers: ClassVar[dict[str, str]] = {"onnxscript": "FoldConstantsPass"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Multiply the sizes; one fixed size of 0 is enough."""
        x = node.input(0)
        if x is None:
            return None
        if x.shape is None:
            return Mismatch("the rank of {} is not known", x.name)
        sizes = (0,) if 0 in x.shape else fixed_sizes(node, x.shape)
        if isinstance(sizes, Mismatch):
            return sizes
        count = math.prod(sizes)
        if count > _LARGEST:
            return Mismatch("{} has more elements than 64 bits count", x.name)
        return store(rw, node, [np.asarray(count, np.int64)])


def _shape_of(node: Node) -> Node | None:
    """The `Shape` that an operator along the first axis reads, None when there is none."""
    source = node.input(0)
    producer = source.producer if source is not None else None
    return producer if producer is not None and producer.op == "Shape" else None


def shape_dims(node: Node) -> tuple[Dim, ...] | Mismatch | None:
    """What a `Shape` node puts out, as far as it is known.

    Args:
        node: the `Shape` node; its `start` and `end` are kept to.
    """
    x = node.input(0)
    if x is None:
        return None
    shape = x.shape
    if shape is None:
        return Mismatch("the rank of {} is not known", x.name)
    return shape[slice(node.attrs.get("start"), node.attrs.get("end"))]


def fixed_sizes(node: Node, dims: Sequence[Dim]) -> tuple[int, ...] | Mismatch:
    """The dimensions as numbers, or which of them is none."""
    for dim in dims:
        if not isinstance(dim, int):
            output = node.outputs[0]
            what = f"size {dim}" if dim is not None else "an unknown size"
            return Mismatch("{} holds {}", output.name if output is not None else node.op, what)
    return tuple(dim for dim in dims if isinstance(dim, int))


def _vector_slice(node: Node) -> slice | Mismatch:
    """The part of a vector that a `Slice` with constant bounds cuts out."""
    bounds: list[int] = []
    for name, index in (("starts", 1), ("ends", 2)):
        found = int_list(node, name, index, 10)
        if isinstance(found, Mismatch):
            return found
        if found is None or len(found) != 1:
            return Mismatch("it does not cut along one axis")
        bounds.extend(found)
    axes = int_list(node, "axes", 3, 10)
    if isinstance(axes, Mismatch):
        return axes
    if axes is not None and normal_axes(axes, 1) != (0,):
        return Mismatch("axes {} are not the axis of a vector", axes)
    step = node.input(4)
    steps = (1,) if step is None else constant_ints(step)
    if isinstance(steps, Mismatch):
        return steps
    return _python_slice(bounds[0], bounds[1], steps[0] if steps else 0)


def _python_slice(start: int, end: int, step: int) -> slice | Mismatch:
    if step == 0:
        return Mismatch("a step of 0")
    if step < 0 and start < -1:
        # Python and ONNX clamp alike, but for a start before the first element on the way back.
        return Mismatch("start {} of a slice that runs backwards", start)
    return slice(start, end, step)
