"""Batch normalization with constant statistics, as the scale and the shift of each channel that it is."""

from __future__ import annotations

import numpy as np

from graphopt.ir import Node
from graphopt.rewrite import Mismatch

Affine = tuple[np.ndarray, np.ndarray]
"""Scale and shift of each channel, in float64."""


def read_batchnorm(node: Node) -> Affine | Mismatch:
    """The scale and shift of a `BatchNormalization`, or why it is not that.

    Covers every opset form: `is_test` up to 6, `spatial` up to 8, `training_mode` from 14. Before opset 14 more than
    one output means that statistics are computed from the batch.
    """
    opset = node.graph.opset()
    if opset < 7 and not node.attr("is_test", 0):
        return Mismatch("is_test is not set: the statistics come from the batch")
    if opset < 9 and not node.attr("spatial", 1):
        return Mismatch("spatial is 0: every position has its own statistics")
    if node.attr("training_mode", 0):
        return Mismatch("training_mode is set: the statistics come from the batch")
    if any(value is not None for value in node.outputs[1:]):
        return Mismatch("{} puts out statistics", node.name or "the normalization")
    rows = []
    for value in node.inputs[1:5]:
        array = value.const() if value is not None else None
        if value is None or array is None:
            return Mismatch("{} is not constant", value.name if value is not None else "a statistic")
        rows.append(array.astype(np.float64))
    scale, shift, mean, variance = rows
    if any(row.ndim != 1 or row.shape != scale.shape for row in rows):
        return Mismatch("the statistics have no one number per channel")
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + np.float64(np.float32(node.attr("epsilon"))))
        offset = shift - mean * factor
    if not (np.isfinite(factor).all() and np.isfinite(offset).all()):
        return Mismatch("the statistics give infinities or NaN")
    return factor, offset
