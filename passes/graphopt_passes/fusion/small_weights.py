"""Weights that a scale would make so small that they lose digits, where what is around them makes up for it.

And weights so large that their sums overflow before a scale makes them small, or scales that make ordinary numbers
of sums that are next to nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators.affine import Affine
from graphopt.operators.linear import Linear
from graphopt.operators.rows import Rows, read_rows
from graphopt_passes.elimination.magnitude import refuse_magnified_after, refuse_magnified_before

_SMALL = 2.0**-10
"""A larger scale takes at most ten of its digits from a weight that is a normal number."""

_LARGE = 2.0**20
"""Scaled by more than this, the digits that a sum loses below the smallest normal number are some of a normal one."""

_CRUDE = 2.0**10
"""Below so many times the smallest number a weight keeps at most ten of its digits, or vanishes."""

_HALF = 2.0**-13
"""The largest weight of an output from which on halves have as many digits of it as of any number, or one less."""


def refuse_lost_digits(linear: Linear, affine: Affine, root: Node) -> None:
    """Decline where weights that matter would lose digits, scaled by what `root` does to the result of their operator.

    Those do not matter that may as well be zero (docs/adr/0015-negligible-weights.md): a bias is far above them, or
    nothing before or after them magnifies what it gets.
    """
    scale = affine.scale
    if scale is not None:
        check_scale(scale, linear.kernel)
    if scale is not None and _is_small(scale, linear.kernel):
        rows = read_rows(linear.node, 1)
        wide = _product(rows.array, rows.spread(scale.reshape(rows.bias.shape)))
        bias = affine.of_bias(linear.bias(), linear.channels)
        _refuse(linear, replace(rows, array=wide), rows.array.dtype, bias, root)


def refuse_lost_digits_before(linear: Linear, scale: np.ndarray[Any, Any]) -> None:
    """The same of weights that are scaled as the channels of the input of their operator are."""
    check_scale(scale, linear.kernel)
    if _is_small(scale, linear.kernel):
        rows = read_rows(linear.node, 1)
        if not float(np.abs(rows.array).max(initial=0.0)) <= _LARGE:
            raise Decline("the input loses digits before it meets weights above {:.2g}", _LARGE)
        wide = _product(linear.kernel.array(), linear.of_inputs(scale)).reshape(rows.array.shape)
        _refuse(linear, replace(rows, array=wide), rows.array.dtype, linear.bias(), linear.node)


def check_scale(scale: np.ndarray[Any, Any], weight: Value) -> None:
    """Decline a scale that makes ordinary numbers of what is next to nothing, or overflows where a product would not.

    A sum that is scaled afterwards has lost its digits below the smallest normal number then, and a large number that
    is scaled before it meets a small weight has become infinite; with the scale in the weights neither happens. Nor
    does a sum overflow then that a small scale makes small, or one of zero no number.
    """
    if not np.abs(scale).max(initial=0.0) <= _LARGE:
        raise Decline("a scale above {:.2g} magnifies what sums lose", _LARGE)
    if bool((np.abs(scale) < _SMALL).any()):
        _check_sums(weight.array())


def _is_small(scale: np.ndarray[Any, Any], weight: Value) -> bool:
    """Whether some of these numbers may make a weight lose digits; those of few networks do, but for halves."""
    least = 1.0 if weight.dtype == TensorProto.FLOAT16 else _SMALL
    return bool(((scale != 0) & (np.abs(scale) < least)).any())


def _product(array: np.ndarray[Any, Any], by: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Weights times numbers in float64; what is not zero stays so."""
    wide = array.astype(np.float64) * by
    wide[(wide == 0) & (array != 0) & (by != 0)] = np.finfo(np.float64).smallest_subnormal
    return np.asarray(wide)


def _check_sums(weights: np.ndarray[Any, Any]) -> None:
    """Decline where sums of products overflow before they are scaled, and would not afterwards."""
    with np.errstate(all="ignore"):
        square = np.vdot(weights, weights) if weights.dtype in (np.float32, np.float64) else 0
    if np.isinf(square):
        raise Decline("sums of products with the weights may overflow before they are scaled")


def _refuse(linear: Linear, rows: Rows, dtype: np.dtype[Any], bias: np.ndarray[Any, Any] | None, root: Node) -> None:
    """Decline where new weights, float64 `rows` to be of `dtype`, lose digits that matter beside the new bias."""
    if dtype == np.float16:
        _refuse_halves(rows)
    if dtype not in (np.float32, np.float64):
        return
    info = np.finfo(dtype)
    small = (np.abs(rows.array) < info.smallest_normal) & (rows.array != 0)
    least = np.maximum(np.abs(rows.array), float(info.smallest_subnormal))  # what a weight may be moved by
    lost, others = replace(rows, array=least).sums(small), rows.largest(small)
    added = np.abs(bias).reshape(lost.shape) if bias is not None else 0.0
    beside = float(info.eps) ** 2 * added
    counts = lost > beside
    if not counts.any():
        return
    refuse_magnified_before(linear.node, 1)
    summed = bool((others * float(info.eps) >= lost)[counts].all())
    refuse_magnified_after(root, float(lost[counts].max()), summed=summed)
    crude = np.abs(rows.array) < _CRUDE * float(info.smallest_subnormal)
    moved = replace(rows, array=np.full_like(least, info.smallest_subnormal)).sums(small & crude)
    if (moved > beside).any():  # by up to as much again: not to more than the smallest normal number
        before = refuse_magnified_before(linear.node, 1, 1 / float(info.eps))
        refuse_magnified_after(root, float(moved.max()), summed=summed, most=1 / float(info.eps) / before)


def _refuse_halves(rows: Rows) -> None:
    """Decline where all weights of an output are below the normal range of halves, which activations make up for."""
    largest = np.abs(rows.array).max(axis=(1, 3), initial=0)
    if ((largest > 0) & (largest < _HALF)).any():
        raise Decline("an output would have weights below {:.2g} alone, of which halves have fewer digits", _HALF)
