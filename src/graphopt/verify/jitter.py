"""The same inputs, changed in their last bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.verify.inputs import Feed
from graphopt.verify.values import Array, is_float, limits

_ULPS = 4.0
_MIX = np.uint64(0x9E3779B97F4A7C15)


def jittered(feed: Feed, number: int) -> Feed | None:
    """Move every float by a few ulps up or down; None when the feed holds no float.

    Equal values stay equal, so that ties stay ties: a result that breaks them in another way is wrong.
    """
    changed = {name: _change(value, number) for name, value in feed.items()}
    return changed if any(changed[n] is not feed[n] for n in feed) else None


def _change(value: Any, number: int) -> Any:
    if isinstance(value, list):
        moved = [_change(item, number) for item in value]
        return moved if any(a is not b for a, b in zip(moved, value, strict=True)) else value
    if not isinstance(value, np.ndarray) or not is_float(value.dtype) or value.dtype.itemsize < 2:
        return value
    return _move(value, number)


def _move(array: Array, number: int) -> Array:
    wide = array.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        mixed = (wide.view(np.uint64) if wide.ndim else wide.reshape(1).view(np.uint64)) * _MIX
        mixed = (mixed ^ (mixed >> np.uint64(29))) * (_MIX + np.uint64(2 * number + 2))
        sign = np.where((mixed >> np.uint64(40)) & np.uint64(1), 1.0, -1.0).reshape(array.shape)
        step = _ULPS * limits(array.dtype).eps * sign
        return np.asarray((wide * (1.0 + step)).astype(array.dtype))
