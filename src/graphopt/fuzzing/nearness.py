"""Whether outputs are as near to those computed in float64 as the original's outputs are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from graphopt.fuzzing.differences import apart, first_difference, type_of
from graphopt.fuzzing.doubles import narrowed, outputs_in_doubles
from graphopt.fuzzing.usual import values_of
from graphopt.verify.values import Array, is_float, limits


def is_nearer(model: onnx.ModelProto, feed: dict[str, Array], old: list[Any], new: list[Any], numerics: str) -> bool:
    """Whether each element equals the original in float64, or is no farther from it than the original itself.

    Or whether they differ only where the original overflows float32. If the original rounds denormal numbers, no
    farther than any of its elements is enough.
    """
    found = outputs_in_doubles(model, feed)
    if found is None or len(found) != len(old):
        return False
    wide = [a if type_of(a) != type_of(narrowed(b)) else b for a, b in zip(old, found, strict=True)]
    # Equal outputs are not compared with the evaluator, which deviates, for example on integers.
    left = [each for each in zip(old, new, wide, strict=True) if apart([each[0]], [each[1]], numerics)]
    old, new, wide = ([each[at] for each in left] for at in range(3))
    if first_difference(without_overflow(old, new, wide), new, numerics) is None:
        return True
    exact = [_typed_like(a, b) for a, b in zip(old, wide, strict=True)]
    if first_difference(exact, no_farther(old, new, exact), numerics) is None:
        return True
    near = no_farther(old, new, exact, anywhere=True)
    return first_difference(exact, near, numerics) is None and rounds_denormals(model, feed)


def _typed_like(old: Any, wide: Any) -> Any:
    """Outputs in float64, rounded to float32 where those of the original are, in sequences too."""
    if isinstance(old, list) and isinstance(wide, list) and len(old) == len(wide):
        return [_typed_like(a, b) for a, b in zip(old, wide, strict=True)]
    return wide if type_of(wide) == type_of(old) else narrowed(wide)


def without_overflow(old: Sequence[Any], new: Sequence[Any], wide: Sequence[Any]) -> list[Any]:
    """The outputs of an original, replaced where a value exceeded the range of float32, but not of float64.

    Where that is an intermediate value, by the float64 outputs. Where it is the output itself, any infinity or NaN will
    do: which of them it is depends on the order of operations.
    """
    return [_where(_overflowed, a, (a, b, _in_range(b, c))) for a, b, c in zip(old, new, wide, strict=False)]


def no_farther(old: Sequence[Any], new: Sequence[Any], exact: Sequence[Any], *, anywhere: bool = False) -> list[Any]:
    """The outputs of a result, replaced by the float64 ones where it is at least as close to them as the original.

    As close as the same element of the original, or as its farthest element `anywhere` in that output.
    """
    near = _within_farthest if anywhere else _as_near
    leaves = zip(old, new, exact, strict=False)
    return [_where(near, b, (a, b, c)) for a, b, c in leaves]


def _in_range(new: Any, wide: Any) -> Any:
    """Float64 outputs, replaced by a result that is not finite either where they exceed its range."""
    if not isinstance(new, np.ndarray) or not isinstance(wide, np.ndarray) or not is_float(new.dtype):
        return wide
    with np.errstate(over="ignore"):
        beyond = np.isfinite(wide) & ~np.isfinite(wide.astype(new.dtype))
    return np.where(beyond & ~np.isfinite(new), new, wide) if new.shape == wide.shape else wide


def _overflowed(old: Array, new: Array, exact: Array) -> Array:
    return np.asarray(~np.isfinite(old) & ((np.isfinite(new) & np.isfinite(exact)) | _is_same(new, exact)))


def _is_same(one: Array, other: Array) -> Array:
    return np.asarray((one == other) | (np.isnan(one) & np.isnan(other)))


def _as_near(old: Array, new: Array, exact: Array) -> Array:
    with np.errstate(invalid="ignore"):
        near = np.abs(new.astype(np.float64) - exact) <= np.abs(old.astype(np.float64) - exact)
    return np.asarray(_is_same(old, new) | near)  # the evaluator may compute NaN differently as well


def _within_farthest(old: Array, new: Array, exact: Array) -> Array:
    with np.errstate(invalid="ignore"):
        far, off = (np.abs(each.astype(np.float64) - exact) for each in (old, new))
    return np.asarray(_as_near(old, new, exact) | (off <= far[np.isfinite(far)].max(initial=0.0)))


def rounds_denormals(model: onnx.ModelProto, feed: dict[str, Array]) -> bool:
    """Whether an intermediate float is denormal: it is rounded by a fixed step, which later operators may magnify."""
    names = [name for node in model.graph.node for name in node.output if name]
    found = values_of(model, feed, list(dict.fromkeys(names))) or {}
    floats = [each for each in found.values() if isinstance(each, np.ndarray) and each.dtype.kind == "f"]
    return any(((each != 0) & (np.abs(each) < limits(each.dtype).tiny)).any() for each in floats)


def _where(chosen: Callable[[Array, Array, Array], Array], other: Any, leaves: tuple[Any, Any, Any]) -> Any:
    """The float64 output where a condition holds, else another output; only that one unless all are floats."""
    for leaf in leaves:
        if not isinstance(leaf, np.ndarray) or not is_float(leaf.dtype) or leaf.shape != other.shape:
            return other
    with np.errstate(over="ignore"):
        return np.where(chosen(*leaves), leaves[2].astype(other.dtype), other)
