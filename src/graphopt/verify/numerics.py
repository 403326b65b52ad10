"""Tolerances: the largest differences of two outputs, by numerics level and element type."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from graphopt.errors import UsageError
from graphopt.verify.report import OutputReport
from graphopt.verify.values import is_float, limits

LEVELS = ("exact", "rounding", "fast")

# Relative to the output's range. float32 sums of a few thousand terms in another order differ by some 1e-6;
# a wrong epsilon or a slightly wrong weight differs by 1e-4 and more.
_RANGE_TOLERANCE = {
    "rounding": {"float64": 1e-12, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2},
    "fast": {"float64": 1e-2, "float32": 1e-2, "float16": 2e-2, "bfloat16": 6e-2},
}
_ULPS = {"rounding": 16.0, "fast": 64.0}
# float8 and narrower: one or two steps of the type. Sixteen steps would be several times the number itself.
_SMALL_FLOAT_TOLERANCE, _SMALL_FLOAT_ULPS = {"rounding": 0.13, "fast": 0.26}, {"rounding": 1.0, "fast": 2.0}
_RANGE_OVER_MEDIAN = 30.0
_NOISE_FACTOR = 4.0
_ONE_STEP = 1.9
"""Factor on the original's changes of elements: floats computed from quantized values may change by more than a step,
but no element may change by two steps if the original changes by one."""
_EDGE = 0.9
"""From this share of a type's largest number on, an infinity may replace a number."""


def level_name(numerics: str | Enum) -> str:
    """The lower-case name of a numerics level, given as text or as a member of an enumeration."""
    name = (numerics.name if isinstance(numerics, Enum) else str(numerics)).lower()
    if name not in LEVELS:
        raise UsageError(f"unknown numerics level {name!r}; expected one of {', '.join(LEVELS)}")
    return name


@dataclass(frozen=True, slots=True)
class Noise:
    """The sensitivity of the original to one-ulp changes of its inputs.

    Attributes:
        amplitude: Per element, the largest change measured; infinite if the element is unstable (it changed between
            a number, an infinity and NaN, or a discrete value changed).
        typical: Median of the finite amplitudes: with few runs, an element may stay the same by chance.
        steps: For a model that quantizes, the finite changes of a run in descending order; for several runs, the
            maximum at each rank. Each run changes a few elements by a step, and not the same ones: runs cannot predict
            which elements of a correct result change, but how many and by how much.
    """

    amplitude: np.ndarray[Any, np.dtype[np.float64]]
    typical: float
    steps: np.ndarray[Any, np.dtype[np.float64]] | None = None

    def has_as_many(self, errors: np.ndarray[Any, np.dtype[np.float64]]) -> bool:
        """Whether a run of the original changes as many elements by about as much as these errors."""
        if self.steps is None or not np.isfinite(errors).all():
            return False
        return bool((_descending(errors) <= _ONE_STEP * self.steps[: errors.size]).all())


def measure_noise(
    base: np.ndarray[Any, Any], others: list[np.ndarray[Any, Any]], *, stepwise: bool = False
) -> Noise | None:
    """Compare runs on perturbed inputs with the run on the true ones; None if shapes changed.

    Args:
        base: the output on the true inputs.
        others: the outputs on perturbed inputs.
        stepwise: whether the model quantizes.
    """
    if not others or any(o.shape != base.shape for o in others):
        return None
    if base.dtype.kind == "c":
        base, others = _as_pairs(base), [_as_pairs(other) for other in others]
    amplitude = np.zeros(base.shape, np.float64)
    steps = np.zeros(base.size, np.float64) if stepwise and (is_float(base.dtype) or _is_narrow(base.dtype)) else None
    for other in others:
        if steps is not None:
            np.maximum(steps, _descending(_distances(base, other)), out=steps)
        if not is_float(base.dtype):
            amplitude[other != base] = np.inf
            continue
        a, b = _bounded(base, other), _bounded(other, base)
        with np.errstate(all="ignore"):
            step = np.asarray(np.abs(a - b))  # NumPy returns no array for a scalar
        both_nan, same_infinite = np.isnan(a) & np.isnan(b), np.isinf(a) & (a == b)
        step[both_nan | same_infinite] = 0.0
        step[np.isnan(step)] = np.inf
        np.maximum(amplitude, step, out=amplitude)
    finite = amplitude[np.isfinite(amplitude) & ~_is_edge(base)]
    with np.errstate(over="ignore"):
        return Noise(amplitude, float(np.median(finite)) if finite.size else 0.0, steps)


def _is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether a type may hold quantized numbers; wider integers may be indices, whose distance means nothing."""
    return dtype.kind in "iu" and dtype.itemsize <= np.dtype(np.int16).itemsize


def _distances(base: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Absolute differences, 0 if they are not finite."""
    with np.errstate(all="ignore"):
        apart = np.abs(base.astype(np.float64) - other.astype(np.float64))
    return np.where(np.isfinite(apart), apart, 0.0)


def _descending(numbers: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.sort(numbers, axis=None)[::-1]


def _is_edge(array: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where numbers, as in masks, are infinite or so large that a few ulps may make them infinite."""
    if not is_float(array.dtype):
        return np.zeros(array.shape, bool)
    return np.asarray(np.abs(array.astype(np.float64)) >= _EDGE * limits(array.dtype).top)


def _bounded(array: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The numbers, with an infinity replaced by the largest number if the other array has a value near that.

    There an ulp decides between both, which does not excuse results far from either.
    """
    wide, top = array.astype(np.float64), limits(array.dtype).top
    return np.where(np.isinf(wide) & _is_edge(other), np.copysign(top, wide), wide)


def compare_arrays(
    name: str, expected: Any, actual: Any, level: str, noise: Noise | None = None, *, zeroed: bool = False
) -> OutputReport:
    """Compare one output of both models.

    Args:
        name: The output's name.
        expected: The output of the original.
        actual: The output of the result.
        level: `exact`, `rounding` or `fast`.
        noise: The original's own sensitivity, which is added to the tolerance of each element.
        zeroed: Whether negligible weights were set to zero: then their products with ordinary activations are missing.
    """
    expected, actual = np.asarray(expected), np.asarray(actual)
    report = OutputReport(name, str(expected.dtype), expected.shape, elements=expected.size)
    if expected.dtype != actual.dtype:
        return _wrong(report, f"expected element type {expected.dtype}, found {actual.dtype}")
    if expected.shape != actual.shape:
        return _wrong(report, f"expected shape {list(expected.shape)}, found {list(actual.shape)}")
    if _same_bits(expected, actual):
        return report
    if expected.dtype.kind == "c":
        expected, actual = _as_pairs(expected), _as_pairs(actual)
        report = replace(report, elements=expected.size)
    if is_float(expected.dtype):
        return _compare_floats(report, expected, actual, level, noise, zeroed=zeroed)
    return _compare_discrete(report, expected, actual, noise)


def _compare_floats(
    report: OutputReport,
    expected: np.ndarray[Any, Any],
    actual: np.ndarray[Any, Any],
    level: str,
    noise: Noise | None,
    *,
    zeroed: bool,
) -> OutputReport:
    a, b = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    with np.errstate(all="ignore"):
        error = np.where(finite, np.abs(a - b), 0.0)
    max_abs = float(error.max(initial=0.0))
    scale = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
    if level == "exact":
        bad = _differs_in_bits(expected, actual)
    else:
        allowed = _allowed(a, _computed_in(expected, actual), level)
        if zeroed:
            allowed = allowed + limits(expected.dtype).tiny / limits(expected.dtype).eps ** 2
        if noise is not None:
            allowed = allowed + _NOISE_FACTOR * (noise.amplitude.reshape(a.shape) + noise.typical)
        bad = (finite & (error > allowed)) | (~finite & ~_same_special(a, b, expected.dtype))
        if noise is not None:
            bad &= np.isfinite(noise.amplitude.reshape(a.shape))
            bad &= not noise.has_as_many(np.where(finite, error, np.inf)[bad])
    if (bad & ~finite).any():  # a wrong NaN or infinity is not a small error
        max_abs = float("inf")
    report = replace(
        report,
        max_abs=max_abs,
        max_rel=_relative(max_abs, scale),
        noise=None if noise is None else float(noise.amplitude.max(initial=0.0)),
    )
    return _verdict(report, bad, expected, actual)


def _computed_in(expected: np.ndarray[Any, Any], actual: np.ndarray[Any, Any]) -> np.dtype[Any]:
    """The element type whose tolerance applies: float32 for doubles that a `Cast` made of its numbers.

    If all of them are integers they may also be counts in doubles, which are exact.
    """
    own: np.dtype[Any] = expected.dtype
    if own != np.float64:
        return own
    with np.errstate(all="ignore"):
        for array in (expected, actual):
            if not np.array_equal(array.astype(np.float32).astype(np.float64), array, equal_nan=True):
                return own
    whole = all(np.array_equal(np.rint(array), array, equal_nan=True) for array in (expected, actual))
    return own if whole else np.dtype(np.float32)


def _relative(error: float, scale: float) -> float:
    return error / scale if scale else (0.0 if error == 0.0 else float("inf"))


def _compare_discrete(
    report: OutputReport, expected: np.ndarray[Any, Any], actual: np.ndarray[Any, Any], noise: Noise | None
) -> OutputReport:
    bad = np.asarray(expected != actual, dtype=bool)
    if expected.dtype.kind in "iubV" and expected.size:
        scale = float(np.abs(expected.astype(np.float64)).max())
        error = largest_distance(expected, actual)
        report = replace(report, max_abs=error, max_rel=_relative(error, scale))
    if noise is not None:
        bad &= np.isfinite(noise.amplitude)
        bad &= not noise.has_as_many(_distances(expected, actual)[bad] if noise.steps is not None else np.zeros(0))
    return _verdict(report, bad, expected, actual)


def largest_distance(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """The largest difference of two integer arrays, exact: above 2 ** 53 doubles do not represent all integers."""
    wide = np.dtype(np.uint64 if a.dtype == np.uint64 else np.int64)
    one, other = a.astype(wide), b.astype(wide)
    # Unsigned differences wrap around, and are correct.
    with np.errstate(over="ignore"):  # NumPy warns for scalars
        apart = np.maximum(one, other).astype(np.uint64) - np.minimum(one, other).astype(np.uint64)
    return float(apart.max())


def _verdict(
    report: OutputReport,
    bad: np.ndarray[Any, np.dtype[np.bool_]],
    expected: np.ndarray[Any, Any],
    actual: np.ndarray[Any, Any],
) -> OutputReport:
    count = int(np.count_nonzero(bad))
    if not count:
        return replace(report, status="close")
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape))
    return replace(
        report,
        status="mismatch",
        mismatches=count,
        first_index=index,
        detail=f"{count} of {report.elements} elements differ, {_extent(report, expected.dtype)}"
        f"first at {list(index)}: expected {_shown(expected[index])}, found {_shown(actual[index])}",
    )


def _shown(element: Any) -> str:
    return repr(str(element)) if isinstance(element, (str, bytes)) else str(element)  # quotes make blanks visible


def _extent(report: OutputReport, dtype: np.dtype[Any]) -> str:
    return "" if dtype.kind in "OSU" else f"largest error {report.max_abs:.3g}, "  # not for strings


def _allowed(
    a: np.ndarray[Any, np.dtype[np.float64]], dtype: np.dtype[Any], level: str
) -> np.ndarray[Any, np.dtype[np.float64]]:
    magnitude = np.abs(a)
    finite = magnitude[np.isfinite(magnitude)]
    top = float(finite.max(initial=0.0))
    # Huge elements (a mask of -1e9, or many of the largest number) must not raise the tolerance of ordinary ones.
    nonzero = finite[(finite > 0.0) & (finite < _EDGE * limits(dtype).top)]
    with np.errstate(over="ignore"):  # the median averages two numbers, whose sum may overflow
        typical = _RANGE_OVER_MEDIAN * float(np.median(nonzero)) if nonzero.size else 0.0
    tolerance, ulps = _RANGE_TOLERANCE[level].get(str(dtype), 0.0), _ULPS[level]
    if not tolerance:
        tolerance, ulps = _SMALL_FLOAT_TOLERANCE[level], _SMALL_FLOAT_ULPS[level]
    info = limits(dtype)
    return np.where(
        np.isfinite(a),
        # The factor is applied to each term: near the largest double their sum would be infinite, and allow anything.
        tolerance * min(top, typical) + tolerance * magnitude + ulps * (info.eps * magnitude + info.tiny),
        0.0,
    )


def _same_special(
    a: np.ndarray[Any, np.dtype[np.float64]], b: np.ndarray[Any, np.dtype[np.float64]], dtype: np.dtype[Any]
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where both are NaN or the same infinity, or one is infinite and the other near the type's largest number."""
    edge = _EDGE * limits(dtype).top
    with np.errstate(invalid="ignore"):
        overflow = (np.isinf(a) & (b * np.sign(a) >= edge)) | (np.isinf(b) & (a * np.sign(b) >= edge))
        return np.asarray((np.isnan(a) & np.isnan(b)) | (a == b) | overflow)


def _as_pairs(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(array).view(np.float64 if array.dtype == np.complex128 else np.float32)


def _same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    if a.dtype.kind in "OUS":
        return bool(np.array_equal(a, b))
    return not _differs_in_bits(a, b).any()


def _differs_in_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """True where the bits differ; all NaN count as equal."""
    bits = np.dtype(f"V{a.dtype.itemsize}") if a.dtype.itemsize > 8 else np.dtype(f"u{a.dtype.itemsize}")
    same = np.asarray(np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits))
    if is_float(a.dtype):
        same = same | (np.isnan(a) & np.isnan(b))
    return ~same.reshape(a.shape)


def _wrong(report: OutputReport, detail: str) -> OutputReport:
    return replace(report, status="mismatch", mismatches=report.elements, detail=detail)
