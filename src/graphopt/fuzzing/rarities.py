"""Operators whose operands must match closely: makers of the first operand and of the others that match it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphopt.fuzzing.drawing import Draw
from graphopt.fuzzing.makers import Maker, either, sometimes
from graphopt.verify.values import Array


def _floats(*shape: int) -> Callable[[Draw], Array]:
    return lambda draw: draw.array(np.dtype(np.float32), shape)


def _given(value: Any, dtype: Any) -> Maker:
    return lambda _: np.array(value, dtype)


FIRST: Mapping[str, Callable[[Draw], Array]] = {
    "ConstantOfShape": lambda draw: np.array([draw.one((1, 2, 3)) for _ in range(draw.between(0, 3))], np.int64),
    "Range": lambda draw: np.array(draw.between(-2, 3), draw.one((np.int64, np.float32, np.int32))),
    "AffineGrid": _floats(2, 2, 3), "Col2Im": _floats(1, 8, 4), "RoiAlign": _floats(1, 2, 6, 6),
    "MaxRoiPool": _floats(1, 2, 6, 6), "NonMaxSuppression": _floats(1, 4, 4), "RotaryEmbedding": _floats(1, 2, 3, 4),
    "SoftmaxCrossEntropyLoss": _floats(2, 3, 4), "NegativeLogLikelihoodLoss": _floats(2, 3, 4),
    "STFT": _floats(1, 16, 1), "DeformConv": _floats(1, 1, 3, 3), "Attention": _floats(1, 2, 3, 4),
    "MaxUnpool": _floats(1, 1, 2, 2), "MelWeightMatrix": lambda draw: np.array(draw.one((2, 4)), np.int64),
    "TfIdfVectorizer": lambda draw: np.array([draw.between(0, 4) for _ in range(6)], np.int64),
    "RegexFullMatch": lambda draw: np.array([draw.one(("a", "b1", "")) for _ in range(3)], object),
}  # fmt: skip
"""Makers of the first operand, for operators that values of a graph seldom suit."""

RARE: Mapping[tuple[str, str], Maker] = {
    ("AffineGrid", "size"): _given([2, 1, 3, 4], np.int64), ("Col2Im", "image_shape"): _given([3, 3], np.int64),
    ("Col2Im", "block_shape"): _given([2, 2], np.int64), ("Col2Im", "pads"): lambda _: None,
    ("Col2Im", "strides"): lambda _: None, ("Col2Im", "dilations"): lambda _: None,
    ("RoiAlign", "rois"): _given([[0, 0, 3, 3], [1, 1, 5, 5]], np.float32),
    ("RoiAlign", "batch_indices"): _given([0, 0], np.int64), ("RoiAlign", "mode"): sometimes(either("avg", "max")),
    ("MaxRoiPool", "rois"): _given([[0, 0, 0, 3, 3]], np.float32), ("MaxRoiPool", "pooled_shape"): either([2, 2]),
    ("MaxRoiPool", "spatial_scale"): lambda _: None,
    ("NonMaxSuppression", "scores"): lambda s: s.floats(1, 1, 4),
    ("NonMaxSuppression", "max_output_boxes_per_class"): _given([2], np.int64),
    ("NonMaxSuppression", "iou_threshold"): sometimes(_given([0.5], np.float32)),
    ("SoftmaxCrossEntropyLoss", "labels"): _given(np.zeros((2, 4)), np.int64),
    ("NegativeLogLikelihoodLoss", "target"): _given(np.zeros((2, 4)), np.int64),
    **{(f"{op}Loss", "reduction"): sometimes(either("none", "sum", "mean"))
       for op in ("SoftmaxCrossEntropy", "NegativeLogLikelihood")},
    ("RotaryEmbedding", "cos_cache"): lambda s: s.floats(1, 3, 2),
    ("RotaryEmbedding", "sin_cache"): lambda s: s.floats(1, 3, 2),
    ("STFT", "frame_step"): _given(4, np.int64), ("STFT", "frame_length"): _given(8, np.int64),
    ("DeformConv", "W"): lambda s: s.floats(1, 1, 2, 2), ("DeformConv", "offset"): lambda s: s.floats(1, 8, 2, 2),
    ("DeformConv", "kernel_shape"): lambda _: None, ("DeformConv", "pads"): lambda _: None,
    ("DeformConv", "strides"): lambda _: None, ("DeformConv", "dilations"): lambda _: None,
    ("DeformConv", "group"): lambda _: None, ("Attention", "K"): lambda s: s.floats(*s.shape),
    ("Attention", "V"): lambda s: s.floats(*s.shape), ("Attention", "scale"): sometimes(either(0.5)),
    ("Attention", "is_causal"): sometimes(either(0, 1)), ("RegexFullMatch", "pattern"): either("[a-z]+", ".*"),
    ("MaxUnpool", "I"): _given([[[[0, 3], [8, 15]]]], np.int64), ("MaxUnpool", "kernel_shape"): either([2, 2]),
    ("MaxUnpool", "strides"): either([2, 2]), ("MaxUnpool", "pads"): lambda _: None,
    ("MelWeightMatrix", "dft_length"): _given(16, np.int64), ("MelWeightMatrix", "sample_rate"): _given(8000, np.int64),
    ("MelWeightMatrix", "lower_edge_hertz"): _given(0, np.float32),
    ("MelWeightMatrix", "upper_edge_hertz"): _given(4000, np.float32),
    ("TfIdfVectorizer", "max_gram_length"): either(2), ("TfIdfVectorizer", "max_skip_count"): either(0, 1),
    ("TfIdfVectorizer", "min_gram_length"): either(1), ("TfIdfVectorizer", "mode"): either("TF", "IDF", "TFIDF"),
    ("TfIdfVectorizer", "ngram_counts"): either([0, 2]), ("TfIdfVectorizer", "ngram_indexes"): either([0, 1, 2]),
    ("TfIdfVectorizer", "pool_int64s"): either([1, 2, 0, 3]),
}  # fmt: skip
"""Makers of the other operands and attributes, as in `MAKERS`."""
