"""`Resize`, and `Upsample` before it: scales as an attribute or an input, or sizes, for all axes or some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators.builder import NodeBuilder
from graphopt.records import dataclass

_REGIONS_SINCE = 11
"""The first opset with coordinate modes, sizes and regions."""

_ABSENT_SINCE = 13
"""Before this opset, an omitted operand is an empty tensor."""

_LARGEST = 2.0**31
"""Upper bound of a scale."""

_CENTERED = frozenset({"half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"})
_TO_NEAREST = frozenset({"round_prefer_floor", "round_prefer_ceil"})


@dataclass(frozen=True, slots=True)
class Resize:
    """A resize of an image.

    Attributes:
        x: the image.
        scales: the scale of each axis.
        mode: `nearest`, `linear` or `cubic`.
        coordinates: the mapping of coordinates of the result to coordinates of `x`.
        rounding: the rounding of `nearest`.
        antialias: whether downsampling filters.
    """

    x: Value
    scales: tuple[float, ...]
    mode: str
    coordinates: str
    rounding: str
    antialias: bool

    @property
    def repeats(self) -> bool:
        """Whether it repeats each pixel by an integer scale along each axis.

        With integer scales and centered coordinates, rounding to nearest meets no ties.
        """
        if self.mode != "nearest" or self.antialias or any(factor % 1 for factor in self.scales) or not self.scales:
            return False
        centered = self.coordinates in _CENTERED and self.rounding in _TO_NEAREST
        return centered or (self.coordinates, self.rounding) == ("asymmetric", "floor")

    @classmethod
    def of(cls, node: Node) -> Resize:
        """Read a `Resize` or `Upsample`.

        Raises:
            Decline: it is none, its scales are not constant or follow from unknown sizes, one is not positive or too
                large, or it keeps the aspect ratio, so that scales depend on each other.
        """
        if node.op not in ("Resize", "Upsample"):
            raise Decline
        x = node.operand(0)
        mode, antialias = str(node.attr("mode", "nearest")), bool(node.attr("antialias", 0))
        if node.op == "Upsample" or node.graph.opset() < _REGIONS_SINCE:
            return cls(x, _numbers(node, 1), mode, "asymmetric", "floor", antialias)
        if node.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
            raise Decline("{} keeps the aspect ratio", node.result.name)
        scales, axes = _numbers(node, 2) or _by_sizes(node), node.attr("axes")
        if axes is not None:
            places = dict(zip((x.axis(axis) for axis in axes), scales, strict=False))
            if not len(places) == len(axes) == len(scales):
                raise Decline("{} scales for {} axes", len(scales), len(axes))
            scales = tuple(places.get(axis, 1.0) for axis in range(len(x.dims())))
        coordinates = str(node.attr("coordinate_transformation_mode", "half_pixel"))
        return cls(x, scales, mode, coordinates, str(node.attr("nearest_mode", "round_prefer_floor")), antialias)


def _numbers(node: Node, index: int) -> tuple[float, ...]:
    """The scales; empty if they are omitted."""
    stated, value = node.attrs.get("scales"), node.input(index)
    if stated is None:
        stated = () if value is None else value.array().reshape(-1).tolist()
    if not all(isinstance(scale, (int, float)) and 0 < scale <= _LARGEST for scale in stated):
        raise Decline("{} is resized by {}, expected positive finite scales", node.operand(0).name, list(stated))
    return tuple(map(float, stated))


def _by_sizes(node: Node) -> tuple[float, ...]:
    """The scales that follow from sizes."""
    x, sizes = node.operand(0), node.operand(3).ints()
    axes = node.attr("axes")
    dims = [x.size(axis) for axis in (range(len(x.dims())) if axes is None else axes)]
    if len(dims) != len(sizes) or 0 in dims:
        raise Decline("{} sizes for {} axes", len(sizes), len(dims))
    return tuple(size / dim for size, dim in zip(sizes, dims, strict=True))


def stated_scales(node: Node) -> np.ndarray:
    """The scales of a `Resize` or `Upsample` in the given order; empty if it has sizes.

    Raises:
        Decline: they are not constant.
    """
    if node.op == "Upsample" and len(node.inputs) == 1:
        stated = node.attr("scales") or (node.attr("height_scale", 0.0), node.attr("width_scale", 0.0))
        return np.array(stated, np.float32)
    given = node.input(1 if len(node.inputs) == 2 else 2)  # from opset 11 on, `roi` is in between
    return np.zeros(0) if given is None or given.shape == (0,) else given.array()


def factors_of(node: Node, view: Resize) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The scales of all axes of an image, or else the sizes of the result, whichever the operator states.

    Raises:
        Decline: scales are not constant, or sizes not known.
    """
    stated = node.input(2)
    if stated is not None and stated.array().size:
        return np.array(view.scales, np.float32), None
    return None, np.array([node.result.size(axis) if axis > 1 else view.x.size(axis) for axis in range(4)], np.int64)


def repeated(x: Value, scales: Sequence[int], to: NodeBuilder) -> Value:
    """Repeat each element `scales` times along each axis, by a nearest `Resize` of opset 11 or later."""
    absent = np.zeros(0, np.float32) if to.graph.opset() < _ABSENT_SINCE else None
    factors = np.array(scales, np.float32)
    modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return to.op("Resize", x, absent, factors, **modes)


def resized(node: Node, x: Value | np.ndarray, scales: Any, sizes: Any, to: NodeBuilder) -> Value:
    """Write the same operator on another operand, with scales or sizes for all axes."""
    absent = np.zeros(0, np.float32) if to.graph.opset() < _ABSENT_SINCE else None
    attrs = {name: value for name, value in node.attrs.items() if name != "axes"}
    return to.op("Resize", x, absent, absent if scales is None else scales, sizes, **attrs)
