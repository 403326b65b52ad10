"""Which element types hold every number of another one, by the numbers themselves."""

from __future__ import annotations

import math
from itertools import permutations

import ml_dtypes
import numpy as np
from onnx import TensorProto as T

from graphopt.ir.numpy_types import numpy_type
from graphopt.ir.types import FLOAT_TYPES, NUMBER_TYPES
from graphopt_passes.fusion.casts import holds_all


def edges(dtype: int) -> list[int | float]:
    """The numbers of a type that another one may not hold: the ends, and those with the most digits."""
    kind = numpy_type(dtype)
    if dtype == T.BOOL:
        return [0, 1]
    if dtype in FLOAT_TYPES:
        info = ml_dtypes.finfo(kind)
        return [float(info.max), float(info.smallest_subnormal), 1 + float(info.eps)]
    info = np.iinfo(kind)
    return [int(info.min), int(info.max), int(info.max) - 1]


def holds(dtype: int, number: int | float) -> bool:
    kind = numpy_type(dtype)
    if dtype == T.BOOL:
        return number in (0, 1)
    if dtype in FLOAT_TYPES:
        with np.errstate(all="ignore"):
            there = float(np.array(float(number)).astype(kind))
        return math.isfinite(there) and (int(there) if isinstance(number, int) else there) == number
    return isinstance(number, int) and np.iinfo(kind).min <= number <= np.iinfo(kind).max


def test_a_type_holds_another_one_when_it_holds_its_edges() -> None:
    for wide, narrow in permutations(sorted(NUMBER_TYPES | FLOAT_TYPES), 2):
        expected = all(holds(wide, number) for number in edges(narrow))
        assert holds_all(wide, narrow) == expected, (T.DataType.Name(wide), T.DataType.Name(narrow))
