"""Mean and variance of each channel, propagated through a network in closed form.

BatchNorm statistics of a trained network match its activations. Random ones would not: after fifty layers the output
would be constant or infinite, and numeric comparisons would be meaningless. The assumption that all values are normal
and independent is rough, but keeps magnitudes near one throughout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

Vector = np.ndarray[Any, np.dtype[np.float64]]
_erf = np.vectorize(math.erf, otypes=[np.float64])


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and variance of the elements of each channel."""

    mean: Vector
    var: Vector

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.mean + other.mean, self.var + other.var)

    def through_conv(self, weight: np.ndarray[Any, Any], groups: int) -> Moments:
        """After a convolution without bias; `weight` is [out, in / groups, h, w]."""
        out, per_group = weight.shape[:2]
        w = weight.astype(np.float64)
        sums = w.sum(axis=(2, 3)).reshape(groups, out // groups, per_group)
        squares = (w**2).sum(axis=(2, 3)).reshape(groups, out // groups, per_group)
        mean, var = (v.reshape(groups, 1, per_group) for v in (self.mean, self.var))
        return Moments((sums * mean).sum(axis=2).reshape(out), (squares * var).sum(axis=2).reshape(out))

    def through_affine(self, scale: Vector, shift: Vector) -> Moments:
        """After `scale * x + shift`, channel by channel."""
        return Moments(scale * self.mean + shift, scale**2 * self.var)

    def through_clip(self, high: float = math.inf) -> Moments:
        """After max(x, 0), and min(x, high) if `high` is finite."""
        first, second = _rectified(self.mean, self.var)
        if math.isfinite(high):
            cut_first, cut_second = _rectified(self.mean - high, self.var)
            second = second - cut_second - 2.0 * high * cut_first
            first = first - cut_first
        return Moments(first, np.maximum(second - first**2, 1e-6))

    def through_max_pool(self) -> Moments:
        """After a pool of a few neighbours: the mean is about one standard deviation higher, the variance smaller."""
        return Moments(self.mean + np.sqrt(self.var), 0.6 * self.var)


def _rectified(mean: Vector, var: Vector) -> tuple[Vector, Vector]:
    """First and second moment of max(z, 0) for a normal z."""
    deviation = np.sqrt(var)
    ratio = mean / deviation
    density = np.exp(-0.5 * ratio**2) / math.sqrt(2.0 * math.pi)
    below = 0.5 * (1.0 + _erf(ratio / math.sqrt(2.0)))
    first = mean * below + deviation * density
    return first, (mean**2 + var) * below + mean * deviation * density
