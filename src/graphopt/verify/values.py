"""Random values that expose errors: negatives, zeros, ties, large and tiny numbers, NaN and infinities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np
import onnx

Array = np.ndarray[Any, Any]
Flavour = Literal["ordinary", "extreme", "infinite", "nan"]

_WORDS = ("", "a", "b", "ab", "A", "The quick brown fox", "naïve", "1", "-2.5", "a b", " ", "graph")
_NUMERALS = ("0", "1", "2", "-3", "1.5", "10")
_ORDINARY_INT = 10
_EXTREME_INT = 100_000
_ROOM_FOR_TIES = 4
_FEW = 8  # integers as few as this may be sizes: 100 000 of something is too many
_QUIET = 1e-4
_ROOM_FOR_QUIET = 4  # with a larger share, the small values would determine the output's range
_IMAGE, _FEW_CHANNELS = 2, 2  # axes before those of an image; each of its channels is normalized separately
_EDGES = (1 << 53, 1 << 31, 1 << 24)  # double, int32 and float represent all integers up to these
_EDGE_BITS = 16  # integers up to this width use their whole range in the extreme set


def numpy_dtype(dtype: int) -> np.dtype[Any] | None:
    """The NumPy (or ml_dtypes) type of an ONNX element type; None if there is none."""
    try:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(dtype))
    except (KeyError, TypeError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class NumberLimits:
    """Parameters of a floating-point type: largest and smallest normal number, and distance of 1.0 to the next."""

    top: float
    tiny: float
    eps: float


def limits(dtype: np.dtype[Any]) -> NumberLimits:
    """The limits of a floating-point type, NumPy's or ml_dtypes'."""
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # not annotated
    return NumberLimits(float(info.max), float(info.smallest_normal), float(info.eps))


def is_foreign(dtype: np.dtype[Any]) -> bool:
    """True for the types that NumPy does not know by itself (bfloat16, float8, 4-bit integers)."""
    return dtype.type.__module__ != "numpy"


def is_float(dtype: np.dtype[Any]) -> bool:
    """True for NumPy's floating-point types and those of ml_dtypes."""
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)


def has_special(dtype: np.dtype[Any]) -> bool:
    """True if the type can represent NaN."""
    with np.errstate(all="ignore"):
        return is_float(dtype) and bool(np.isnan(np.array([np.nan]).astype(dtype)).any())


def draw(rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...], flavour: Flavour) -> Array:
    """Random values of a type and a flavour; small shapes may not contain all kinds of the flavour's values."""
    if is_float(dtype):
        return _floats(rng, dtype, shape, flavour)
    if dtype.kind == "b":
        return np.asarray(np.asarray(rng.integers(0, 2, shape)).astype(np.bool_))
    if dtype.kind in "OSU":
        return np.asarray(rng.choice(np.array(_WORDS, dtype=object), shape), dtype=object).reshape(shape)
    if dtype.kind == "c":
        real, imaginary = (_plain(rng, shape) for _ in range(2))
        return np.asarray((real + 1j * imaginary).astype(dtype))
    return _integers(rng, dtype, shape, flavour)


def beyond(rng: np.random.Generator, drawn: Array) -> Array:
    """Replace a few of the wide integers with ones that a narrower type, or a float type, cannot represent."""
    if drawn.dtype.kind not in "iu" or drawn.dtype.itemsize * 8 <= _EDGE_BITS or not drawn.size:
        return drawn
    most, flat = int(np.iinfo(drawn.dtype).max), drawn.flatten()
    edges = [edge + 1 for edge in _EDGES if edge < most]
    places = rng.choice(flat.size, min(flat.size // 2, max(len(edges), flat.size // 50)), replace=False)
    signs = np.where(flat[places] < 0, -1, 1)
    flat[places] = (np.resize(np.array(edges, np.int64), len(places)) * signs).astype(drawn.dtype)
    return flat.reshape(drawn.shape)


def numerals(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Strings that are numbers, for models that parse them."""
    return np.asarray(rng.choice(np.array(_NUMERALS, dtype=object), shape), dtype=object).reshape(shape)


def vary(rng: np.random.Generator, default: Array, *, integers: bool) -> Array:
    """Another value that a caller might give in place of a default: same type, shape and signs.

    Keeping the signs and the order of magnitude keeps variances positive and scales sensible; integers
    (shapes, axes) are permuted, so that they mostly stay valid; a single integer is incremented.
    """
    if is_float(default.dtype):
        values = default.astype(np.float64)
        scaled = values * rng.uniform(0.5, 1.5, default.shape)
        if not np.any(values):
            scaled = scaled + rng.uniform(0.0, 0.5, default.shape)
        return np.asarray(scaled.astype(default.dtype))
    if default.dtype.kind in "OSU":
        return np.asarray([f"{text}." for text in default.reshape(-1)], dtype=object).reshape(default.shape)
    if not integers or default.dtype.kind not in "iub":
        return default
    if default.dtype.kind == "b":
        return np.asarray(np.logical_not(default))
    permuted = np.asarray(rng.permutation(default.reshape(-1)).reshape(default.shape), dtype=default.dtype)
    return permuted if default.size != 1 else np.asarray(permuted + permuted.dtype.type(1))


def _plain(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Normally distributed numbers; a quarter on a coarse grid (ties, duplicates), some zeros, some larger."""
    values = np.asarray(rng.standard_normal(shape))
    lot = np.asarray(rng.random(shape))
    values = np.where(lot < 0.25, np.round(values * 2.0) / 2.0, values)
    if values.size >= 8:
        values = np.where((lot >= 0.25) & (lot < 0.30), 0.0, values)
        values = np.where((lot >= 0.30) & (lot < 0.32), values * 8.0, values)
    return np.asarray(values)


def _floats(rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...], flavour: Flavour) -> Array:
    top, tiny = limits(dtype).top, limits(dtype).tiny
    values = calm = _plain(rng, shape)
    if flavour == "extreme":
        values = _spread(rng, values, min(1e4, top**0.5), tiny)
    _tie(rng, values)
    if flavour == "extreme":  # not so small that their squares underflow to 0
        _quiet(rng, values, calm * max(_QUIET, 2.0 * tiny**0.5))
    # Types without infinity turn numbers that are too large into NaN, which belongs to the special set only.
    with np.errstate(all="ignore"):
        array = np.asarray(np.clip(values, -top, top).astype(dtype))
    # No huge finite numbers next to infinities: whether a sum of them overflows depends on its order.
    if flavour in {"infinite", "nan"}:
        _sprinkle(rng, array, [np.nan] if flavour == "nan" else [np.inf, -np.inf])
    return array


def _spread(
    rng: np.random.Generator, values: np.ndarray[Any, np.dtype[np.float64]], large: float, tiny: float
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Replace nearly half of the values with large and small ones, denormals and zeros of both signs."""
    lot = np.asarray(rng.random(values.shape))
    sign = np.where(rng.random(values.shape) < 0.5, -1.0, 1.0)
    up = large ** rng.random(values.shape)
    down = np.maximum(1e-8, tiny) ** rng.random(values.shape)
    values = np.where(lot < 0.15, sign * up, values)
    values = np.where((lot >= 0.15) & (lot < 0.30), sign * down, values)
    values = np.where((lot >= 0.30) & (lot < 0.35), sign * tiny * rng.random(values.shape), values)
    values = np.where((lot >= 0.35) & (lot < 0.45), sign * 0.0, values)
    return np.asarray(values)


def _quiet(
    rng: np.random.Generator,
    values: np.ndarray[Any, np.dtype[np.float64]],
    small: np.ndarray[Any, np.dtype[np.float64]],
) -> None:
    """Fill one of several images, rows or channels with small numbers: there the epsilon of a normalization shows.

    With few images it is a whole channel: a single row would be normalized together with larger values.
    """
    sizes, few = values.shape[:-1], values.ndim > _IMAGE
    for count in range(1, len(sizes) + 1):
        if math.prod(sizes[:count]) >= (_FEW_CHANNELS if few and count == _IMAGE else _ROOM_FOR_QUIET):
            place = tuple(int(rng.integers(size)) for size in sizes[:count])
            values[place] = small[place]
            return


def _tie(rng: np.random.Generator, values: Array) -> None:
    """Duplicate the largest and the smallest value of half of the rows along the last axis and along axis 1."""
    for axis in {values.ndim - 1, min(1, values.ndim - 1)} - {-1}:
        if values.shape[axis] < _ROOM_FOR_TIES or not values.size:
            continue
        rows = list(values.shape)
        rows[axis] = 1
        for best in (values.argmax(axis=axis, keepdims=True), values.argmin(axis=axis, keepdims=True)):
            other = rng.integers(0, values.shape[axis], rows)
            other = np.where(rng.random(rows) < 0.5, other, best)
            np.put_along_axis(values, other, np.take_along_axis(values, best, axis), axis)


def _sprinkle(rng: np.random.Generator, array: Array, specials: list[float]) -> None:
    """Put each special value into one element in fifty, 1 to 16 in all; few, so that not everything becomes NaN."""
    if not array.size or not has_special(array.dtype):
        return
    flat = array.reshape(-1)
    for special in specials:
        if np.isinf(special) and not np.isinf(np.array([special]).astype(array.dtype)).any():
            continue
        count = min(16, max(1, array.size // 50))
        flat[rng.integers(0, array.size, count)] = np.array([special]).astype(array.dtype)[0]


def _integers(rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...], flavour: Flavour) -> Array:
    info: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]  # not annotated
    low, high = int(info.min), int(info.max)
    few = len(shape) <= 1 and int(np.prod(shape)) <= _FEW and int(info.bits) > _EDGE_BITS
    if flavour != "extreme" or few:
        low, high = max(low, -_ORDINARY_INT), min(high, _ORDINARY_INT)
    elif int(info.bits) > _EDGE_BITS:
        low, high = max(low, -_EXTREME_INT), min(high, _EXTREME_INT)
    drawn = np.asarray(rng.integers(low, high, shape, endpoint=True))
    _tie(rng, drawn)
    return np.asarray(drawn.astype(dtype))
