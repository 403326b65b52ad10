"""Random choices: sizes, element types and numbers, biased towards those that optimizers get wrong."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from graphopt.verify.values import Array, is_float, limits

SIZES = (1, 1, 2, 2, 3, 3, 4, 5, 6, 8)
"""Sizes of axes; 0 and larger ones are drawn separately, since a graph of empty tensors only reveals little."""

_WORDS = ("", "a", "b", "-1.5", "7", "nan", "grün", "a b", "A")
_NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -2.5, 3.0, 6.0, 4.0, 0.25)
_FEW = 12
_POOLED = 1 << 14
"""Numbers of one type that are drawn once; arrays are cut from them, in a tenth of the time."""
_ODD_INTS = (0, 1, -1, 2, 3, -3, 7, 8, 16, 127, 128, 255)


class Draw:
    """Random choices; equal seeds give equal choices on every machine.

    Args:
        seed: the seed of all choices.
    """

    def __init__(self, seed: object) -> None:
        self.rng = random.Random(str(seed))

    def chance(self, part: float) -> bool:
        """True with this probability."""
        return self.rng.random() < part

    def one(self, choices: Sequence[Any]) -> Any:
        """One of several choices."""
        return self.rng.choice(choices)

    def between(self, low: int, high: int) -> int:
        """An integer in a range, both ends included."""
        return self.rng.randint(low, high)

    def some(self, choices: Sequence[Any], least: int = 0) -> list[Any]:
        """Some of several choices, in any order."""
        return self.rng.sample(list(choices), self.between(min(least, len(choices)), len(choices)))

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """A shape of few elements; sometimes of rank 0 or with empty axes."""
        count = self.one((0, 1, 1, 2, 2, 3, 3, 4, 4)) if rank is None else rank
        shape = [self.one(SIZES) for _ in range(count)]
        while np.prod(shape, dtype=np.int64) > 300:
            shape[self.rng.randrange(count)] = self.one((1, 2))
        if shape and self.chance(0.04):
            shape[self.rng.randrange(count)] = 0
        return tuple(shape)

    def array(self, dtype: np.dtype[Any], shape: Sequence[int], *, special: bool = False) -> Array:
        """Random elements of a type.

        Args:
            dtype: the element type, NumPy's or one of ml_dtypes.
            shape: the shape.
            special: whether NaN, infinities, denormals and the ends of the range are among them.
        """
        count = math.prod(shape)
        uniform = count > 0 and self.chance(0.12)
        if not uniform and count > _FEW and dtype.kind not in "OSUbc":
            pool = _pool(dtype, special)
            return np.resize(pool[self.rng.randrange(len(pool) - min(count, len(pool) // 2)) :], shape)
        drawn = [self.number(dtype, special=special)] * count if uniform else self._numbers(dtype, count, special)
        if dtype.kind in "OSU":
            return np.array(drawn, object).reshape(shape)
        with np.errstate(all="ignore"):
            return np.array(drawn).astype(dtype).reshape(shape)

    def _numbers(self, dtype: np.dtype[Any], count: int, special: bool) -> Any:
        """Many numbers, drawn one by one if there are few."""
        if count <= _FEW or dtype.kind in "OSUbc":
            return [self.number(dtype, special=special) for _ in range(count)]
        rng = np.random.default_rng(self.rng.getrandbits(63))
        if is_float(dtype):
            values = rng.integers(-400, 401, count) / 128
            parts = (0.3, _NUMBERS), (0.1, self._special(dtype) if special else ())
            return _mixed(rng, values, parts)
        low, high = _ends(dtype)
        ends = (low, high, low + 1, high - 1, high // 2) if special else ()
        mixed = _mixed(rng, rng.integers(-4, 5, count).astype(object), ((0.3, _ODD_INTS), (0.3, ends)))
        return np.clip(mixed, low, high)

    def number(self, dtype: np.dtype[Any], *, special: bool = False) -> Any:
        """One number of a type, as a Python object."""
        if dtype.kind in "OSU":
            return self.one(_WORDS)
        if dtype.kind == "b":
            return self.chance(0.5)
        if dtype.kind == "c":
            return complex(self.between(-4, 4), self.between(-4, 4))
        if is_float(dtype):
            return self._float(dtype, special)
        low, high = _ends(dtype)
        if special and self.chance(0.3):
            return self.one((low, high, low + 1, high - 1, high // 2))
        chosen = self.one(_ODD_INTS) if self.chance(0.3) else self.between(-4, 4)
        return min(max(chosen, low), high)

    def _float(self, dtype: np.dtype[Any], special: bool) -> float:
        if special and self.chance(0.25):
            return float(self.one(self._special(dtype)))
        if self.chance(0.3):
            return float(self.one(_NUMBERS))
        return self.between(-400, 400) / 128

    @staticmethod
    def _special(dtype: np.dtype[Any]) -> tuple[float, ...]:
        tiny = limits(dtype).tiny
        return (np.nan, np.inf, -np.inf, 0.0, -0.0, tiny / 4, -tiny / 4, tiny)


@lru_cache(maxsize=64)
def _pool(dtype: np.dtype[Any], special: bool) -> Array:
    """Numbers of a type, to cut arrays from."""
    drawn = Draw(f"pool of {dtype}")._numbers(dtype, _POOLED, special)
    with np.errstate(all="ignore"):
        return np.array(drawn).astype(dtype)


@lru_cache(maxsize=32)
def _ends(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The range of an integer type."""
    info: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]  # not annotated
    return int(info.min), int(info.max)


def _mixed(rng: np.random.Generator, values: Any, parts: Sequence[tuple[float, Sequence[Any]]]) -> Any:
    """Values some fractions of which are replaced with numbers from given lists."""
    for part, numbers in parts:
        if len(numbers):
            values = np.where(
                rng.random(len(values)) < part, rng.choice(np.array(numbers, values.dtype), len(values)), values
            )
    return values
