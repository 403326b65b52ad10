"""Whether kernels add products of unsigned bytes with signed ones exactly.

x86 without VNNI multiplies them in pairs, and adds each pair in 16 bits, where it saturates. Which products are
neighbours follows from the order in which kernels add them; `tests/passes/test_byte_sums.py` runs all of them at the
ends of what is allowed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from graphopt.rewrite import Dim, Node
from graphopt.system.machine import Target, has_vnni, host

_FIT = 128
"""Two products of unsigned bytes with signed ones fit into 16 bits while those add up to no more, and to no less than
its negative: 255 * 128 < 2**15 <= 255 * 129."""
_SAFE = _FIT // 2
"""No two weights up to this add up to more."""
_PACKED = 4
"""So many neighbours kernels load at once; two of them are a pair."""
_PAIRED = ("avx2",)
"""Targets on which it was seen that the pairs are the first two of these and the last two."""
_PIECE = 1 << 20
"""So many weights are looked at together, which bounds the memory that takes."""


def sums_bytes_exactly(
    weights: np.ndarray | None, target: Target, in_rows: Callable[[np.ndarray], np.ndarray] | None = None
) -> bool:  # fmt: skip
    """Whether kernels add products of unsigned bytes with signed ones without overflow; of any machine but x86 they do.

    Args:
        weights: the signed ones; None where these are computed.
        target: what the kernels are for.
        in_rows: arranges them as kernels add them along the last axis; None where they are so already.
    """
    if not target.is_x86 or (target == host() and has_vnni()):
        return True
    if weights is None:
        return False
    if weights.size == 0 or max(int(weights.max()), -int(weights.min())) <= _SAFE:
        return True
    rows = weights if in_rows is None else in_rows(weights)
    flat = rows.reshape(-1, rows.shape[-1])
    step = max(_PIECE // flat.shape[1], 1)
    size = 2 if target.name in _PAIRED else _PACKED
    return all(_pairs_fit(flat[at : at + step], size) for at in range(0, len(flat), step))


def _pairs_fit(rows: np.ndarray, size: int) -> bool:
    """Whether any two of so many neighbours fit, starting with the first of each row."""
    missing = -rows.shape[1] % size
    packed = np.pad(rows.astype(np.int16), ((0, 0), (0, missing))).reshape(len(rows), -1, size)
    packed.sort(axis=-1)
    greatest, least = np.maximum(packed[..., -2:], 0), np.minimum(packed[..., :2], 0)
    return bool(greatest.sum(-1).max() <= _FIT and least.sum(-1).min() >= -_FIT)


def window_rows(weights: np.ndarray) -> np.ndarray:
    """Weights of a convolution as its kernels add them: all channels of a place of the window, then those of the next.

    They do so whether channels are last or second, since these are brought to the end first.
    """
    last = np.moveaxis(weights, 1, -1)
    return last.reshape(len(last), prod(last.shape[1:]))


def rows_of(op: Node, weights: np.ndarray) -> np.ndarray:
    """Weights of a convolution or a product as kernels add them along the last axis."""
    if "Conv" in op.op_type:
        return window_rows(np.swapaxes(weights, 0, 1) if op.op == "ConvTranspose" else weights)
    if op.attr("transB", 0) or weights.ndim < 2:
        return weights
    return np.swapaxes(weights, -2, -1)


def is_depthwise(group: int, shape: Sequence[Dim | None] | None) -> bool:
    """Whether each channel of a convolution with weights of this shape has one of its own, added up in 32 bits."""
    return shape is not None and len(shape) > 2 and shape[1] == 1 and shape[0] == group
