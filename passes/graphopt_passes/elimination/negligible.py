"""Negligible weights: denormals, and weights whose products are denormal."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from graphopt.ir import ZEROED_KEY, Graph, Node, Tensor, Value
from graphopt.operators.layer import LAYERS, LinearLayer
from graphopt.operators.rows import WEIGHED, Rows, read_rows
from graphopt.rewrite import Decline, GraphPass, Numerics, Rewriter
from graphopt_passes.elimination.magnitude import refuse_magnified_after, refuse_magnified_before

SAMPLED = 1 << 22
"""External weights are read in full up to this many bytes, and above that only if a sample has a negligible one."""


@lru_cache
def threshold(dtype: np.dtype[Any]) -> float:
    """Weights below this are negligible: products with activations as small as the machine epsilon are denormal."""
    info = np.finfo(dtype)
    return float(info.smallest_normal) / float(info.eps)


def has_negligible(value: Value | None, most_read: int | None = None) -> bool:
    """Whether a float or double constant has a negligible element; beyond `most_read` external bytes, in a sample."""
    tensor = value.constant_tensor if value is not None else None
    return tensor is not None and bool(tensor.figure(("negligible", most_read), lambda: _reaches(tensor, most_read)))


def _reaches(tensor: Tensor, most_read: int | None) -> bool:
    least = tensor.least(most_read)
    return least is not None and float(least) < threshold(least.dtype)


class EliminateNegligibleWeights(GraphPass):
    """Set weights to zero that are so small that they cannot matter, in particular denormals.

    Batch normalization folded into convolutions, and training, leave weights that are denormal, or so small that their
    products with ordinary activations are. Many processors take a hundred times as long for each. Constant float and
    double weights of `Conv`, `ConvTranspose`, `Gemm` and `MatMul`, and scales of `BatchNormalization`, are set to zero
    if their magnitude is below (smallest normal number) / (machine epsilon): 9.9e-32 for float, 1e-292 for double.

    An output changes by at most (sum of the magnitudes of the weights removed from its row) * (largest magnitude of the
    input). In addition to that absolute bound, one of two conditions must hold. Either the sum is at most epsilon^2
    (1.4e-14 for float) times the bias of that output. Or no later operator magnifies the change: up to where constants
    larger by that ratio are added, or the main graph ends, the product of the constants that multiply it stays below
    1 / epsilon^2; no operator on the path distinguishes zero from nearly zero, since all activations of the row's
    larger weights may be zero; and unknown operators are allowed only if larger weights stay in the row. The
    activations before the operator must not have been magnified by more than 1 / epsilon^2 either.

    A negligible bias is removed if all weights of its output are zero, since the output then equals the bias, and its
    readers multiply with it; beside ordinary weights it costs nothing, and stays.

    An infinite activation times a removed weight gives NaN instead of an infinity, as it does when the runtime flushes
    denormals to zero (docs/adr/0015-negligible-weights.md). Finite results and NaN are as before, within the bound. The
    model's metadata says how many weights were removed.
    """

    ops = tuple(WEIGHED)
    numerics = Numerics.ROUNDING
    finite = True
    late = True

    def run(self, graph: Graph, rw: Rewriter) -> None:
        for node in graph.listed():
            if node.op not in WEIGHED:
                continue
            for index in WEIGHED[node.op]:
                if has_negligible(node.input(index), SAMPLED):
                    with rw.attempt(node):
                        _eliminate(node, index, rw)
            if node.op in LAYERS and has_negligible(node.input(2)):
                with rw.attempt(node):
                    _eliminate_bias(node, rw)


def _eliminate(node: Node, index: int, rw: Rewriter) -> None:
    """Set the negligible weights at an input of an operator to zero; declines if none may be removed."""
    weight = node.operand(index)
    if weight.is_output or any(user.op not in WEIGHED for user in weight.users):
        raise Decline("{} has other readers", weight.name)
    rows = read_rows(node, index)
    removed = (np.abs(rows.array) < threshold(rows.array.dtype)) & (rows.array != 0)
    removed &= rows.spread(_steady(node, index, rows, removed))
    count = int(np.count_nonzero(removed))
    bound = float(rows.sums(removed).max())
    array = np.where(removed, rows.array.dtype.type(0), rows.array).reshape(weight.array().shape)
    detail = f"{count} negligible weights of {weight.name}; no output changes by more than {bound:.2g} of an input"
    rw.set_input(node, index, rw.constant(array, like=weight), detail)
    _note(rw, count, bound)


def _eliminate_bias(node: Node, rw: Rewriter) -> None:
    """Set the negligible biases of an operator to zero for outputs whose weights are all zero."""
    shift, layer = node.operand(2), LinearLayer.of(node)
    array, added = shift.array(), layer.bias()
    removed = layer.dead() & (added != 0) & (np.abs(added) < threshold(array.dtype))
    if not removed.any() or array.size != layer.channels:
        raise Decline
    bound = float(np.abs(added[removed]).max())
    refuse_magnified_after(node, bound, summed=False, factor=abs(float(node.attr("beta", 1.0))))
    left = np.where(removed.reshape(array.shape), array.dtype.type(0), array)
    count = int(np.count_nonzero(removed))
    detail = f"{count} negligible biases of {shift.name}; no output changes by more than {bound:.2g}"
    rw.set_input(node, 2, rw.constant(left, like=shift), detail)
    _note(rw, count, bound)


def _note(rw: Rewriter, count: int, bound: float) -> None:
    """Record the number of weights and the error bound in the last event, and the total number in the model."""
    rw.amend(zeroed=count, bound=bound)
    rw.add_to_metadata(ZEROED_KEY, count)


def _steady(node: Node, index: int, rows: Rows, removed: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The outputs whose weights may be removed: their bias is far larger, or no reader magnifies the change.

    Declines if no output remains from which weights would be removed.
    """
    refuse_magnified_before(node, index)
    square = float(np.finfo(rows.array.dtype).eps) ** 2
    lost = rows.sums(removed)
    below = lost <= square * rows.bias
    for outputs, summed in ((below | (lost <= square * rows.largest(removed)), True), (np.ones_like(below), False)):
        rest = lost[outputs & ~below]
        try:
            if rest.size:
                refuse_magnified_after(node, float(rest.max()), summed=summed, factor=float(rows.scale.max()))
        except Decline:
            if not lost[below].any():
                raise
            break
        below = below | outputs
    return below
