"""Resize and Upsample by whole factors on blocked values."""

from __future__ import annotations

import numpy as np

from graphopt.ir import Node, Value
from graphopt.match import Mismatch
from graphopt_passes.layout.facts import Facts, Form, Kind, integers

_ROUNDED = frozenset({"round_prefer_floor", "round_prefer_ceil"})
_CENTERED = frozenset({"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"})
"""With whole factors pixel centers never lie between two pixels, so rounding finds the one that floor finds."""

_LINEAR = {
    "asymmetric": "asymmetric",
    "align_corners": "align_corners",
    "half_pixel": "half_pixel",
    "half_pixel_symmetric": "half_pixel",
    "pytorch_half_pixel": "half_pixel",
}


def resize_form(node: Node, facts: Facts) -> Form | Mismatch | None:
    """The blocked form of a Resize or Upsample."""
    x = node.inputs[0]
    layout = facts.layout(x)
    if x is None or layout is None:
        return None
    factors = _factors(node, x)
    if factors is None:
        return Mismatch("factors of {} are not whole and constant", node.outputs[0].name)  # type: ignore[union-attr]
    mode = str(node.attr("mode", "nearest"))
    how = _coordinates(node, mode, x, factors)
    if how is None:
        return Mismatch("blocked Upsample has no mode {} with these coordinates", mode)
    batch, height, width = facts.extents(x)
    grown = tuple(
        s * f if isinstance(s, int) else (s, "times", f) for s, f in zip((height, width), factors, strict=True)
    )
    known = facts.refined(None, node)
    sizes = tuple(g if isinstance(g, int) else k for g, k in zip(grown, known[1:], strict=True))
    data: dict[str, object] = {"scales": [1, 1, *factors], "mode": mode, "coordinates": how}
    return Form(node, Kind.UPSAMPLE, [x], [layout], (batch, sizes[0], sizes[1]), facts.lanes(x).rounded(), data=data)


def _factors(node: Node, x: Value) -> tuple[int, int] | None:
    """Whole factors of height and width, from scales or from sizes."""
    if node.op == "Resize" and node.attr("antialias", 0):
        return None
    if node.graph.opset() >= 11 and str(node.attr("keep_aspect_ratio_policy", "stretch")) != "stretch":
        return None
    axes = [int(axis) % 4 for axis in node.attrs.get("axes") or range(4)]
    scales = _scales(node)
    if scales is None and node.op == "Resize" and node.graph.opset() >= 11:
        sizes, shape = integers(node.input(3)), x.shape
        if sizes is None or shape is None or len(sizes) != len(axes):
            return None
        scales = []
        for size, dim in zip(sizes, (shape[axis] for axis in axes), strict=True):
            if not isinstance(dim, int) or dim <= 0 or size % dim:
                return None
            scales.append(size / dim)
    if scales is None or len(scales) != len(axes) or len(set(axes)) != len(axes):
        return None
    full = [1.0] * 4
    for axis, scale in zip(axes, scales, strict=True):
        full[axis] = scale
    if full[:2] != [1.0, 1.0] or any(s < 1 or s != int(s) for s in full[2:]):
        return None
    return int(full[2]), int(full[3])


def _picks_the_same(transform: str, rounding: str, factors: tuple[int, int]) -> bool:
    """Whether nearest picks the same pixels as with asymmetric coordinates and floor; the factors are whole."""
    if transform in _CENTERED:
        return rounding in _ROUNDED
    # Halfway between two pixels at most, and then the lower one.
    return transform == "asymmetric" and (
        rounding == "floor" or (rounding == "round_prefer_floor" and max(factors) <= 2)
    )


def _scales(node: Node) -> list[float] | None:
    stated = node.attrs.get("scales")
    if stated is not None:
        return [float(s) for s in stated]
    index = 1 if node.op == "Upsample" or node.graph.opset() < 11 else 2
    value = node.input(index)
    array = value.const(max_bytes=64) if value is not None else None
    if array is None or array.dtype == object or array.size == 0:
        return None
    return [float(s) for s in np.asarray(array).reshape(-1)]


def _coordinates(node: Node, mode: str, x: Value, factors: tuple[int, int]) -> str | None:
    """How the blocked operator is to map coordinates, None when it cannot give the same."""
    old = node.op == "Upsample" or node.graph.opset() < 11
    transform = "asymmetric" if old else str(node.attr("coordinate_transformation_mode", "half_pixel"))
    if mode == "nearest":
        rounding = "floor" if old else str(node.attr("nearest_mode", "round_prefer_floor"))
        return "asymmetric" if _picks_the_same(transform, rounding, factors) else None
    if mode != "linear":
        return None
    if transform == "pytorch_half_pixel":
        # Equal to half_pixel unless an output side is 1.
        sizes = [
            d * f if isinstance(d, int) else f for d, f in zip((x.shape or (0, 0, 0, 0))[2:], factors, strict=True)
        ]
        return "half_pixel" if all(size > 1 for size in sizes) else None
    return _LINEAR.get(transform)
