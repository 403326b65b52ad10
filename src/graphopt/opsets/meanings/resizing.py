"""`Upsample` and `Resize`: one operator under two names, which gained coordinates, sizes and axes over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from graphopt.errors import Decline
from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.opsets import automatic
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.registry import down, number_like, up
from graphopt.rewrite import Rewriter

_REGIONS_SINCE = 11
"""The first opset with coordinates, sizes and regions."""


@up(10, "Upsample")
def called_resize(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Rename `Upsample` to `Resize`."""
    yield
    rw.replace(node, [rw.op("Resize", *node.inputs, **node.attrs)])


@down(10, "Resize")
def called_upsample(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Rename `Resize` to `Upsample`, which supports only scales of at least 1."""
    if any(scale < 1 for scale in node.operand(1).array().reshape(-1)):
        raise Decline("a scale below 1 requires opset 10")
    yield
    rw.replace(node, [rw.op("Upsample", *node.inputs, **node.attrs)])


@up(11, "Resize")
def coordinates_stated(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """State asymmetric coordinates, and the nearest mode: until opset 10 floor for scales >= 1, else ceil."""
    known, nearest = node.operand(1).const(), ["floor"]
    if node.attr("mode", "nearest") == "nearest":
        smaller, larger = known is None or bool((known < 1).any()), known is None or bool((known > 1).any())
        nearest = ["floor"] * larger + ["ceil"] * smaller or nearest
    yield
    x, scales = node.operand(0), node.operand(1)
    empty, settings = np.zeros(0, np.float32), {"coordinate_transformation_mode": "asymmetric"}
    if len(nearest) == 1:
        rw.set_inputs(node, {0: x, 1: empty, 2: scales}, nearest_mode=nearest[0], **settings)
        return
    # Axes that get larger are resized first, those that get smaller after them.
    one, attrs = np.asarray(1, np.float32), {**node.attrs, **settings}
    wide = rw.op("Resize", x, empty, rw.op("Max", scales, one), nearest_mode="floor", **attrs)
    rw.replace(node, [rw.op("Resize", wide, empty, rw.op("Min", scales, one), nearest_mode="ceil", **attrs)])


@down(11, "Resize")
def coordinates_by_default(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Drop coordinates and modes if they are those that opset 10 uses implicitly."""
    x, scales, sizes = node.operand(0), node.input(2), node.input(3)
    mode = node.attr("mode", "nearest")
    if sizes is not None:
        pairs = list(zip(x.sizes(), sizes.ints(), strict=True))
        if any(not own and wanted for own, wanted in pairs):
            raise Decline("{} is empty", x.name)
        factors = np.asarray([wanted / own if own else 1 for own, wanted in pairs], np.float32)
    elif scales is not None:
        factors = scales.array().reshape(-1)
    else:
        raise Decline("neither scales nor sizes are given")
    if mode not in ("nearest", "linear"):
        raise Decline("mode={} requires opset 11", mode)
    coordinates = node.attr("coordinate_transformation_mode", "half_pixel")
    if coordinates != "asymmetric":
        raise Decline("coordinate_transformation_mode={} requires opset 11", coordinates)
    nearest = node.attr("nearest_mode", "round_prefer_floor")
    wanted = {"floor" if factor > 1 else "ceil" for factor in factors if factor != 1}
    if mode == "nearest" and wanted - {nearest}:
        raise Decline("nearest_mode={} requires opset 11", nearest)
    if node.attr("exclude_outside", 0) and mode != "nearest":
        raise Decline("exclude_outside=1 requires opset 11")
    yield
    given = node.input(2) if sizes is None else factors
    rw.replace(node, [rw.op("Resize", node.operand(0), given, mode=mode)])


@down(13, "Resize")
def operands_given(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Add an empty region and empty scales, which were required."""
    if node.input(1) is None and node.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise Decline("tf_crop_and_resize requires roi, which is not given")
    empty = np.zeros(0, np.float32)
    missing = {index: empty for index in (1, 2) if node.input(index) is None}
    if missing:
        rw.set_inputs(node, dict(missing))
    yield from automatic.down(node, change, rw)


@up(13, "Resize")
def operands_left_out(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Omit an empty region and empty scales, which are no longer required; if sizes are given, scales are empty."""
    crops = node.attr("coordinate_transformation_mode") == "tf_crop_and_resize"
    given = {i: value for i in (1, 2) if (value := node.input(i)) is not None}
    gone = {i: None for i, value in given.items() if 0 in (value.shape or ()) and not (i == 1 and crops)}
    places: dict[str, Any] = places_of(node) if node.attr("coordinate_transformation_mode") == OF_TENSORFLOW else {}
    sizes = node.input(3)
    if sizes is not None and 2 in given and not _is_stated(given[2]):
        if not _is_stated(sizes):
            raise Decline("whether the scales or the sizes are empty is not known")
        gone[2] = None
    yield
    if gone or places:
        rw.set_inputs(node, dict(gone), **places)


OF_TENSORFLOW = "tf_half_pixel_for_nn"
"""A mode shifted by half a pixel, of opsets 11 and 12; exporters from TensorFlow use it in later opsets, too."""


def places_of(node: Node) -> dict[str, Any]:
    """The coordinate transformation and nearest modes, as values that every opset from 11 on supports.

    Raises:
        Decline: there are no equivalent ones.
    """
    coordinates = node.attr("coordinate_transformation_mode", "half_pixel")
    nearest = node.attr("nearest_mode", "round_prefer_floor")
    if coordinates == OF_TENSORFLOW:
        if node.attr("mode", "nearest") != "nearest" or nearest != "floor":
            raise Decline("coordinate_transformation_mode={} exists at opsets 11 and 12 only", coordinates)
        coordinates, nearest = "half_pixel", "round_prefer_ceil"  # floor(c + 0.5) rounds c with ties up
    return {"coordinate_transformation_mode": coordinates, "nearest_mode": nearest}


def _is_stated(value: Value) -> bool:
    """Whether it is known if a list is empty."""
    return value.shape is not None and all(isinstance(dim, int) for dim in value.shape)


def keeps_proportions(node: Node) -> bool:
    """Whether all axes have a common factor, which follows from the sizes."""
    return node.attr("keep_aspect_ratio_policy", "stretch") != "stretch" and node.input(3) is not None


def proportional_axes(node: Node) -> list[int]:
    """The axes that have a common factor.

    Raises:
        Decline: an axis is negative, for which the runtime deviates from the standard.
    """
    rank = len(node.operand(0).dims())
    axes = node.attrs.get("axes")
    if axes is not None and min(axes, default=0) < 0:
        raise Decline("the runtime ignores negative axes if the aspect ratio is kept")
    return list(range(rank) if axes is None else axes)


def _state_proportions(node: Node, rw: Rewriter) -> None:
    """State the sizes if they imply the factor, or the factor if it implies the sizes."""
    places, policy = proportional_axes(node), node.attr("keep_aspect_ratio_policy")
    own = np.asarray([node.operand(0).size(axis) for axis in places], np.float32)
    if not own.all():
        raise Decline("{} is empty, and has no aspect ratio", node.operand(0).name)
    factors = np.asarray(node.operand(3).ints(), np.float32) / own
    factor = factors.max() if policy == "not_smaller" else factors.min()
    sizes = np.floor(own * factor + np.float32(0.5))
    if (sizes == own).all() or (sizes / own == factor).all():
        rw.set_inputs(node, {3: sizes.astype(np.int64)}, keep_aspect_ratio_policy=None)
    elif (np.floor(own * factor) == sizes).all():
        rw.set_inputs(node, {2: np.full(len(places), factor), 3: None}, keep_aspect_ratio_policy=None)
    else:
        raise Decline("keep_aspect_ratio_policy={} requires opset 18, since its scale gives other sizes", policy)


@down(18, "Resize")
def all_axes(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Extend scales and sizes of some axes to all axes."""
    if keeps_proportions(node):
        _state_proportions(node, rw)
    axes = node.attrs.get("axes")
    x, scales, sizes = node.operand(0), node.input(2), node.input(3)
    if axes is not None:
        places = [x.axis(axis) for axis in axes]
        operands: dict[int, np.ndarray] = {}
        if scales is not None:
            full = np.ones(len(x.dims()), np.float32)
            full[places] = scales.array().reshape(-1)
            operands[2] = full
        if sizes is not None:
            whole = np.asarray([x.size(axis) if axis not in places else 0 for axis in range(len(x.dims()))], np.int64)
            whole[places] = sizes.ints()
            operands[3] = whole
        roi = node.input(1)
        if roi is not None and node.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
            starts, ends = np.zeros(len(x.dims()), np.float32), np.ones(len(x.dims()), np.float32)
            starts[places], ends[places] = np.split(roi.array().reshape(-1), 2)
            operands[1] = np.concatenate([starts, ends])
        rw.set_inputs(node, dict(operands), axes=None)
    yield from automatic.down(node, change, rw)


_MOST_TAPS = 64
"""Most elements of the image, along one axis, that contribute to one of the result."""

_COMPLETE = 19
"""The first opset with all modes."""


@down(19, "Resize")
def other_coordinates(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
    """Convert by the schemas; modes that opset 19 introduced decline, for the next step."""
    yield from automatic.down(node, change, rw)


@down(10, "Resize")
@down(11, "Resize")
@down(18, "Resize")
@down(19, "Resize")
def interpolated(node: Node, change: Change, rw: Rewriter) -> None:
    """Axis by axis, compute each element as a weighted sum of a few elements, with constant positions and weights."""
    x, opset = node.operand(0), node.graph.opset()
    settings = _settings(node, opset)
    scales, sizes = node.input(2 if opset >= _REGIONS_SINCE else 1), node.input(3)
    given = scales if sizes is None else sizes
    if given is None or not given.is_const:
        raise Decline("{} is not constant", "a size" if given is None else given.name)
    numbers = given.array().reshape(-1)
    axes = node.attrs.get("axes") or range(len(x.dims()))
    wished = dict(zip((x.axis(each) for each in axes), numbers, strict=True))
    by_size = sizes is not None
    if all(_length(x.size(axis), number, by_size=by_size) == x.size(axis) for axis, number in wished.items()):
        rw.replace(node, [rw.op("Identity", x)])  # the runtime copies an image that keeps its shape
        return
    result = x
    for axis, number in wished.items():
        size = x.size(axis)
        if number == (size if by_size else 1):
            continue
        if not _length(size, number, by_size=by_size):
            result = rw.op("Gather", result, np.zeros(0, np.int64), axis=axis)
            continue
        if not size:
            raise Decline("{} is empty", x.name)
        # Corners are aligned by the integer length, but for a scale the evaluator uses the unrounded product.
        aligned = settings["coordinate_transformation_mode"] == "align_corners" and not by_size
        wanted = int(size * number) if aligned else number
        weights = _weights(size, wanted, settings, by_size=aligned or by_size)
        result = _along(result, axis, weights, x, rw)
    rw.replace(node, [result])


def _settings(node: Node, opset: int) -> dict[str, Any]:
    """The interpolation settings; until opset 10 they are fixed except for the mode."""
    mode = node.attr("mode", "nearest")
    if opset < _REGIONS_SINCE:
        return {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": ""}
    if node.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise Decline("coordinate_transformation_mode=tf_crop_and_resize requires opset 11")
    if node.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Decline("keep_aspect_ratio_policy requires opset 18")
    names = ("cubic_coeff_a", "exclude_outside", "antialias")
    return {
        "mode": mode,
        **places_of(node),
        **{name: value for name in names if (value := node.attr(name)) is not None},
    }


def _length(size: int, number: float, *, by_size: bool) -> int:
    """The number of elements of an axis in the result."""
    return int(number) if by_size else int(np.floor(np.float32(size) * np.float32(number)))


NEAR_HALF = 1e-6
"""The distance from the middle of two elements up to which runtimes treat a coordinate as a tie."""


def _nearest_weights(size: int, number: float, settings: dict[str, Any], *, by_size: bool) -> np.ndarray:
    """The weights of nearest-neighbour interpolation, one-hot, computed in float as the runtime does.

    In double precision ties would be rounded differently, and the result may have one element less; the runtime uses
    it for the quotient of `half_pixel_symmetric` only.
    """
    own = np.float32(size)
    wanted = np.float32(_length(size, number, by_size=by_size))
    scale = wanted / own if by_size else np.float32(number)
    at, coordinates = np.arange(int(wanted), dtype=np.float32), settings["coordinate_transformation_mode"]
    half = np.float32(0.5)
    place = (at + half) / scale - half
    if coordinates == "asymmetric":
        place = at / scale
    elif coordinates == "align_corners":
        place = at * (own - 1) / max(wanted - 1, np.float32(1))
    elif coordinates == "half_pixel_symmetric":
        moved = own / 2 * (1 - wanted / (own * scale))
        place = (moved + (at + half) / scale.astype(np.float64) - half).astype(np.float32)
    elif coordinates == "pytorch_half_pixel" and len(at) == 1:
        place = np.zeros(1, np.float32)
    nearest = settings["nearest_mode"] or ("ceil" if scale < 1 else "floor")
    below, above = np.floor(place), np.ceil(place)
    if nearest.startswith("round"):
        tie = np.abs(place - below - half) < np.float32(NEAR_HALF)
        chosen = np.where(tie, below if nearest == "round_prefer_floor" else above, np.round(place))
    else:
        chosen = below if nearest == "floor" else above
    places = np.clip(chosen, 0, size - 1).astype(np.int64)
    return np.eye(size, dtype=np.float32)[places]


def _weights(size: int, number: float, settings: dict[str, Any], *, by_size: bool) -> np.ndarray:
    """The weight of each element of an axis in each element of the result, by the standard's reference evaluator."""
    if settings["mode"] == "nearest" and not settings.get("antialias"):
        return _nearest_weights(size, number, settings, by_size=by_size)
    if not by_size and int(size * float(number)) != int(np.float32(size) * np.float32(number)):
        raise Decline("the output size {} * {} depends on the precision", size, number)
    from onnx.reference import ReferenceEvaluator

    inputs = ["x", "", "" if by_size else "n", "n" if by_size else ""]
    node = helper.make_node("Resize", inputs, ["y"], **settings)
    kinds = {"x": TensorProto.FLOAT, "n": TensorProto.INT64 if by_size else TensorProto.FLOAT, "y": TensorProto.FLOAT}
    image, n, y = (helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items())
    graph = helper.make_graph([node], "weights", [image, n], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _COMPLETE)])
    operand = np.asarray([size if by_size else 1, number], np.int64 if by_size else np.float32)
    feed = {"x": np.eye(size, dtype=np.float32), "n": operand}
    found: Any = ReferenceEvaluator(model).run(None, feed)
    made = np.asarray(found[0]).T
    if settings.get("coordinate_transformation_mode") == "pytorch_half_pixel" and len(made) == 1:
        if settings.get("antialias"):
            raise Decline("antialias of an axis of size 1 is not defined")
        return np.eye(1, size, dtype=np.float32)  # at 0, as the standard states; its evaluator uses -0.5
    return made


def _along(x: Value, axis: int, weights: np.ndarray, source: Value, rw: Rewriter) -> Value:
    """The weighted sums along an axis; a single element is gathered, of any type."""
    count = int((weights != 0).sum(axis=1).max())
    if not 0 < count <= _MOST_TAPS:
        raise Decline("each output element would combine {} input elements", count)
    places = np.argsort(weights == 0, axis=1, kind="stable")[:, :count]
    shares = np.take_along_axis(weights, places, axis=1)
    # Missing elements repeat the first one with a part of its weight: a weight of 0 would turn an infinity into NaN.
    more = shares == 0
    places = np.where(more, places[:, :1], places)
    shares = np.where(more, shares[:, :1], shares)
    shares[:, 0] /= 1 + more.sum(axis=1)
    shares[more] = np.broadcast_to(shares[:, :1], shares.shape)[more]
    parts = []
    for tap in range(count):
        at, share = places[:, tap], shares[:, tap]
        part = rw.op("Gather", x, at.astype(np.int64), axis=axis)
        if (share != 1).any():
            if source.dtype not in FLOAT_TYPES:
                raise Decline("{} does not hold floats", source.name)
            shape = [-1] + [1] * (len(source.dims()) - axis - 1)
            part = rw.op("Mul", part, share.astype(number_like(source, 0).dtype).reshape(shape))
        parts.append(part)
    result = parts[0]
    for part in parts[1:]:
        result = rw.op("Add", result, part)
    return result
