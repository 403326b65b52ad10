"""Lower and upper bounds that follow each other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import only_reader

_CLIPPED_FROM_THE_START = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16})
"""Element types that ONNX Runtime's `Clip` takes before opset 12; halves it converts."""


_ATTRIBUTE_LIMIT = 3.4028234663852886e38
"""What `Clip` limits numbers to before opset 11, when it is not told, whatever their element type."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What limits a value: it is raised to `low`, then lowered to `high`; infinite where there is no limit.

    A `Clip` without a bound still limits, to the largest number of the element type: it lets no infinity through.
    """

    x: Value
    low: Any = -math.inf
    high: Any = math.inf

    def clip(self, number: Any) -> Any:
        """A number within the bounds."""
        return min(max(number, self.low), self.high)

    def after(self, inner: Bounds) -> Bounds:
        """Both bounds as one, these applied last."""
        return Bounds(inner.x, self.clip(inner.low), self.clip(inner.high))


def read_bounds(node: Node) -> Bounds | Mismatch | None:
    """The bounds that a `Relu`, a `Clip`, or a `Min` or `Max` with one constant sets."""
    if node.op in ("Min", "Max"):
        return _read_extremum(node)
    x = node.input(0)
    if x is None:
        return None
    if node.op == "Relu":
        return Bounds(x, low=0)
    if x.dtype is None:
        return Mismatch("the element type of {} is not known", x.name)
    limits = list(_left_out(x.dtype, node.graph.opset()))
    for index, key in ((1, "min"), (2, "max")):
        limit: Any = node.attrs.get(key) if node.graph.opset() < 11 else None
        value = node.input(index)
        if value is not None:
            array = value.const()
            if array is None or array.size != 1:
                return Mismatch("the bound {} is not constant", value.name)
            limit = array.reshape(-1)[0].item()
        if limit is not None:
            limits[index - 1] = limit
    return _checked(Bounds(x, *limits))


def _left_out(dtype: int, opset: int) -> tuple[Any, Any]:
    """The bounds of a `Clip` that is told none."""
    kind = np.dtype(tensor_dtype_to_np_dtype(dtype))
    if dtype not in FLOAT_TYPES:
        numbers: Any = ml_dtypes.iinfo(kind)  # type: ignore[no-untyped-call]
        return int(numbers.min), int(numbers.max)
    top = float(ml_dtypes.finfo(kind).max)  # type: ignore[no-untyped-call]
    if opset < 11:
        top = math.inf if top < _ATTRIBUTE_LIMIT else _ATTRIBUTE_LIMIT  # beyond half precision it is no limit
    return -top, top


def _read_extremum(node: Node) -> Bounds | Mismatch | None:
    if len(node.inputs) != 2:
        return None
    for x, other in (node.inputs, node.inputs[::-1]):
        array = other.const() if other is not None else None
        if x is None or array is None or array.size != 1 or x.is_const:
            continue
        if array.ndim and (x.rank is None or array.ndim > x.rank):
            return Mismatch("the constant may add axes to {}", x.name)
        number = array.reshape(-1)[0].item()
        return _checked(Bounds(x, low=number) if node.op == "Max" else Bounds(x, high=number))
    return None


def _checked(bounds: Bounds) -> Bounds | Mismatch:
    if np.isnan(bounds.low) or np.isnan(bounds.high):
        return Mismatch("a bound is NaN")
    if bounds.low > bounds.high:
        return Mismatch("the lower bound {} is above the upper bound {}", bounds.low, bounds.high)
    return bounds


def _written(bounds: Bounds, rw: Rewriter) -> Value | Mismatch:
    """The bounds as one operator."""
    x, opset = bounds.x, rw.graph.opset()
    dtype = x.dtype
    if dtype is None:
        return Mismatch("the element type of {} is not known", x.name)
    if bounds.low == 0 and bounds.high == math.inf and dtype in FLOAT_TYPES:
        relu: Value = rw.op("Relu", x)
        return relu
    if opset < 12 and dtype not in _CLIPPED_FROM_THE_START:
        return Mismatch("before opset 12 ONNX Runtime has no Clip for the element type of {}", x.name)
    given = [None if _says_nothing(*pair, dtype) else pair[0] for pair in _pairs(bounds, dtype, opset)]
    if opset < 11:
        clip: Value = rw.op("Clip", x, min=given[0], max=given[1])
        return clip
    kind = np.dtype(tensor_dtype_to_np_dtype(dtype))
    result: Value = rw.op("Clip", x, *(None if n is None else np.array(n, dtype=kind) for n in given))
    return result


def _pairs(bounds: Bounds, dtype: int, opset: int) -> Iterator[tuple[Any, Any]]:
    """Each bound, and what it is when left out."""
    return zip((bounds.low, bounds.high), _left_out(dtype, opset), strict=True)


def _says_nothing(bound: Any, left_out: Any, dtype: int) -> bool:
    """Whether a bound can be left out; of integers none is infinite."""
    return bool(bound == left_out) or (dtype not in FLOAT_TYPES and abs(bound) == math.inf)


def _fuse(node: Node, inner_ops: tuple[str, ...], rw: Rewriter) -> Outcome:
    outer = read_bounds(node) if node.op != "Relu" or node.inputs[0] is not None else None
    if not isinstance(outer, Bounds):
        return outer
    value = outer.x
    first = value.producer
    if first is None or first.op not in inner_ops:
        return None
    problem = only_reader(value, node)
    if problem is not None:
        return problem
    inner = read_bounds(first)
    if not isinstance(inner, Bounds):
        return inner
    fused = _written(outer.after(inner), rw)
    return fused if isinstance(fused, Mismatch) else rw.replace(node, [fused])


def _reads(node: Node, ops: tuple[str, ...]) -> bool:
    return any(v is not None and v.producer is not None and v.producer.op in ops for v in node.inputs)


class FuseConsecutiveClips(OpRule):
    """Join two `Clip` with constant bounds into one."""

    name = "fuse_consecutive_clips"
    ops = ("Clip",)
    opsets = "6-"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxscript": "FuseSuccessiveClip"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Take the bounds of the first one into those of the second."""
        return _fuse(node, ("Clip",), rw) if _reads(node, ("Clip",)) else None


_FREE_BROADCAST = 8
"""From this opset on `Min` and `Max` broadcast their operands."""

_OTHERS = {
    "Clip": ("Relu", "Min", "Max"), "Relu": ("Clip", "Min", "Max"), "Min": ("Relu", "Clip"), "Max": ("Relu", "Clip"),
}  # fmt: skip
"""What each operator is joined with; two of a kind, and `Min` with `Max`, are other passes' business."""


class FuseReluIntoClip(OpRule):
    """Join `Relu` and `Clip` with constant bounds, in either order, into one `Clip`.

    A `Min` or `Max` with one constant number counts as a `Clip`.
    """

    name = "fuse_relu_into_clip"
    ops = ("Clip", "Relu", "Min", "Max")
    opsets = "6-"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxscript": "FuseSuccessiveReluClip", "onnxruntime": "FuseReluClip"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """A `Relu` is a lower bound of zero."""
        other = _OTHERS[node.op]
        if node.graph.opset() < _FREE_BROADCAST:
            other = () if node.op in ("Min", "Max") else other[:1]
        return _fuse(node, other, rw) if _reads(node, other) else None


class FuseMinMaxIntoClip(OpRule):
    """Join `Min` and `Max` with one constant number each, in either order, into one `Clip`."""

    name = "fuse_min_max_into_clip"
    ops = ("Min", "Max")
    opsets = "8-"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxscript": "FuseMinMaxToClip"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Take the bound of the first one into that of the second."""
        return _fuse(node, ("Min", "Max"), rw) if _reads(node, ("Min", "Max")) else None
