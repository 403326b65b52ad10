"""Whether kernels sum products of unsigned and signed bytes exactly.

x86 without VNNI adds pairs of products in 16 bits, with saturation. Which products form a pair follows from the order
in which kernels sum them; `tests/passes/test_byte_sums.py` runs all of them at the limits of what is allowed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from graphopt.rewrite import Decline, Dim, Node
from graphopt.system.machine import Target, has_vnni, host

_FIT = 128
"""Two products of unsigned with signed bytes fit into 16 bits if the sum of the signed ones is at most this in absolute
value: 255 * 128 < 2**15 <= 255 * 129."""
_SAFE = _FIT // 2
"""No two weights up to this have a larger sum than `_FIT`."""
_PACKED = 4
"""How many neighbouring weights kernels load at once; two of them are a pair."""
_PAIRED = ("avx2",)
"""Targets on which the pairs were observed to be the first two and the last two of these."""
_PIECE = 1 << 20
"""How many weights are examined at once, which bounds the memory for that."""


def sums_bytes_exactly(
    weights: np.ndarray | None, target: Target, in_rows: Callable[[np.ndarray], np.ndarray] | None = None
) -> bool:  # fmt: skip
    """Whether kernels sum products of unsigned and signed bytes without overflow; on all machines but x86 they do.

    Args:
        weights: the signed bytes; None if they are computed.
        target: the machine that runs the kernels.
        in_rows: arranges the weights so that kernels sum along the last axis; None if they are so already.
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
    """Whether any two weights fit of each `size` neighbours, counted from the start of each row."""
    missing = -rows.shape[1] % size
    packed = np.pad(rows.astype(np.int16), ((0, 0), (0, missing))).reshape(len(rows), -1, size)
    packed.sort(axis=-1)
    greatest, least = np.maximum(packed[..., -2:], 0), np.minimum(packed[..., :2], 0)
    return bool(greatest.sum(-1).max() <= _FIT and least.sum(-1).min() >= -_FIT)


def window_rows(weights: np.ndarray) -> np.ndarray:
    """Weights of a convolution in the order that kernels sum them: all channels of a window position, then the next.

    This holds with channels first, too, since kernels move the channels to the last axis first.
    """
    last = np.moveaxis(weights, 1, -1)
    return last.reshape(len(last), prod(last.shape[1:]))


def rows_of(op: Node, weights: np.ndarray) -> np.ndarray:
    """Weights of a convolution or matrix product, arranged so that kernels sum along the last axis."""
    if "Conv" in op.op_type:
        if weights.ndim < 2:
            raise Decline("the weights of {} have {} axes", op.result.name, weights.ndim)
        return window_rows(np.swapaxes(weights, 0, 1) if op.op == "ConvTranspose" else weights)
    if op.attr("transB", 0) or weights.ndim < 2:
        return weights
    return np.swapaxes(weights, -2, -1)


def is_depthwise(group: int, shape: Sequence[Dim | None] | None) -> bool:
    """Whether a convolution with weights of this shape is depthwise with one output per channel, summed in 32 bits."""
    return shape is not None and len(shape) > 2 and shape[1] == 1 and shape[0] == group
