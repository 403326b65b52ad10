"""What makes a randomly drawn operator likely to be valid: ranks, shapes and values that fit each other."""

from __future__ import annotations

import random

SIZES = {
    "AveragePool": 4, "BatchNormalization": 4, "Conv": 4, "ConvInteger": 4, "ConvTranspose": 4, "DeformConv": 4,
    "DepthToSpace": 4, "GlobalAveragePool": 4, "GlobalLpPool": 4, "GlobalMaxPool": 4, "GridSample": 4,
    "GroupNormalization": 4, "GRU": 3, "InstanceNormalization": 4, "LpPool": 4, "LRN": 4, "LSTM": 3, "MaxPool": 4,
    "MaxRoiPool": 4, "MaxUnpool": 4, "QLinearConv": 4, "Resize": 4, "RNN": 3, "RoiAlign": 4, "SpaceToDepth": 4,
    "Upsample": 4, "EyeLike": 2, "Det": 2, "Gemm": 2, "TfIdfVectorizer": 1, "Attention": 4, "Col2Im": 3,
}  # fmt: skip
"""The rank that an operator needs."""

SHAPES: dict[tuple[str, str], tuple[int, ...]] = {
    ("", "mean"): (1,), ("", "input_mean"): (1,), ("", "var"): (1,), ("", "input_var"): (1,),
    ("BatchNormalization", "scale"): (1,), ("BatchNormalization", "B"): (1,),
    ("InstanceNormalization", "scale"): (1,), ("InstanceNormalization", "B"): (1,),
    ("Conv", "W"): (2, 1, -1, -1), ("ConvInteger", "w"): (2, 1, -1, -1), ("ConvTranspose", "W"): (1, 2, -2, -2),
    ("Conv", "B"): (2,), ("ConvTranspose", "B"): (2,), ("QLinearConv", "w"): (2, 1, -1, -1),
    ("Gemm", "A"): (0, 1), ("Gemm", "B"): (1, 2), ("Gemm", "C"): (0, 2),
    ("MatMul", "A"): (0, 1), ("MatMul", "B"): (1, 2), ("MatMulInteger", "A"): (0, 1), ("MatMulInteger", "B"): (1, 2),
    ("QLinearMatMul", "a"): (0, 1), ("QLinearMatMul", "b"): (1, 2),
    ("", "x_scale"): (), ("", "y_scale"): (), ("", "x_zero_point"): (), ("", "y_zero_point"): (),
    ("", "a_scale"): (), ("", "b_scale"): (), ("", "a_zero_point"): (), ("", "b_zero_point"): (),
    ("", "w_scale"): (), ("", "w_zero_point"): (), ("", "min"): (), ("", "max"): (),
    ("", "start"): (), ("", "limit"): (), ("", "delta"): (), ("", "ratio"): (), ("", "training_mode"): (),
    ("", "constant_value"): (), ("OneHot", "values"): (-2,), ("LSTM", "W"): (-1, -8, 2), ("LSTM", "R"): (-1, -8, -2),
    ("GRU", "W"): (-1, -6, 2), ("GRU", "R"): (-1, -6, -2), ("RNN", "W"): (-1, -2, 2), ("RNN", "R"): (-1, -2, -2),
    ("LSTM", "X"): (0, 1, 2), ("GRU", "X"): (0, 1, 2), ("RNN", "X"): (0, 1, 2),
    ("Det", "X"): (0, 0), ("LayerNormalization", "Scale"): (-1,), ("Bernoulli", "input"): (1, 2),
    ("Compress", "condition"): (1,), ("CumSum", "axis"): (), ("CumProd", "axis"): (),
    ("RoiAlign", "rois"): (-2, -4), ("MaxRoiPool", "rois"): (-2, -5), ("AffineGrid", "theta"): (0, -2, -3),
}  # fmt: skip
"""The shape of an input: a number from 0 is that dimension of the first input, -n is n itself."""

CHOICES: dict[tuple[str, str], list[object]] = {
    ("", "auto_pad"): ["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"],
    ("", "keepdims"): [0, 1], ("", "noop_with_empty_axes"): [0, 1], ("", "saturate"): [0, 1], ("", "fmod"): [0, 1],
    ("", "axis"): [-2, -1, 0, 1, 2], ("", "alpha"): [0.1, 1.0, -0.5], ("", "beta"): [0.5, 0.0], ("", "group"): [1, 1, 2],
    ("", "allowzero"): [0, 1], ("", "reduction"): ["none", "add", "mul", "min", "max"],
    ("NegativeLogLikelihoodLoss", "reduction"): ["none", "sum", "mean"],
    ("SoftmaxCrossEntropyLoss", "reduction"): ["none", "sum", "mean"],
    ("", "mode"): ["nearest", "linear"], ("Pad", "mode"): ["constant", "reflect", "edge", "wrap"],
    ("DepthToSpace", "mode"): ["DCR", "CRD"], ("GridSample", "mode"): ["bilinear", "nearest", "bicubic", "linear"],
    ("Resize", "mode"): ["nearest", "linear", "cubic"], ("RoiAlign", "mode"): ["avg", "max"],
    ("TfIdfVectorizer", "mode"): ["TF"], ("", "blocksize"): [1, 2], ("", "direction"): ["LEFT", "RIGHT"],
    ("LSTM", "direction"): ["forward", "reverse"], ("GRU", "direction"): ["forward", "reverse"],
    ("RNN", "direction"): ["forward", "reverse"], ("", "hidden_size"): [2], ("", "layout"): [0],
    ("", "equation"): ["ij,jk->ik", "...i->...", "i,i", "ij->ji", "ii->i", "ij,ij->", "...ij,...jk->...ik"],
    ("", "coordinate_transformation_mode"): [
        "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"],
    ("RoiAlign", "coordinate_transformation_mode"): ["half_pixel", "output_half_pixel"],
    ("", "nearest_mode"): ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"],
    ("", "padding_mode"): ["zeros", "border", "reflection"], ("", "approximate"): ["none", "tanh"],
    ("", "keep_aspect_ratio_policy"): ["stretch", "not_larger", "not_smaller"],
    ("", "to"): [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 17, 19, 21, 22], ("", "dtype"): [1, 6, 7, 10, 11],
    ("", "output_dtype"): [2, 3], ("", "output_datatype"): [1, 10, 11], ("", "detect_negative"): [0, 1],
    ("", "num_groups"): [1, 2], ("", "ceil_mode"): [0, 1], ("", "p"): [1, 2], ("", "size"): [1, 3],
    ("", "k"): [1, 2], ("", "shape"): [[2, 3], [1], []], ("", "value_ints"): [[1, 2]],
    ("", "value_floats"): [[1.0, -0.0]], ("", "value_string"): ["a"], ("", "value_strings"): [["a", ""]],
    ("", "dilations"): [[1, 1], [2, 1], [1]], ("", "split"): [[1, 1], [2, 1], [1, 2, 1]], ("", "is_test"): [0, 1],
    ("", "round_mode"): ["up", "down", "nearest"], ("", "stash_type"): [1], ("", "precision"): [1],
    ("", "case_change_action"): ["LOWER", "UPPER", "NONE"], ("", "pattern"): ["[a-z]+", ".*"],
    ("", "starts"): [[0, 1], [-1], [1]], ("", "ends"): [[2, 9], [9], [-1]], ("", "scales"): [[1.0, 1.0, 2.0, 2.0]],
}  # fmt: skip
"""What an attribute may hold."""

AXES = ("axes",)


def small_ints(op: str, name: str, rank: int, rng: random.Random) -> list[float] | float | None:
    """Values for an input that states axes, sizes or positions; None for an input of data."""
    rank = SIZES.get(op, rank)
    if name == "axes":
        axes = rng.sample(range(rank), rng.randint(0, rank))
        return [a - rank if rng.random() < 0.3 else a for a in axes]
    if name in ("indices", "I", "position_ids", "write_indices", "batch_indices"):
        return [rng.choice((-2, -1, 0, 0, 1, 1, 2)) for _ in range(rng.randint(0, 3))]
    if name in ("shape", "output_shape", "input_shape", "size") and op != "Size":
        return [rng.choice((-1, 0, 1, 1, 2, 3, 4)) for _ in range(rng.randint(0, 4))]
    if name in ("repeats", "split", "sizes", "steps", "block_shape", "image_shape"):
        return [rng.choice((-1, 0, 1, 1, 1, 2, 2, 3)) for _ in range(rng.choice((rank, 2)))]
    if name in ("starts", "ends"):
        return [rng.choice((-9, -2, -1, 0, 1, 2, 9, (1 << 31) - 1)) for _ in range(2 if rank > 1 else rank)]
    if name == "pads":
        return [rng.choice((0, 0, 1, 1, 2, -1)) for _ in range(2 * rank)]
    if name == "scales" and op in ("Resize", "Upsample"):
        return [rng.choice((1.0, 1.0, 2.0, 0.5, 1.5)) for _ in range(4)]
    if name in ("axis", "depth", "K", "k", "frame_step", "frame_length", "dft_length"):
        value = rng.choice((0, 1, 1, 2, 3, -1))
        return [value] if name == "K" or rng.random() < 0.3 else value
    return None
