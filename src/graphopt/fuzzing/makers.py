"""Makers of operands and attributes: one table, since some are attributes at one opset and operands at a later one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphopt.fuzzing.drawing import Draw
from graphopt.verify.values import Array, is_float


@dataclass(slots=True)
class Scene:
    """A node that is being drawn.

    Attributes:
        draw: the source of choices.
        op: the operator.
        opset: the version of its domain.
        x: its first operand.
        chosen: its other operands and its attributes so far, by name.
    """

    draw: Draw
    op: str
    opset: int
    x: Array
    chosen: dict[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """The first operand's shape."""
        return tuple(self.x.shape)

    @property
    def rank(self) -> int:
        """The first operand's rank."""
        return self.x.ndim

    @property
    def spatial(self) -> int:
        """Number of its spatial axes."""
        return max(self.rank - 2, 0)

    @property
    def channels(self) -> int:
        """Size of its second axis."""
        return self.shape[1] if self.rank > 1 else 1

    def kernel(self) -> list[int]:
        """The kernel of a convolution, chosen with its weights or before."""
        made = self.chosen.get("kernel")
        if made is None:
            made = [self.draw.one((1, 1, 2, 3, 3)) for _ in range(self.spatial)]
            made = [min(k, max(d, 1)) for k, d in zip(made, self.shape[2:], strict=True)]
            self.chosen["kernel"] = made
        return list(made)

    def floats(self, *shape: int) -> Array:
        """Numbers of the first operand's type."""
        return self.draw.array(self.x.dtype, shape)


Maker = Callable[[Scene], Any]
"""Makes a value: an array, a list or a number; None if it is left out."""


def either(*choices: Any) -> Maker:
    """One of several choices."""
    return lambda s: s.draw.one(choices)


def sometimes(maker: Maker, part: float = 0.5) -> Maker:
    """A value with some probability; else it is left out."""
    return lambda s: maker(s) if s.draw.chance(part) else None


def axis(s: Scene) -> int:
    """An axis, counted from either end where the opset allows it."""
    low = -s.rank if s.opset >= 11 else 0
    return s.draw.between(low, max(s.rank - 1, low))


def axes(s: Scene) -> list[int]:
    """Some axes."""
    if s.op in ("Squeeze",):
        ones = [a for a, d in enumerate(s.shape) if d == 1]
        found = s.draw.some(ones, 1) if ones else []
    elif s.op == "Unsqueeze":
        count = s.draw.between(1, 2)
        found = s.draw.rng.sample(range(s.rank + count), count)
    else:
        found = s.draw.some(range(s.rank), 1)
    rank = s.rank + len(found) if s.op == "Unsqueeze" else s.rank
    if s.op != "Slice" and s.draw.chance(0.6):
        found.sort()
    return [a - rank if s.opset >= 11 and s.draw.chance(0.25) else a for a in found]


def _chosen_axes(s: Scene) -> list[int]:
    if "axes" not in s.chosen:
        s.chosen["axes"] = axes(s)
    return [int(a) for a in np.asarray(s.chosen["axes"]).reshape(-1)]


def starts(s: Scene) -> list[int]:
    """Starts of slices."""
    return [s.draw.one((0, 0, 1, -1, -2, 2, -99, s.shape[a])) for a in _chosen_axes(s)]


def ends(s: Scene) -> list[int]:
    """Ends of slices."""
    far = (1 << 31) - 1, (1 << 63) - 1
    return [s.draw.one((s.shape[a], *far, -1, 1, s.shape[a] - 1, 2, -99)) for a in _chosen_axes(s)]


def steps(s: Scene) -> list[int]:
    """Steps of slices."""
    return [s.draw.one((1, 1, 1, 2, -1, 3, -2)) for _ in _chosen_axes(s)]


def shape(s: Scene) -> list[int]:
    """Another shape with the same number of elements, with -1 and 0 in it; for `Expand` one to broadcast to."""
    if s.op == "Expand":
        return expanded(s)
    sizes = list(s.shape)
    for _ in range(s.draw.between(0, 2)):
        how = s.draw.rng.randrange(4)
        if how == 0 and len(sizes) > 1:
            at = s.draw.rng.randrange(len(sizes) - 1)
            sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
        elif how == 1:
            sizes.insert(s.draw.between(0, len(sizes)), 1)
        elif how == 2:
            s.draw.rng.shuffle(sizes)
        elif sizes:
            at = s.draw.rng.randrange(len(sizes))
            factor = next((f for f in (2, 3, 5) if sizes[at] and sizes[at] % f == 0), 1)
            sizes[at : at + 1] = [factor, sizes[at] // factor]
    zeros = [i for i, d in enumerate(sizes) if i < s.rank and d == s.shape[i]]
    if 0 not in sizes and sizes:
        if s.draw.chance(0.4):
            sizes[s.draw.rng.randrange(len(sizes))] = -1
        for at in zeros:
            sizes[at] = 0 if s.draw.chance(0.25) else sizes[at]
    return sizes


def expanded(s: Scene) -> list[int]:
    """A shape to broadcast to."""
    sizes = [s.draw.one((1, d, d, 2, 3)) if d == 1 else s.draw.one((1, d, d)) for d in s.shape]
    return [s.draw.one((1, 2))] * s.draw.one((0, 0, 1)) + sizes[s.draw.one((0, 0, 0, 1)) :]


def pads(s: Scene) -> list[int]:
    """Padding: of every axis for `Pad`, of the spatial ones otherwise."""
    if s.op != "Pad":
        return [s.draw.one((0, 0, 1, 1, 2)) for _ in range(2 * s.spatial)]
    count = len(_chosen_axes(s)) if "axes" in s.chosen else s.rank
    high = 2 if s.chosen.get("mode", "constant") == "constant" else 1
    return [s.draw.one((0, 0, 0, 1, high, -1)) for _ in range(2 * count)]


def spatial(*choices: int) -> Maker:
    """A number for each spatial axis."""
    return lambda s: [s.draw.one(choices) for _ in range(s.spatial)]


def weights(s: Scene) -> Array:
    """Filters of a convolution, for the number of groups that its attribute states."""
    group = int(s.chosen.get("group", 1))
    dtype = s.x.dtype
    if s.op in ("ConvInteger", "QLinearConv"):
        dtype = np.dtype(s.draw.one((np.int8, np.uint8)))
    if s.op == "ConvTranspose":
        return s.draw.array(dtype, (s.channels, s.draw.one((1, 2, 4)), *s.kernel()))
    return s.draw.array(dtype, (group * s.draw.one((1, 2, 4)), max(s.channels // group, 1), *s.kernel()))


def group(s: Scene) -> int:
    """A divisor of the channels."""
    return int(s.draw.one([1, 1, 1, *(g for g in (2, 3, 4, s.channels) if g and s.channels % g == 0)]))


def bias(s: Scene) -> Array:
    """A number for each filter."""
    filters = s.chosen.get("W", s.chosen.get("w"))
    count = filters.shape[0] if filters is not None and s.op != "ConvTranspose" else s.channels
    if s.op == "ConvTranspose" and filters is not None:
        count = filters.shape[1] * int(s.chosen.get("group", 1))
    return s.draw.array(np.dtype(np.int32) if s.op == "QLinearConv" else s.x.dtype, (count,))


def per_channel(s: Scene) -> Array:
    """A number for each channel."""
    return s.floats(s.channels)


def positive(s: Scene) -> Array:
    """A number greater than 0 for each channel."""
    return (np.abs(per_channel(s).astype(np.float64)) + 0.25).astype(s.x.dtype)


def factor(s: Scene) -> Array:
    """The right factor of a matrix product."""
    inner = s.shape[-1] if s.rank else 1
    batch = s.draw.one(((), (), (1,), s.shape[:-2]))
    if s.op == "Gemm":
        batch = ()
        inner = s.shape[0] if s.chosen.get("transA") else inner
    sizes = [*batch, inner, s.draw.one((1, 2, 3, 4))]
    if s.op == "Gemm" and s.chosen.get("transB"):
        sizes = sizes[::-1]
    dtype = np.dtype(s.draw.one((np.int8, np.uint8))) if s.x.dtype.kind in "iu" and s.x.itemsize == 1 else s.x.dtype
    return s.draw.array(dtype, sizes)


def addend(s: Scene) -> Array:
    """The addend of `Gemm`."""
    other = s.chosen["B"]
    columns = other.shape[0] if s.chosen.get("transB") else other.shape[1]
    rows = s.shape[1] if s.chosen.get("transA") else s.shape[0]
    return s.floats(*s.draw.one(((columns,), (1, columns), (rows, columns), (rows, 1), (1,), ())))


def like(s: Scene) -> Array:
    """An operand that broadcasts with the first."""
    sizes = [1 if s.draw.chance(0.3) else d for d in s.shape]
    return s.floats(*sizes[s.draw.one((0, 0, len(sizes), s.draw.between(0, len(sizes)))) :])


def single(s: Scene) -> Array:
    """One element of the first operand's type."""
    return s.floats(*s.draw.one(((), (), (1,)))) if s.op not in ("Clip", "Pad") else s.floats()


def trailing(s: Scene) -> Array:
    """Elements for the axes of a normalization."""
    at = int(s.chosen.get("axis", -1))
    return s.floats(*s.shape[at:])


def indices(s: Scene) -> Array:
    """Positions along an axis, counted from either end."""
    at = int(s.chosen.get("axis", 0))
    size = s.shape[at] if -s.rank <= at < s.rank else 0
    dtype = np.dtype(s.draw.one((np.int64, np.int64, np.int32)))
    low = -size if s.opset >= 11 else 0
    count: tuple[int, ...] = s.draw.one(((), (1,), (2,), (2, 2), (size,), (0,) if s.draw.chance(0.1) else (3,)))
    if s.op in ("GatherElements", "ScatterElements", "Scatter"):
        count = tuple(s.draw.between(min(d, 1), d) for d in s.shape)
    if s.op in ("GatherND", "ScatterND"):
        depth = s.draw.between(1, max(s.rank, 1))
        rows = s.draw.between(1, 2)
        return np.array(
            [[s.draw.between(0, max(d - 1, 0)) for d in s.shape[:depth]] for _ in range(rows)], np.int64
        ).reshape(rows, depth)
    if s.draw.chance(0.3) and size and count:  # in order: a slice, or everything
        return np.resize(np.arange(size), count).astype(dtype)
    total = int(np.prod(count, dtype=np.int64))
    return np.array([s.draw.between(low, max(size - 1, low)) for _ in range(total)], dtype).reshape(count)


def updates(s: Scene) -> Array:
    """Updates of a scatter."""
    places = s.chosen["indices"]
    if s.op == "ScatterND":
        return s.floats(*places.shape[:-1], *s.shape[places.shape[-1] :])
    return s.floats(*places.shape)


def split(s: Scene) -> list[int] | None:
    """Sizes of parts that sum up to the size of the axis."""
    at = int(s.chosen.get("axis", 0))
    if s.op not in ("Split", "SplitToSequence") or not s.rank or "num_outputs" in s.chosen:
        return None
    size = s.shape[at]
    count = s.chosen.setdefault("parts", s.draw.between(1, 3))
    cuts = sorted(s.draw.between(0, size) for _ in range(count - 1))
    return [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]


def permutation(s: Scene) -> list[int]:
    """A permutation of the axes."""
    return s.draw.rng.sample(range(s.rank), s.rank)


def resized(s: Scene) -> Array | None:
    """Factors for `Resize` and `Upsample`."""
    if s.op == "Resize" and s.opset >= 11:
        s.chosen["by"] = s.draw.one(("scales", "sizes"))
        if s.chosen["by"] == "sizes":
            return np.zeros(0, np.float32) if s.opset == 11 else None
    low = (1.0,) if s.op == "Upsample" else (0.5, 1.0, 0.7)
    factors = [s.draw.one((1.0, 2.0, 3.0, 1.5, *low)) if a >= 2 or s.draw.chance(0.05) else 1.0 for a in range(s.rank)]
    return np.array(factors, np.float32)


def resized_to(s: Scene) -> Array | None:
    """Sizes for `Resize`."""
    if s.chosen.get("by") != "sizes":
        return None
    return np.array([s.draw.one((d, 2 * d, max(d - 1, 1))) if a >= 2 else d for a, d in enumerate(s.shape)], np.int64)


def scale(s: Scene) -> Array:
    """A scale of a quantized tensor, or one per position along an axis."""
    kind = np.dtype(np.float32)
    at = s.chosen.get("axis")
    count = (s.shape[int(at)],) if at is not None and s.op.startswith(("Quant", "Dequant")) else ()
    values = [s.draw.one((0.25, 0.5, 2.0**-5, 0.125, 1.0, 2.0**-6)) for _ in range(int(np.prod(count, dtype=int)))]
    return np.array(values, kind).reshape(count)


def zero_point(s: Scene) -> Array:
    """A zero point, of the type that the operator demands."""
    like_x = s.op in ("DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger")
    dtype = s.x.dtype if like_x else np.dtype(s.draw.one((np.uint8, np.int8)))
    near = s.chosen.get("y_scale", s.chosen.get("x_scale"))
    count = near.shape if near is not None else ()
    values = [s.draw.one((0, 0, 128 if dtype == np.uint8 else -3, 1)) for _ in range(int(np.prod(count, dtype=int)))]
    return np.array(values).astype(dtype).reshape(count)


def weight_zero_point(s: Scene) -> Array:
    """The zero point of weights."""
    other = next((s.chosen[key] for key in ("w", "b", "B") if key in s.chosen), s.x)
    return np.array(s.draw.one((0, 0, 3))).astype(other.dtype)


def gates(s: Scene) -> int:
    """Gates of a recurrence."""
    return {"LSTM": 4, "GRU": 3, "RNN": 1}[s.op]


def directions(s: Scene) -> int:
    """The number of directions of a recurrence."""
    return 2 if s.chosen.get("direction") == "bidirectional" else 1


def recurrent(last: int | None, count: int = 1) -> Maker:
    """Weights of a recurrence with `last` columns, or as many as the input if None."""
    return lambda s: s.floats(directions(s), count * gates(s) * 2, s.shape[2] if last is None else last)


def hidden_state(s: Scene) -> Array:
    """The initial state of a recurrence."""
    return np.asarray(s.floats(directions(s), s.shape[1], 2) * np.asarray(s.draw.one((0, 1)), s.x.dtype))


def small_count(s: Scene) -> Array:
    """A count of elements to take along an axis."""
    at = int(s.chosen.get("axis", -1))
    return np.array([s.draw.between(min(1, s.shape[at]), s.shape[at])], np.int64) if s.rank else np.array([1])


def equation(s: Scene) -> str:
    """An equation for operands of the first one's shape."""
    letters = "ijklm"[: s.rank]
    choices = [f"{letters}->{letters[::-1]}", f"{letters}->", f"...,{'...'}->..."]
    if s.rank >= 2:
        choices += [f"{letters},{letters[:-2]}{letters[-1]}z->{letters[:-1]}z", f"{letters},{letters}->{letters[:-1]}"]
    return str(s.draw.one(choices))


def einsum_second(s: Scene) -> Array | None:
    """The second operand of `Einsum`, if the equation has one."""
    inputs = str(s.chosen["equation"]).partition("->")[0].split(",")
    if len(inputs) < 2:
        return None
    if "." in inputs[1]:
        return s.floats(*s.shape)
    sizes = dict(zip(inputs[0], s.shape, strict=True))
    return s.floats(*(sizes.get(letter, 2) for letter in inputs[1]))


def chosen_positions(s: Scene) -> Array:
    """The condition of `Compress`: which positions it keeps."""
    count = s.shape[int(s.chosen["axis"])] if "axis" in s.chosen and s.rank else 2
    return np.array([s.draw.chance(0.5) for _ in range(count)], bool)


MAKERS: Mapping[tuple[str, str], Maker] = {
    ("", "axis"): axis, ("", "axes"): axes, ("", "perm"): sometimes(permutation, 0.85),
    ("Softmax", "axis"): sometimes(axis, 0.8), ("LogSoftmax", "axis"): sometimes(axis, 0.8),
    ("Flatten", "axis"): lambda s: s.draw.between(0, s.rank), ("ReverseSequence", "batch_axis"): either(1),
    ("Shape", "start"): sometimes(either(0, 1, -1), 0.3), ("Shape", "end"): sometimes(either(1, -1, 2), 0.3),
    ("", "starts"): starts, ("", "ends"): ends, ("Slice", "steps"): sometimes(steps, 0.7),
    ("Slice", "Tind"): lambda _: None,
    ("Reshape", "shape"): shape, ("Expand", "shape"): shape,
    ("", "pads"): sometimes(pads, 0.7), ("Pad", "pads"): pads, ("Pad", "axes"): sometimes(axes, 0.4),
    ("Pad", "mode"): either("constant", "constant", "edge", "reflect"), ("Pad", "value"): either(0.0, 1.0),
    ("Pad", "constant_value"): sometimes(single), ("", "strides"): sometimes(spatial(1, 1, 2, 3), 0.6),
    ("", "dilations"): sometimes(spatial(1, 1, 2), 0.25), ("", "group"): group,
    ("", "kernel_shape"): lambda s: s.kernel(), ("Conv", "kernel_shape"): sometimes(lambda s: s.kernel(), 0.6),
    ("ConvTranspose", "output_padding"): sometimes(spatial(0, 0, 1), 0.2),
    ("ConvTranspose", "output_shape"): lambda _: None, ("", "auto_pad"): sometimes(
        either("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"), 0.25),
    ("", "ceil_mode"): sometimes(either(0, 1), 0.4), ("", "count_include_pad"): sometimes(either(0, 1)),
    ("MaxPool", "storage_order"): sometimes(either(0, 1), 0.1), ("", "W"): weights, ("", "w"): weights,
    ("Conv", "B"): sometimes(bias), ("ConvTranspose", "B"): sometimes(bias), ("QLinearConv", "B"): sometimes(bias),
    ("BatchNormalization", "scale"): per_channel, ("BatchNormalization", "B"): per_channel,
    ("", "mean"): per_channel, ("", "input_mean"): per_channel, ("", "var"): positive, ("", "input_var"): positive,
    ("", "training_mode"): lambda _: None, ("InstanceNormalization", "scale"): per_channel,
    ("InstanceNormalization", "B"): per_channel, ("", "epsilon"): sometimes(either(1e-5, 1e-3, 0.5)),
    ("", "momentum"): lambda _: None, ("", "spatial"): lambda _: None,
    ("MatMul", "B"): factor, ("MatMulInteger", "B"): factor, ("QLinearMatMul", "b"): factor, ("Gemm", "B"): factor,
    ("Gemm", "C"): addend, ("Gemm", "alpha"): sometimes(either(1.0, 0.5, -2.0)),
    ("Gemm", "beta"): sometimes(either(1.0, 0.0, 2.0)), ("", "transA"): sometimes(either(0, 1)),
    ("", "transB"): sometimes(either(0, 1)), ("", "alpha"): sometimes(either(0.1, 1.0, -0.5, 1.702)),
    ("", "beta"): sometimes(either(0.5, 0.0, 1.0)), ("", "gamma"): sometimes(either(1.05, 1.0)),
    ("", "bias"): sometimes(either(0.0, 1.0, 0.5)), ("", "lambd"): sometimes(either(0.5, 0.0)),
    ("LRN", "size"): either(1, 3), ("", "min"): sometimes(single, 0.8), ("", "max"): sometimes(single, 0.8),
    ("LayerNormalization", "Scale"): trailing, ("LayerNormalization", "B"): sometimes(trailing),
    ("RMSNormalization", "scale"): trailing, ("GroupNormalization", "num_groups"): group,
    ("GroupNormalization", "scale"): per_channel, ("GroupNormalization", "bias"): per_channel,
    ("PRelu", "slope"): like, ("Gather", "indices"): indices, ("GatherElements", "indices"): indices,
    ("GatherND", "indices"): indices, ("ScatterElements", "indices"): indices, ("Scatter", "indices"): indices,
    ("ScatterND", "indices"): indices, ("", "updates"): updates, ("", "batch_dims"): lambda _: None,
    ("", "reduction"): sometimes(either("none", "add", "mul", "max", "min"), 0.3), ("", "split"): split,
    ("Tile", "repeats"): lambda s: [s.draw.one((1, 1, 2)) for _ in s.shape],
    ("Resize", "roi"): lambda s: np.zeros(0, np.float32) if s.opset == 11 else None,
    ("Resize", "scales"): resized, ("Resize", "sizes"): resized_to, ("Resize", "axes"): lambda _: None,
    ("Upsample", "scales"): resized, ("Upsample", "mode"): either("nearest", "linear"),
    ("Resize", "mode"): either("nearest", "linear", "cubic"), ("", "exclude_outside"): lambda _: None,
    ("Resize", "keep_aspect_ratio_policy"): lambda _: None, ("", "antialias"): lambda _: None,
    ("", "coordinate_transformation_mode"): sometimes(
        either("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")),
    ("RoiAlign", "coordinate_transformation_mode"): sometimes(either("half_pixel", "output_half_pixel")),
    ("", "nearest_mode"): sometimes(either("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
    ("", "x_scale"): scale, ("", "y_scale"): scale, ("", "w_scale"): scale, ("", "a_scale"): scale,
    ("", "b_scale"): scale, ("", "x_zero_point"): zero_point, ("", "y_zero_point"): zero_point,
    ("", "a_zero_point"): zero_point, ("", "w_zero_point"): weight_zero_point, ("", "b_zero_point"): weight_zero_point,
    ("QuantizeLinear", "y_zero_point"): sometimes(zero_point, 0.85),
    ("DequantizeLinear", "x_zero_point"): sometimes(zero_point, 0.85), ("QuantizeLinear", "axis"): sometimes(axis, 0.2),
    ("DequantizeLinear", "axis"): sometimes(axis, 0.2), ("", "block_size"): lambda _: None,
    ("", "output_dtype"): lambda _: None, ("", "precision"): lambda _: None, ("", "saturate"): lambda _: None,
    ("LSTM", "W"): recurrent(None), ("LSTM", "R"): recurrent(2), ("GRU", "W"): recurrent(None),
    ("GRU", "R"): recurrent(2), ("RNN", "W"): recurrent(None), ("RNN", "R"): recurrent(2),
    ("LSTM", "B"): sometimes(lambda s: s.floats(directions(s), 16)),
    ("GRU", "B"): sometimes(lambda s: s.floats(directions(s), 12)),
    ("RNN", "B"): sometimes(lambda s: s.floats(directions(s), 4)),
    ("", "sequence_lens"): lambda _: None, ("ReverseSequence", "sequence_lens"): lambda s: np.ones(
        s.shape[1] if s.rank > 1 else 1, np.int64), ("", "initial_h"): sometimes(hidden_state, 0.4),
    ("LSTM", "initial_c"): sometimes(hidden_state, 0.4), ("LSTM", "P"): lambda _: None,
    ("", "direction"): sometimes(either("forward", "reverse", "bidirectional")), ("", "hidden_size"): either(2),
    ("BitShift", "direction"): either("LEFT", "RIGHT"), ("", "activations"): lambda _: None,
    ("", "activation_alpha"): lambda _: None, ("", "activation_beta"): lambda _: None, ("", "clip"): lambda _: None,
    ("", "layout"): lambda _: None, ("", "linear_before_reset"): sometimes(either(0, 1)),
    ("", "input_forget"): lambda _: None, ("TopK", "K"): small_count, ("TopK", "k"): lambda s: int(small_count(s)[0]),
    ("", "equation"): equation, ("", "keepdims"): sometimes(either(0, 1), 0.8),
    ("", "noop_with_empty_axes"): sometimes(either(0, 1), 0.3), ("", "select_last_index"): sometimes(either(0, 1), 0.4),
    ("", "allowzero"): sometimes(either(0, 1), 0.15), ("", "to"): either(1, 1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 16, 8),
    ("DepthToSpace", "mode"): sometimes(either("DCR", "CRD")), ("", "blocksize"): either(1, 2),
    ("Dropout", "ratio"): sometimes(lambda s: np.array(s.draw.one((0.0, 0.5)), np.float32)),
    ("", "seed"): lambda _: None,
    ("", "is_test"): lambda _: None, ("", "largest"): sometimes(either(0, 1)), ("", "sorted"): sometimes(either(1)),
    ("", "approximate"): sometimes(either("none", "tanh")), ("", "p"): sometimes(either(1, 2)),
    ("Compress", "condition"): chosen_positions,
    ("Compress", "axis"): sometimes(axis), ("Unique", "axis"): sometimes(axis, 0.4),
    ("OneHot", "depth"): lambda s: np.array(s.draw.between(1, 4), np.int64),
    ("OneHot", "values"): lambda s: np.array(s.draw.one(([0, 1], [-1, 5])), np.float32),
    ("CumSum", "axis"): lambda s: np.array(axis(s), np.int32),
    ("CumProd", "axis"): lambda s: np.array(axis(s), np.int32),
    ("Trilu", "k"): sometimes(lambda s: np.array(s.draw.between(-2, 2), np.int64)), ("EyeLike", "k"): either(0, 1, -1),
    ("Mod", "fmod"): lambda s: 1 if is_float(s.x.dtype) else s.draw.one((0, 1)),
    ("", "detect_negative"): sometimes(either(0, 1)), ("", "detect_positive"): sometimes(either(0, 1)),
    ("Range", "limit"): lambda s: np.array(s.draw.between(-3, 9), s.x.dtype),
    ("Range", "delta"): lambda s: np.array(s.draw.one((1, 2, -1)), s.x.dtype),
    ("Pow", "Y"): lambda s: (
        np.array(s.draw.one((2, 3, 0, 1, 2)), s.x.dtype) if s.draw.chance(0.8) else like(s)),
    ("Attention", "q_num_heads"): lambda _: None, ("Attention", "kv_num_heads"): lambda _: None,
    ("Dropout", "training_mode"): lambda _: None, ("", "stash_type"): lambda _: None,
    ("", "reverse"): sometimes(either(0, 1)), ("", "exclusive"): sometimes(either(0, 1)),
    ("", "new_axis"): sometimes(either(0, 1), 0.3), ("Bernoulli", "dtype"): lambda _: None,
    ("", "value"): lambda _: None, ("ConstantOfShape", "value"): sometimes(
        lambda s: s.draw.array(np.dtype(s.draw.one((np.float32, np.int64, np.bool_, np.float16))), (1,)), 0.7),
    ("", "round_mode"): lambda _: None, ("", "mode"): lambda _: None, ("GridSample", "mode"): lambda _: None,
    ("", "scale"): sometimes(either(0.125, 1.0, 0.5)), ("", "upper"): sometimes(either(0, 1)),
}  # fmt: skip
"""Makers by operator and name of the operand or attribute; by name alone if all operators agree."""

RANKS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "ConvInteger", "QLinearConv"), (3, 4, 4, 5)),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), (3, 4, 4, 5)),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization", "GroupNormalization", "LRN"), (3, 4)),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "Resize", "Upsample"), (3, 4)),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth", "MaxUnpool", "GridSample", "RoiAlign", "MaxRoiPool"), (4,)),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (3,)), "Gemm": (2,), "EyeLike": (2,), "Det": (2, 3), "Attention": (4,),
    "ConstantOfShape": (1,), "Range": (0,), "Unsqueeze": (0, 1, 2, 3), "Trilu": (2, 3), "Upsample": (4,),
    "MatMul": (1, 2, 2, 3, 4), "MatMulInteger": (2, 3), "QLinearMatMul": (2, 3), "Scatter": (1, 2, 3),
    "LayerNormalization": (1, 2, 3), "RMSNormalization": (1, 2, 3), "ReverseSequence": (2, 3), "TopK": (1, 2, 3),
    "Concat": (1, 2, 3, 4), "Split": (1, 2, 3, 4), "Gather": (1, 2, 3, 4),
}  # fmt: skip
"""Ranks that the first operand may have; any rank for operators not listed."""
