"""Medians with confidence intervals, and ties."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

TIE = 0.03
"""Two times are a tie if their ratio differs from one by at most this much."""

Verdict = Literal["faster", "tie", "slower"]


@dataclass(frozen=True, slots=True)
class Spread:
    """A sample summarized by its median and an interval.

    Attributes:
        median: its median.
        low: lower end of the 99 % confidence interval of the median.
        high: upper end.
        rounds: size of the sample.
    """

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, sample: Sequence[float]) -> Spread:
        """The spread of a nonempty sample.

        The interval is between two order statistics, which assumes nothing of the distribution. Below eight values no
        such interval reaches 99 %: then it is the whole range.
        """
        values = sorted(sample)
        count = len(values)
        middle = count // 2
        median = values[middle] if count % 2 else (values[middle - 1] + values[middle]) / 2
        half = 1.288 * math.sqrt(count)
        low = max(0, math.floor(count / 2 - half) - 1) if count > 7 else 0
        high = min(count - 1, math.ceil(count / 2 + half)) if count > 7 else count - 1
        return cls(median, values[low], values[high], count)

    @property
    def uncertainty(self) -> float:
        """Half the width of the interval, relative to the median; infinite for a single value, which has none."""
        if self.rounds < 2:
            return math.inf
        return (self.high - self.low) / 2 / self.median if self.median else 0.0

    def verdict(self) -> Verdict:
        """The verdict of a spread of speed-ups: a tie within 3 %, or if the interval contains 1.

        A single value has no interval, and is a tie.
        """
        if self.rounds < 2 or abs(self.median - 1.0) <= TIE or self.low <= 1.0 <= self.high:
            return "tie"
        return "faster" if self.median > 1.0 else "slower"

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def speedups(base: Sequence[float], own: Sequence[float]) -> Spread:
    """The speed-up of `own` over `base`, round by round."""
    return Spread.of([b / o for b, o in zip(base, own, strict=True)])
