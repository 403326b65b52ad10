"""Sizes of 0 in `Reshape`, which copy a size of the input, before opset 14 always, and later by default."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from onnx import TensorProto

from graphopt.ir import Dim, Node, Value
from graphopt.opsets import automatic
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.registry import down
from graphopt.rewrite import Rewriter

_ALLOWED_SINCE = 14


def reshaped(
    rw: Rewriter, x: Value, shape: Value | np.ndarray, dims: Sequence[Dim] | None = None,
    copied: Collection[int] | None = None,
) -> Value:  # fmt: skip
    """A value in another shape, any size of which may be 0.

    Args:
        rw: the gate.
        x: the value.
        shape: the sizes, one of which may be -1 if none is 0.
        dims: the known sizes, if the shape is computed.
        copied: the axes that are 0 only if the same axis of the value is; determined from the shapes by default.
    """
    known = shape.const() if isinstance(shape, Value) else shape
    sizes = dims if known is None else [int(size) for size in known]
    none = [] if sizes is None else [at for at, size in enumerate(sizes) if not isinstance(size, int) or not size]
    if sizes is not None and (copied is None or known is not None):
        own = x.shape or ()
        copied = {at for at, (a, b) in enumerate(zip(own, sizes, strict=False)) if a == b and a is not None}
    if sizes is not None and set(none) <= set(copied or ()):
        return rw.op("Reshape", x, shape)
    if rw.graph.opset() > _ALLOWED_SINCE:
        return rw.op("Reshape", x, shape, allowzero=1)
    if sizes is not None and len(none) == 1:
        return rw.op("Reshape", x, _rest_for_zero(rw, shape if known is None else known))
    count = np.ones(len(sizes), np.int64) if sizes is not None else _ones_like(rw, shape)
    return rw.op("Reshape", _empty_along_all(rw, x, count), shape)


def _rest_for_zero(rw: Rewriter, shape: Value | np.ndarray) -> Value | np.ndarray:
    """The same sizes with -1 for 0: in an empty tensor -1 becomes 0, if all other sizes are at least 1."""
    if isinstance(shape, np.ndarray):
        return np.where(shape == 0, np.int64(-1), shape)
    zero, rest = np.asarray(0, np.int64), np.asarray(-1, np.int64)
    return rw.op("Where", rw.op("Equal", shape, zero), rest, shape)


def _ones_like(rw: Rewriter, shape: Value | np.ndarray) -> Value:
    return rw.op("ConstantOfShape", rw.op("Shape", shape), value=np.ones(1, np.int64))


def _empty_along_all(rw: Rewriter, x: Value, ones: Value | np.ndarray) -> Value:
    """The elements of a value along the last of some axes; if it is empty, all these axes are 0, and 0 copies any."""
    flat = rw.op("Reshape", x, np.asarray([-1], np.int64))
    some = rw.op("Cast", rw.op("Cast", rw.op("Size", x), to=TensorProto.BOOL), to=TensorProto.INT64)
    return rw.op("Expand", flat, rw.op("Mul", ones, some))


@down(14, "Reshape")
def empty_axes(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Write out allowzero: before, a size of 0 always copies a size."""
    if not node.attr("allowzero", 0):
        yield from automatic.down(node, change, rw)
        return
    shape = node.operand(1)
    if _is_without_zero(shape):
        yield
        rw.set_attr(node, allowzero=None)
        return
    rw.replace(node, [reshaped(rw, node.operand(0), shape, node.result.shape)])


def _is_without_zero(shape: Value) -> bool:
    """Whether no size is 0, as is certain if one is -1."""
    if shape.is_const:
        return 0 not in shape.ints()
    node = shape.producer
    parts = node.inputs if node is not None and node.op == "Concat" else ()
    return any(part is not None and part.is_const and -1 in part.ints() for part in parts)
