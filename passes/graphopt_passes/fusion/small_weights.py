"""Scales that must not be folded into weights, since that changes what underflows or overflows.

A scaled weight may become denormal and lose digits, which other operators magnify again. Sums of products with large
weights may overflow before a small scale, and a large scale magnifies denormal sums, which have lost digits.
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
"""A larger scale costs a weight that is a normal number at most ten bits."""

_LARGE = 2.0**20
"""A larger scale makes the bits that a denormal sum has lost visible in a normal number."""

_CRUDE = 2.0**10
"""A weight below this many times the smallest denormal number keeps at most ten bits, or becomes zero."""

_HALF = 2.0**-13
"""If the largest weight of an output is at least this, float16 holds it with all bits, or one less."""


def refuse_lost_digits(linear: Linear, affine: Affine, root: Node) -> None:
    """Decline if weights that matter would lose digits when scaled by the `affine` that `root` applies to the result.

    Weights that may as well be zero do not matter (docs/adr/0015-negligible-weights.md): a bias is far larger than
    their products, or no operator before or after them magnifies its operand.
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
    """Decline if weights that matter would lose digits when scaled by the scale of the input channels."""
    check_scale(scale, linear.kernel)
    if _is_small(scale, linear.kernel):
        rows = read_rows(linear.node, 1)
        if not float(np.abs(rows.array).max(initial=0.0)) <= _LARGE:
            raise Decline("the input loses precision before it is multiplied by weights above {:.2g}", _LARGE)
        wide = _product(linear.kernel.array(), linear.of_inputs(scale)).reshape(rows.array.shape)
        _refuse(linear, replace(rows, array=wide), rows.array.dtype, linear.bias(), linear.node)


def check_scale(scale: np.ndarray[Any, Any], weight: Value) -> None:
    """Decline a scale that changes what underflows or overflows when it is folded into the weights.

    With a large scale, a denormal sum that is scaled afterwards has lost digits, and a large input that is scaled
    before its product with a small weight is infinite; scaled weights avoid both. With a small scale, they avoid the
    overflow of a sum before it is scaled, which a scale of zero turns into NaN.
    """
    if not np.abs(scale).max(initial=0.0) <= _LARGE:
        raise Decline("a scale above {:.2g} amplifies the rounding errors of sums", _LARGE)
    if bool((np.abs(scale) < _SMALL).any()):
        _check_sums(weight.array())


def _is_small(scale: np.ndarray[Any, Any], weight: Value) -> bool:
    """Whether a scale may make a weight lose digits; scales of few networks do, except in float16."""
    least = 1.0 if weight.dtype == TensorProto.FLOAT16 else _SMALL
    return bool(((scale != 0) & (np.abs(scale) < least)).any())


def _product(array: np.ndarray[Any, Any], by: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Weights times factors in float64; a product of nonzero numbers is not zero."""
    wide = array.astype(np.float64) * by
    wide[(wide == 0) & (array != 0) & (by != 0)] = np.finfo(np.float64).smallest_subnormal
    return np.asarray(wide)


def _check_sums(weights: np.ndarray[Any, Any]) -> None:
    """Decline if sums of products may overflow before they are scaled, but not with scaled weights."""
    with np.errstate(all="ignore"):
        square = np.vdot(weights, weights) if weights.dtype in (np.float32, np.float64) else 0
    if np.isinf(square):
        raise Decline("sums of products with the weights may overflow before they are scaled")


def _refuse(linear: Linear, rows: Rows, dtype: np.dtype[Any], bias: np.ndarray[Any, Any] | None, root: Node) -> None:
    """Decline if new weights, float64 `rows` to be stored as `dtype`, lose digits that matter beside the new bias."""
    if dtype == np.float16:
        _refuse_halves(rows)
    if dtype not in (np.float32, np.float64):
        return
    info = np.finfo(dtype)
    small = (np.abs(rows.array) < info.smallest_normal) & (rows.array != 0)
    least = np.maximum(np.abs(rows.array), float(info.smallest_subnormal))  # bounds the rounding error of each weight
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
    if (moved > beside).any():  # errors as large as the weights: magnified to about the smallest normal number at most
        before = refuse_magnified_before(linear.node, 1, 1 / float(info.eps))
        refuse_magnified_after(root, float(moved.max()), summed=summed, most=1 / float(info.eps) / before)


def _refuse_halves(rows: Rows) -> None:
    """Decline if all weights of an output are below the normal range of float16, so that activations must be large."""
    largest = np.abs(rows.array).max(axis=(1, 3), initial=0)
    if ((largest > 0) & (largest < _HALF)).any():
        raise Decline("all weights of an output would be below {:.2g}, where float16 is less precise", _HALF)
