"""Kernels that compute on integers and booleans, where NumPy and every runtime agree bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from graphopt.analysis.kernels.base import (
    Array,
    Kernel,
    Unsupported,
    box,
    given,
    ints,
    need,
    normal_axes,
    normal_axis,
    plain_ints,
)
from graphopt.ir import Node
from graphopt.ir.numpy_types import element_type, numpy_type

Args = list[Array | None]
Ufunc = Callable[..., Any]


def _integers(*arrays: Array) -> None:
    if any(a.dtype.kind not in "iu" for a in arrays) or any(a.dtype != arrays[0].dtype for a in arrays):
        raise Unsupported("only integers of one type")


def _modern(node: Node) -> None:
    if not node.graph.broadcasts(node.op):
        raise Unsupported("operands are not broadcast to each other at this opset")


def _binary(ufunc: Ufunc) -> Kernel:
    def kernel(node: Node, args: Args) -> Array:
        _modern(node)
        a, b = need(args, 0), need(args, 1)
        _integers(a, b)
        return np.asarray(ufunc(a, b), a.dtype)

    return kernel


def _divisor(a: Array, b: Array) -> None:
    _integers(a, b)
    if not np.all(b):
        raise Unsupported("division by zero")
    if a.dtype.kind == "i" and np.any(b == -1) and np.any(a == np.iinfo(a.dtype).min):
        raise Unsupported("division overflows")


def _div(node: Node, args: Args) -> Array:
    _modern(node)
    a, b = need(args, 0), need(args, 1)
    _divisor(a, b)
    quotient = np.floor_divide(a, b)
    # The standard truncates, NumPy rounds down: add 1 if the signs differ and there is a remainder.
    up = (quotient * b != a) & ((a < 0) != (b < 0))
    return np.asarray(quotient + up.astype(a.dtype), a.dtype)


def _mod(node: Node, args: Args) -> Array:
    a, b = need(args, 0), need(args, 1)
    _divisor(a, b)
    return np.asarray(np.fmod(a, b) if node.attr("fmod", 0) else np.mod(a, b), a.dtype)


def _unary(ufunc: Ufunc) -> Kernel:
    def kernel(node: Node, args: Args) -> Array:
        a = need(args, 0)
        _integers(a)
        return np.asarray(ufunc(a), a.dtype)

    return kernel


def _variadic(ufunc: Ufunc) -> Kernel:
    def kernel(node: Node, args: Args) -> Array:
        _modern(node)
        result = need(args, 0)
        for index in range(1, len(args)):
            other = need(args, index)
            _integers(result, other)
            result = np.asarray(ufunc(result, other))
        _integers(result)
        return result

    return kernel


def _compare(ufunc: Ufunc) -> Kernel:
    def kernel(node: Node, args: Args) -> Array:
        _modern(node)
        a, b = need(args, 0), need(args, 1)
        if a.dtype != b.dtype or a.dtype.kind not in "iubf":
            raise Unsupported("element types")
        return np.asarray(ufunc(a, b), np.bool_)

    return kernel


def _logic(ufunc: Ufunc) -> Kernel:
    def kernel(node: Node, args: Args) -> Array:
        if len(args) > 1:
            _modern(node)
        operands = [need(args, i) for i in range(len(args))]
        if any(a.dtype != np.bool_ for a in operands):
            raise Unsupported("only booleans")
        return np.asarray(ufunc(*operands), np.bool_)

    return kernel


def _bit_shift(node: Node, args: Args) -> Array:
    a, b = need(args, 0), need(args, 1)
    _integers(a, b)
    if a.dtype.kind != "u" or (b.size and int(b.max()) >= 8 * a.dtype.itemsize):
        raise Unsupported("shift by the width or more")
    return np.asarray(np.left_shift(a, b) if node.attr("direction") == "LEFT" else np.right_shift(a, b), a.dtype)


def _clip(node: Node, args: Args) -> Array:
    a = need(args, 0)
    _integers(a)
    for index, ufunc in ((1, np.maximum), (2, np.minimum)):
        limit = given(args, index)
        if limit is not None:
            _integers(a, limit)
            a = np.asarray(ufunc(a, limit.reshape(())), a.dtype)
    return a


def cast_is_exact(source: Any, target: int) -> bool:
    """Whether NumPy's conversion from a type equals the standard's for every value.

    Float to integer does not: out-of-range values are undefined. Neither does double to a narrow float, which runtimes
    convert in two steps. In ONNX Runtime, the negative zero of an 8-bit float is true.
    """
    kind = np.dtype(source).kind
    if np.dtype(source).isbuiltin != 1:
        return False  # one of these, float8e5m2, has the kind of ordinary floats
    if target == TensorProto.BOOL:
        return kind in "iubf"
    if kind not in "iub":
        return kind == "f" and (np.dtype(source).itemsize, target) in _ROUNDED
    return target in _INTEGERS or target in (TensorProto.FLOAT, TensorProto.DOUBLE)


_ROUNDED = {
    (4, TensorProto.DOUBLE), (2, TensorProto.FLOAT), (2, TensorProto.DOUBLE), (8, TensorProto.DOUBLE),
    (8, TensorProto.FLOAT), (4, TensorProto.FLOAT), (2, TensorProto.FLOAT16), (4, TensorProto.FLOAT16),
}  # fmt: skip
_INTEGERS = {
    TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64,
    TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64,
}  # fmt: skip


def convert(array: Array, target: int) -> Array:
    """Convert an array to another element type.

    Raises:
        Unsupported: NumPy might convert differently from the runtime.
    """
    if not cast_is_exact(array.dtype, target) and not _are_within(array, target):
        raise Unsupported(f"conversion of {array.dtype} to type {target}")
    return array.astype(numpy_type(target))


def _are_within(array: Array, target: int) -> bool:
    """Whether all floats, truncated towards zero, are in the range of an integer type."""
    if target not in _INTEGERS or array.dtype.kind != "f" or array.dtype.isbuiltin != 1:
        return False
    limits, whole = np.iinfo(numpy_type(target)), np.trunc(array.astype(np.float64))
    return bool(np.all((whole >= float(limits.min)) & (whole < float(limits.max + 1))))  # powers of two, or 0


def _cast(node: Node, args: Args) -> Array:
    return convert(need(args, 0), node.attr("to"))


def _cast_like(node: Node, args: Args) -> Array:
    like = need(args, 1)
    return convert(need(args, 0), element_type(like.dtype))


def reduced_axes(node: Node, args: Args, rank: int) -> list[int] | None:
    """The axes of a reduction; None if it is the identity.

    Raises:
        Unsupported: they are symbolic or do not exist.
    """
    axes = ints(node, args, "axes")
    if not axes:
        return None if node.attr("noop_with_empty_axes", 0) else list(range(rank))
    return normal_axes(axes, rank)


def _fits(ufunc: Any, data: Array, axes: tuple[int, ...]) -> None:
    """Reject sums and products whose partial results may overflow: the standard wraps them, the runtime saturates."""
    bound = ufunc.reduce(np.abs(data.astype(np.float64)), axis=axes)
    if not np.all(bound < min(2.0**53, float(np.iinfo(data.dtype).max))):  # the bound may be NaN
        raise Unsupported("the result may overflow")


def _reduce(ufunc: Any, empty: bool) -> Kernel:
    def kernel(node: Node, args: Args) -> Array:
        data = need(args, 0)
        if data.dtype != object:
            _integers(data)
        axes = reduced_axes(node, args, data.ndim)
        if axes is None:
            return data
        if not data.size:
            # The runtime ignores negative axes of an empty tensor.
            if not empty or min(ints(node, args, "axes") or [0]) < 0:
                raise Unsupported("reduction of nothing")
        elif empty and data.dtype != object:
            _fits(ufunc, data, tuple(axes))
        keep = bool(node.attr("keepdims", 1))
        result = ufunc.reduce(data, axis=tuple(axes), dtype=data.dtype, keepdims=keep)
        return box(result, data.dtype)

    return kernel


def _range(node: Node, args: Args) -> Array:
    operands = [need(args, i) for i in range(3)]
    _integers(*operands)
    start, limit, delta = (plain_ints(a)[0] for a in operands)
    if delta == 0:
        raise Unsupported("delta 0")
    count = max(0, -((start - limit) // delta))
    return np.asarray(start + delta * np.arange(count), operands[0].dtype)


def _cumsum(node: Node, args: Args) -> Array:
    data = need(args, 0)
    _integers(data)
    axis = normal_axis(plain_ints(need(args, 1))[0], data.ndim)
    if node.attr("exclusive", 0):
        raise Unsupported("exclusive sum")
    if node.attr("reverse", 0):
        return np.flip(np.cumsum(np.flip(data, axis), axis=axis, dtype=data.dtype), axis)
    return np.cumsum(data, axis=axis, dtype=data.dtype)


def _resize(node: Node, args: Args) -> Array:
    """Resize an image of equal pixels, such as a mask of ones: all nearest pixels are the same."""
    data, target = need(args, 0), plain_ints(need(args, 3))
    told = [node.attr(name, usual) for name, usual in _USUAL_RESIZE.items()]
    if told != list(_USUAL_RESIZE.values()) or "axes" in node.attrs or len(target) != data.ndim or min(target) < 1:
        raise Unsupported("not by the nearest pixel to sizes of all axes")
    if node.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize" or data.dtype == object:
        raise Unsupported("a region, or symbols")
    if not data.size or data.tobytes() != data.reshape(-1)[:1].tobytes() * data.size:
        raise Unsupported("pixels differ")
    return np.broadcast_to(data.reshape(-1)[:1], target)


_USUAL_RESIZE = {"mode": "nearest", "keep_aspect_ratio_policy": "stretch"}


def _eye_like(node: Node, args: Args) -> Array:
    like = need(args, 0)
    dtype = node.attr("dtype")
    target: np.dtype[Any] = like.dtype if dtype is None else numpy_type(dtype)
    if like.ndim != 2 or target.kind == "O":
        raise Unsupported("not a matrix of numbers")
    rows, columns = np.ogrid[: like.shape[0], : like.shape[1]]
    return np.asarray(columns - rows == node.attr("k", 0)).astype(target)


ARITHMETIC: dict[str, Kernel] = {
    "Abs": _unary(np.abs),
    "Add": _binary(np.add),
    "And": _logic(np.logical_and),
    "BitShift": _bit_shift,
    "BitwiseAnd": _binary(np.bitwise_and),
    "BitwiseNot": _unary(np.invert),
    "BitwiseOr": _binary(np.bitwise_or),
    "BitwiseXor": _binary(np.bitwise_xor),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Clip": _clip,
    "CumSum": _cumsum,
    "Div": _div,
    "Equal": _compare(np.equal),
    "EyeLike": _eye_like,
    "Greater": _compare(np.greater),
    "GreaterOrEqual": _compare(np.greater_equal),
    "Less": _compare(np.less),
    "LessOrEqual": _compare(np.less_equal),
    "Max": _variadic(np.maximum),
    "Min": _variadic(np.minimum),
    "Mod": _mod,
    "Mul": _binary(np.multiply),
    "Neg": _unary(np.negative),
    "Not": _logic(np.logical_not),
    "Or": _logic(np.logical_or),
    "Range": _range,
    "ReduceMax": _reduce(np.maximum, empty=False),
    "ReduceMin": _reduce(np.minimum, empty=False),
    "ReduceProd": _reduce(np.multiply, empty=True),
    "ReduceSum": _reduce(np.add, empty=True),
    "Resize": _resize,
    "Sign": _unary(np.sign),
    "Sub": _binary(np.subtract),
    "Xor": _logic(np.logical_xor),
}
"""Kernels by operator."""
