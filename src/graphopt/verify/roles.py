"""Roles of inputs that limit their values: indices, shapes, axes, divisors and others.

Random integers as indices make a model fail, and random sizes make it allocate without end. So each input is
followed through the operators that only move elements, to operands with a known role.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from graphopt.verify.source import all_nodes, constant_tensors
from graphopt.verify.values import Array, is_float

ShapeOf = Callable[[str], tuple[int | None, ...] | None]
"""Returns the shape of a value as far as it is known."""

_STANDARD = frozenset({"", "ai.onnx"})
_MOVING_DATA = frozenset({"Expand", "Gather", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Unsqueeze"})
_MOVING_ALL = frozenset({"Cast", "Concat", "Flatten", "Identity", "Transpose"})
_MAX_DEPTH = 12

# (operator, operand) -> role. All other operands may have any values.
ROLES: Mapping[tuple[str, int], str] = {
    ("Gather", 1): "index", ("GatherElements", 1): "index", ("ScatterElements", 1): "index", ("Scatter", 1): "index",
    ("ArrayFeatureExtractor", 1): "index_last", ("GatherND", 1): "index_nd", ("ScatterND", 1): "index_nd",
    ("OneHot", 0): "class_of_depth", ("OneHot", 1): "count", ("SequenceAt", 1): "first", ("SequenceInsert", 2): "first",
    ("SequenceErase", 1): "first", ("NegativeLogLikelihoodLoss", 1): "class", ("SoftmaxCrossEntropyLoss", 1): "class",
    ("RoiAlign", 2): "first", ("RotaryEmbedding", 3): "first", ("TensorScatter", 2): "first",
    ("Reshape", 1): "shape", ("Expand", 1): "ones", ("Tile", 1): "count", ("ConstantOfShape", 0): "count",
    ("AffineGrid", 1): "grid", ("CenterCropPad", 1): "count", ("Resize", 2): "scale", ("Resize", 3): "count",
    ("Upsample", 1): "scale", ("TopK", 1): "one", ("Trilu", 1): "first",
    ("Range", 0): "zero", ("Range", 1): "count", ("Range", 2): "one", ("Loop", 0): "trips",
    ("Slice", 1): "zero", ("Slice", 2): "count", ("Slice", 3): "axes", ("Slice", 4): "one",
    ("Pad", 1): "bits", ("Pad", 3): "axes", ("Squeeze", 1): "axes", ("Unsqueeze", 1): "axes", ("CumSum", 1): "zero",
    ("CumProd", 1): "zero",
    ("Split", 1): "split", ("SplitToSequence", 1): "split", ("DFT", 1): "count", ("DFT", 2): "one",
    ("HannWindow", 0): "count", ("HammingWindow", 0): "count", ("BlackmanWindow", 0): "count",
    ("NonMaxSuppression", 0): "boxes", ("NonMaxSuppression", 2): "count",
    ("NonMaxSuppression", 3): "unit", ("NonMaxSuppression", 4): "unit",
    ("Bernoulli", 0): "unit", ("DequantizeLinear", 2): "zero", ("ConvInteger", 2): "zero", ("ConvInteger", 3): "zero",
    ("QLinearConv", 1): "positive", ("QLinearConv", 2): "zero", ("QLinearConv", 4): "positive",
    ("QLinearConv", 5): "zero", ("QLinearConv", 6): "positive", ("QLinearConv", 7): "zero",
    ("QLinearMatMul", 1): "positive", ("QLinearMatMul", 4): "positive", ("QLinearMatMul", 6): "positive",
    ("ReverseSequence", 1): "one", ("LSTM", 4): "one", ("GRU", 4): "one",
    ("RNN", 4): "one", ("Div", 1): "nonzero", ("Mod", 1): "nonzero", ("BitShift", 1): "shift", ("Dropout", 1): "unit",
    ("QuantizeLinear", 1): "positive", ("DequantizeLinear", 1): "positive", ("BatchNormalization", 4): "positive",
    ("Col2Im", 1): "count", ("Col2Im", 2): "one", ("MelWeightMatrix", 0): "count", ("MelWeightMatrix", 1): "count",
}  # fmt: skip
_SIZED = {op for (op, _), role in ROLES.items() if role in ("count", "grid", "ones", "trips")} - {"Slice"} | {"Pad"}
"""Operators whose run time or allocation is proportional to an operand's value, which may be computed."""
_AXES_OF_REDUCTION = 1
_FIRST_SPATIAL = 2
_OUTWEIGHING = 1e3
_SIDES = 4
"""Number of values of a box."""
_COUNTING_BACK = frozenset({"Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"})
"""Operators whose indices may be negative."""
_BACK = 0.25


@dataclass(frozen=True, slots=True)
class Use:
    """A use of an input's elements as an operand with a known role."""

    role: str
    node: onnx.NodeProto


def roles_of(model: onnx.ModelProto, constants: Mapping[str, Array]) -> dict[str, tuple[Use, ...]]:
    """The limiting uses of each graph input that has any, given the small constants of the model."""
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    functions = {(f.domain, f.name): f for f in model.functions}
    for node in all_nodes(model.graph.node):
        for slot, name in enumerate(node.input):
            if name:
                readers.setdefault(name, []).append((node, slot))
    found = {
        i.name: (*_follow(i.name, readers, functions, 0), *_masks(i.name, readers, constants, 0))
        for i in model.graph.input
    }
    return {name: uses for name, uses in found.items() if uses}


def small_constants(model: onnx.ModelProto) -> dict[str, Array]:
    """The constants of the main graph with one element, or none."""
    tensors = constant_tensors(model.graph, model.graph.node)
    return {n: onnx.numpy_helper.to_array(t) for n, t in tensors.items() if sum(t.dims) <= 1}


def may_count(model: onnx.ModelProto) -> bool:
    """Whether a model has operators that a large number could keep running without end."""
    bodies = (model.graph.node, *(function.node for function in model.functions))
    return any(node.op_type in _SIZED for body in bodies for node in all_nodes(body))


def masks_of(model: onnx.ModelProto) -> set[str]:
    """The inputs that are masks of 0 and 1 in arithmetic."""
    found = roles_of(model, small_constants(model)).items()
    return {name for name, uses in found if any((u.role, u.node.op_type) == ("bits", "Sub") for u in uses)}


def _follow(
    name: str,
    readers: Mapping[str, list[tuple[onnx.NodeProto, int]]],
    functions: Mapping[tuple[str, str], onnx.FunctionProto],
    depth: int,
) -> Iterator[Use]:
    if depth > _MAX_DEPTH:
        return
    for node, slot in readers.get(name, ()):
        if function := functions.get((node.domain, node.op_type)):
            if slot < len(function.input):
                inner: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
                for body in all_nodes(function.node):
                    for i, value in enumerate(body.input):
                        inner.setdefault(value, []).append((body, i))
                yield from _follow(function.input[slot], inner, functions, depth + 1)
            continue
        if node.domain not in _STANDARD and (node.op_type, slot) != ("ArrayFeatureExtractor", 1):
            continue
        reduces = node.op_type.startswith("Reduce") and slot == _AXES_OF_REDUCTION
        role = "axes" if reduces else ROLES.get((node.op_type, slot))
        if role is not None:
            yield Use(role, node)
        elif node.op_type in _MOVING_ALL or (node.op_type in _MOVING_DATA and slot == 0):
            for output in node.output:
                yield from _follow(output, readers, functions, depth + 1)
        elif inside := _body_input(node, slot):
            yield from _follow(inside, readers, functions, depth + 1)


def _masks(
    name: str, readers: Mapping[str, list[tuple[onnx.NodeProto, int]]], constants: Mapping[str, Array], depth: int
) -> Iterator[Use]:
    """Uses as a mask in arithmetic, as in `(1 - mask) * -10000`: numbers other than 0 and 1 would dominate the rest."""
    for node, slot in readers.get(name, ()) if depth <= _MAX_DEPTH else ():
        if node.op_type in _MOVING_ALL or (node.op_type in _MOVING_DATA and slot == 0):
            for output in node.output:
                yield from _masks(output, readers, constants, depth + 1)
        elif node.op_type == "Sub" and _single(constants.get(node.input[1 - slot])) == 1.0:
            yield from [Use("bits", node)] if _is_outweighing(node.output[0], readers, constants, depth) else []


def _is_outweighing(
    name: str, readers: Mapping[str, list[tuple[onnx.NodeProto, int]]], constants: Mapping[str, Array], depth: int
) -> bool:
    for node, slot in readers.get(name, ()) if depth <= _MAX_DEPTH else ():
        if node.op_type == "Mul" and abs(_single(constants.get(node.input[1 - slot])) or 0.0) >= _OUTWEIGHING:
            return True
        if node.op_type in _MOVING_ALL and _is_outweighing(node.output[0], readers, constants, depth + 1):
            return True
    return False


def _single(array: Array | None) -> float | None:
    return float(array.reshape(())) if array is not None and array.size == 1 and array.dtype.kind in "fi" else None


def _body_input(node: onnx.NodeProto, slot: int) -> str | None:
    """The body input of a Loop or Scan that corresponds to an input of the node."""
    if node.op_type not in {"Loop", "Scan"}:
        return None
    for attribute in node.attribute:
        if attribute.name == "body" and slot < len(attribute.g.input):
            return attribute.g.input[slot].name
    return None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Known facts about the values around an operand.

    Attributes:
        shape_of: Returns shapes.
        constants: Small constants by name.
        bold: Whether to try values other than the safest.
    """

    shape_of: ShapeOf
    constants: Mapping[str, Array]
    bold: bool = False


def limited(
    rng: np.random.Generator, uses: tuple[Use, ...], dtype: np.dtype[Any], shape: tuple[int, ...], scene: Surroundings
) -> Array | None:
    """Values that suit the most limiting use; None if the uses allow all values of this type."""
    for role in _BY_STRICTNESS:
        for use in uses:
            if use.role == role:
                draw = _draw_floats if is_float(dtype) else _draw_integers
                values = draw(rng, use, shape, scene)
                if values is not None:
                    return np.asarray(np.asarray(values).astype(dtype))
    return None


# fmt: off
_BY_STRICTNESS = (
    "split", "shape", "grid", "axes", "zero", "ones", "one", "bits", "scale", "trips", "first", "index", "index_last",
    "index_nd", "class", "class_of_depth", "count", "shift", "unit", "positive", "nonzero", "boxes",
)
_RANGES = {  # role -> lowest and highest value
    "zero": (0, 0), "one": (1, 1), "ones": (1, 1), "bits": (0, 1), "first": (0, 0), "scale": (1, 2), "count": (1, 3),
    "trips": (1, 3), "shift": (0, 7), "nonzero": (1, 10),
}
_BOLD_RANGES = {"zero": (0, 1), "one": (1, 2), "first": (0, 1), "count": (2, 4), "trips": (0, 3)}
_FLOAT_RANGES = {"zero": (0.0, 0.0), "one": (1.0, 1.0), "positive": (0.1, 2.0), "unit": (0.1, 0.9)}
# fmt: on


def _draw_floats(rng: np.random.Generator, use: Use, shape: tuple[int, ...], scene: Surroundings) -> Array | None:
    if use.role == "boxes" and shape[-1:] == (_SIDES,):
        return _boxes(rng, use.node, shape)
    if use.role in _FLOAT_RANGES:
        return np.asarray(rng.uniform(*_FLOAT_RANGES[use.role], shape))
    return _draw_integers(rng, use, shape, scene) if use.role in {"bits", "count", "scale"} else None


def _boxes(rng: np.random.Generator, node: onnx.NodeProto, shape: tuple[int, ...]) -> Array:
    """Boxes, some overlapping by various shares, in the node's format: two corners, or center and size."""
    half = rng.uniform(0.5, 1.0, (*shape[:-1], 2))
    center = rng.uniform(-0.5, 0.5, half.shape) + rng.integers(0, 3, (*shape[:-1], 1))
    if _attribute(node, "center_point_box", 0):
        return np.concatenate([center, 2 * half], axis=-1)
    corner = half * rng.choice([-1.0, 1.0], half.shape)  # corners of either diagonal, in either order
    return np.concatenate([center - corner, center + corner], axis=-1)


def _draw_integers(rng: np.random.Generator, use: Use, shape: tuple[int, ...], scene: Surroundings) -> Array | None:
    if use.role in _RANGES:
        if scene.bold:
            return _bold(rng, use, shape, scene)
        drawn = np.asarray(rng.integers(*_RANGES[use.role], shape, endpoint=True))
        return _as_scales(drawn) if use.role == "scale" else drawn
    data = scene.shape_of(use.node.input[0]) if use.node.input else None
    length = shape[0] if shape else 1
    if use.role == "axes":
        rank = len(data) if data else 1 + length
        return np.asarray(rng.permutation(max(rank, length))[:length]).reshape(shape)
    if use.role == "shape":
        return _target_shape(rng, data, shape)
    if use.role == "split":
        extent = _extent(data, _axis(use.node, 0))
        parts = np.full(shape, 1 if extent is None else max(1, extent // length))
        if shape and extent is not None:
            parts[-1:] = max(0, extent - int(parts[:-1].sum()))
        return parts
    if use.role == "grid":
        return np.array([(data or (1,))[0] or 1, 1, 2, 3, 4][: max(length, 1)]).reshape(shape)
    if use.role.startswith(("index", "class")):
        limit = max(1, _index_limit(use, data, shape, scene))
        drawn = np.asarray(rng.integers(0, limit, shape))
        return _from_the_end(rng, use, drawn, limit) if scene.bold else drawn
    return None


def _from_the_end(rng: np.random.Generator, use: Use, drawn: Array, limit: int) -> Array:
    """Indices, some of them, and at least one, negative if the operator allows that."""
    if use.node.op_type not in _COUNTING_BACK or not drawn.size:
        return drawn
    drawn = np.where(rng.random(drawn.shape) < _BACK, drawn - limit, drawn)
    drawn.reshape(-1)[rng.integers(drawn.size)] = -1
    return drawn


def _bold(rng: np.random.Generator, use: Use, shape: tuple[int, ...], scene: Surroundings) -> Array:
    """Values of which the first is not the safest one, and sizes that really expand the data."""
    low, high = _BOLD_RANGES.get(use.role, _RANGES[use.role])
    drawn = np.asarray(rng.integers(low, high, shape, endpoint=True))
    drawn.reshape(-1)[:1] = high
    data = scene.shape_of(use.node.input[0]) if use.role == "ones" else None
    if data and len(data) == drawn.size:
        drawn = np.where(np.array([dim == 1 for dim in data]), 2, 1).reshape(shape)
    return _as_scales(drawn) if use.role == "scale" else drawn


def _as_scales(drawn: Array) -> Array:
    if drawn.size > _FIRST_SPATIAL:
        drawn[:_FIRST_SPATIAL] = 1  # no runtime resizes the batch and channel axes
    return drawn


def _index_limit(use: Use, data: tuple[int | None, ...] | None, shape: tuple[int, ...], scene: Surroundings) -> int:
    if use.role == "class_of_depth":
        depth = scene.constants.get(use.node.input[1])
        return 3 if depth is None else int(np.asarray(depth).reshape(-1)[0])
    if use.role == "index_nd":
        extents = [d for d in (data or ())[: shape[-1] if shape else 1] if d is not None]
        return min(extents, default=1)
    axis = {"class": 1, "index_last": -1}.get(use.role, _axis(use.node, 0))
    return _extent(data, axis) or 1


def _target_shape(rng: np.random.Generator, data: tuple[int | None, ...] | None, shape: tuple[int, ...]) -> Array:
    """A valid target for Reshape: the data's dimensions in another order, or all elements in the first one."""
    length = shape[0] if shape else 1
    if data is not None and len(data) == length and None not in data:
        return np.asarray(rng.permutation(np.array(data, dtype=np.int64))).reshape(shape)
    target = np.ones(length, np.int64)
    if length:
        target[0] = -1
    return target.reshape(shape)


def _axis(node: onnx.NodeProto, default: int) -> int:
    return _attribute(node, "axis", default)


def _attribute(node: onnx.NodeProto, name: str, default: int) -> int:
    return next((int(a.i) for a in node.attribute if a.name == name), default)


def _extent(data: tuple[int | None, ...] | None, axis: int) -> int | None:
    if data is None or not -len(data) <= axis < len(data):
        return None
    return data[axis]
