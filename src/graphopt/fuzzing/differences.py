"""Where the outputs of two models differ by more than a numerics level allows."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.verify.numerics import compare_arrays
from graphopt.verify.structure import leaves


def first_difference(old: list[Any], new: list[Any], numerics: str) -> str | None:
    """A description of the first difference that exceeds a numerics level; None if there is none."""
    if len(old) != len(new):
        return f"{len(old)} outputs are {len(new)}"
    for number, (one, other) in enumerate(zip(old, new, strict=True)):
        if _is_same(one, other):
            continue
        before, after = leaves(one), leaves(other)
        if [path for path, _ in before] != [path for path, _ in after]:
            return f"output {number} has other parts"
        for (path, a), (_, b) in zip(before, after, strict=True):
            report = compare_arrays(f"{number}{path}", a, b, numerics)
            if report.status == "mismatch":
                return f"output {number}{path}: {report.detail}"
    return None


def _is_same(one: Any, other: Any) -> bool:
    """Whether two outputs are bitwise equal arrays: most are, and need no report."""
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray) or one.dtype.hasobject:
        return False
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def type_of(output: Any) -> Any:
    """The element type of an array; None for anything else."""
    return output.dtype if isinstance(output, np.ndarray) else None


def apart(old: list[Any], new: list[Any], numerics: str = "rounding") -> list[tuple[Any, Any]]:
    """The outputs that differ by more than a numerics level allows."""
    pairs = zip(old, new, strict=True)
    return [(a, b) for a, b in pairs if first_difference([a], [b], numerics) is not None]
