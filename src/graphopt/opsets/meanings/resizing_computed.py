"""`Resize` by computed scales or sizes: the coordinates of the result in the image are computed axis by axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.opsets import automatic
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.computed import integers, times_meant
from graphopt.opsets.meanings.elementary import rounded
from graphopt.opsets.meanings.positions import Counting
from graphopt.opsets.meanings.registry import Step, down_at_last, number_like, of_kind
from graphopt.opsets.meanings.resizing import NEAR_HALF, keeps_proportions, places_of, proportional_axes
from graphopt.rewrite import Rewriter

_SINGLE = TensorProto.FLOAT
_ONE_MORE = 2
"""The least scale by which every axis gets longer, even one with a single element."""

Op = Callable[..., Value]
Taps = list[tuple[Value, Value | None]]
"""Positions along an axis with their weights; None is a weight of 1."""


def _of_singles(rw: Rewriter) -> Op:
    """A builder of float operators, as the runtime computes coordinates in float."""
    return of_kind(rw, np.float32)


@down_at_last(18, "Resize")
def computed_sizes_of_all_axes(node: Node, change: Change, rw: Rewriter) -> Step:
    """Extend computed scales and sizes of some axes to all axes."""
    _check_lists(node)
    if keeps_proportions(node):
        gathered_at_computed_places(node, change, rw)
        return None
    axes = node.attrs.get("axes")
    x, scales, sizes = node.operand(0), node.input(2), node.input(3)
    rank, op = len(x.dims()), Counting(rw)
    places = [x.axis(axis) for axis in axes] if axes is not None else list(range(rank))
    others = np.asarray([axis not in places for axis in range(rank)])
    changed: dict[int, Value | np.ndarray] = {}
    if node.attr("coordinate_transformation_mode") == "tf_crop_and_resize" and axes is not None:
        # The bounds 0 and 1 of a whole axis are appended to the given ones.
        count, whole = len(places), range(rank)
        at = [places.index(a) + side * count if a in places else 2 * count + side for side in (0, 1) for a in whole]
        region = rw.op("Cast", node.operand(1), to=_SINGLE)
        changed[1] = rw.op("Gather", rw.op("Concat", region, np.asarray([0, 1], np.float32), axis=0), integers(*at))
    if scales is not None:
        at = [places.index(axis) if axis in places else len(places) for axis in range(rank)]
        both = rw.op("Concat", scales, np.ones(1, np.float32), axis=0)
        changed[2] = rw.op("Gather", both, np.asarray(at, np.int64), axis=0)
    if sizes is not None:
        wide = times_meant(rw, rw.constant(np.asarray(places, np.int64)), rank, sizes)
        changed[3] = op.choose(rw.constant(others), rw.op("Shape", x), wide)
    rw.set_inputs(node, changed, axes=None)
    return automatic.down(node, change, rw)


def _refuse_nothing(x: Value, sizes: Value, places: list[int], *, larger: bool) -> None:
    """Check that no known size is or becomes 0: the runtime accepts that by scales, but refuses it by sizes.

    Raises:
        Decline: one is or becomes 0.
    """
    array, own = sizes.const(), [x.dims()[place] for place in places]
    if 0 in own:
        raise Decline("{} is empty, and has no aspect ratio", x.name)
    known = [size for size in own if isinstance(size, int)]
    if array is None or len(known) < len(own):
        return
    single = np.asarray(known, np.float32)
    scales = array.astype(np.float32) / single
    scale = scales.max() if larger else scales.min()
    if not np.floor(single * scale + np.float32(0.5)).all():
        raise Decline("{} would be resized to size 0", x.name)


def _factor(node: Node, rw: Rewriter, places: list[int]) -> Value:
    """The common factor of some axes that keeps their proportions, as a list of one."""
    x, sizes, larger = node.operand(0), node.operand(3), node.attr("keep_aspect_ratio_policy") == "not_smaller"
    _refuse_nothing(x, sizes, places, larger=larger)
    own = rw.op("Cast", rw.op("Gather", rw.op("Shape", x), np.asarray(places, np.int64), axis=0), to=_SINGLE)
    factors = _of_singles(rw)("Div", rw.op("Cast", sizes, to=_SINGLE), own)
    return rw.op("ReduceMax" if larger else "ReduceMin", factors, axes=[0], keepdims=1)


def _check_lists(node: Node) -> None:
    """Check that scales, sizes and a region have rank 1: the runtime accepts any rank, but `Gather` here does not."""
    for value in node.operands[1:]:
        if value.shape is not None and len(value.shape) != 1:
            raise Decline("{} does not have rank 1", value.name)


@down_at_last(9, "Upsample")
@down_at_last(10, "Resize")
@down_at_last(11, "Resize")
@down_at_last(19, "Resize")
def gathered_at_computed_places(node: Node, change: Change, rw: Rewriter) -> None:
    """Axis by axis, gather each element, or the weighted sum of its two or four neighbours."""
    _check_lists(node)
    x, opset = node.operand(0), node.graph.opset()
    if node.attr("antialias", 0):
        raise Decline("antialias=1 requires opset 18 if its sizes are not constant")
    if node.attrs.get("axes") is not None and not keeps_proportions(node):
        computed_sizes_of_all_axes(node, change, rw)
        return
    resizing = _Resizing.of(node, rw, opset)
    if resizing.mode != "nearest" and x.dtype not in FLOAT_TYPES:
        raise Decline("{} does not hold floats", x.name)
    result, beyond, copied = x, None, resizing.copied()
    for axis in filter(resizing.changes, range(len(x.dims()))):
        place, outside = resizing.places(axis, copied)
        taps = [(rw.op("Cast", at, to=TensorProto.INT64), share) for at, share in resizing.taps(place, axis)]
        parts = [_shared(rw, rw.op("Gather", result, at, axis=axis), share, x, axis) for at, share in taps]
        result = parts[0]
        for part in parts[1:]:
            result = rw.op("Add", result, part)
        if outside is not None:
            shaped = rw.op("Reshape", outside, integers(-1, *[1] * (len(x.dims()) - 1 - axis)))
            beyond = shaped if beyond is None else rw.op("Or", beyond, shaped)
    if beyond is not None:
        result = rw.op("Where", beyond, number_like(x, node.attr("extrapolation_value", 0.0)), result)
    rw.replace(node, [rw.op("Identity", x) if result is x else result])


def _shared(rw: Rewriter, part: Value, share: Value | None, source: Value, axis: int) -> Value:
    """Elements multiplied by their weights along an axis."""
    if share is None:
        return part
    if source.dtype != _SINGLE:
        share = rw.op("Cast", share, to=source.dtype)
    return rw.op("Mul", part, rw.op("Reshape", share, integers(-1, *[1] * (len(source.dims()) - 1 - axis))))


@dataclass(frozen=True, slots=True)
class _Resizing:
    """The settings of a `Resize`.

    Attributes:
        rw: the gate.
        op: builds float operators.
        node: the node.
        mode: `nearest`, `linear` or `cubic`.
        coordinates: the coordinate transformation mode.
        nearest: the rounding mode to the nearest element; empty if it depends on the scale, as until opset 10.
        in_proportion: the axes that have a common factor.
        factor: that factor, if proportions are kept.
    """

    rw: Rewriter
    op: Op
    node: Node
    mode: str
    coordinates: str
    nearest: str
    in_proportion: Sequence[int] = ()
    factor: Value | None = None

    @classmethod
    def of(cls, node: Node, rw: Rewriter, opset: int) -> _Resizing:
        mode = node.attr("mode", "nearest")
        if opset < 11:
            return cls(rw, _of_singles(rw), node, mode, "asymmetric", "")
        places = places_of(node)
        known = mode, places["coordinate_transformation_mode"], places["nearest_mode"]
        if not keeps_proportions(node):
            return cls(rw, _of_singles(rw), node, *known)
        axes = proportional_axes(node)
        if known[1] == "tf_crop_and_resize" and axes != sorted(range(len(node.operand(0).dims()))):
            raise Decline("tf_crop_and_resize of some axes requires opset 18")
        return cls(rw, _of_singles(rw), node, *known, axes, _factor(node, rw, axes))

    def _scales(self) -> Value:
        scales = self.node.input(2 if self.nearest else 1)
        if scales is None:
            raise Decline("neither scales nor sizes are given")
        return scales

    def _stated(self) -> np.ndarray | None:
        """The scales, if they are constant."""
        return self._scales().const() if self.node.input(3) is None else None

    def _sizes(self, axis: int) -> tuple[Value, Value, Value]:
        """The sizes of an axis in the image and in the result, and the scale, as lists of one float."""
        x, sizes, rw = self.node.operand(0), self.node.input(3), self.rw
        own = rw.op("Cast", Counting(rw).size(x, axis), to=_SINGLE)
        if self.factor is not None:  # rounded to the nearest, ties up
            wanted = self.op("Floor", self.op("Add", self.op("Mul", own, self.factor), 0.5))
            return own, wanted, self.factor
        if sizes is not None:
            wanted = rw.op("Cast", rw.op("Gather", sizes, integers(axis), axis=0), to=_SINGLE)
            return own, wanted, self.op("Div", wanted, own)
        scale = rw.op("Gather", self._scales(), integers(axis), axis=0)
        return own, self.op("Floor", self.op("Mul", own, scale)), scale

    def changes(self, axis: int) -> bool:
        """Whether an axis may be resized: the runtime does not resize axes with a scale of 1."""
        if self.factor is not None:
            return axis in self.in_proportion
        stated = self._stated()
        return stated is None or bool(stated[axis] != 1)

    def copied(self) -> Value | None:
        """Whether no size changes, so that the runtime copies the image; None if a size is known to change."""
        x, stated, count = self.node.operand(0), self._stated(), Counting(self.rw)
        pairs = zip(x.dims(), self.node.result.shape or (), strict=False)
        if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
            return None
        if stated is not None and any(not 1 <= scale < _ONE_MORE for scale in stated):
            return None
        truth: Value | None = None
        for axis in filter(self.changes, range(len(x.dims()))):
            wanted = self.rw.op("Cast", self._sizes(axis)[1], to=TensorProto.INT64)
            same = count("Equal", wanted, count.size(x, axis))
            truth = same if truth is None else self.rw.op("And", truth, same)
        return truth

    def places(self, axis: int, copied: Value | None) -> tuple[Value, Value | None]:
        """The coordinates of the result's elements along an axis, and which of them are outside the image.

        Args:
            axis: the axis.
            copied: whether the image is copied, see `copied`.
        """
        op, rw = self.op, self.rw
        sizes = self._sizes(axis)
        whole = rw.op("Cast", sizes[1], to=TensorProto.INT64)
        at = rw.op("Cast", Counting(rw).up_to(whole), to=_SINGLE)
        place, outside = self._resized(axis, at, *sizes)
        if outside is not None:
            same = op("Equal", sizes[2], 1)
            copied = same if copied is None else rw.op("Or", same, copied)
            outside = rw.op("And", outside, rw.op("Not", copied))
        return place if copied is None else op("Where", copied, at, place), outside

    def _resized(
        self, axis: int, at: Value, own: Value, wanted: Value, scale: Value
    ) -> tuple[Value, Value | None]:  # fmt: skip
        op = self.op
        last, most = op("Sub", own, 1), op("Sub", wanted, 1)
        middle = op("Sub", op("Div", op("Add", at, 0.5), scale), 0.5)
        if self.coordinates == "asymmetric":
            return op("Div", at, scale), None
        if self.coordinates == "half_pixel":
            return middle, None
        several = op("Greater", wanted, 1)
        if self.coordinates == "pytorch_half_pixel":
            return op("Where", several, middle, 0), None
        if self.coordinates == "align_corners":
            return op("Where", several, op("Div", op("Mul", at, last), op("Where", several, most, 1)), 0), None
        if self.coordinates == "half_pixel_symmetric":
            # The part of the result that is lost by rounding its size is divided between both ends.
            part = op("Div", wanted, op("Mul", own, scale))
            moved = op("Mul", op("Div", own, 2), op("Sub", 1, part))
            return self._moved_by(moved, at, scale), None
        return self._of_a_region(axis, at, several, last, most)

    def _moved_by(self, moved: Value, at: Value, scale: Value) -> Value:
        """The shifted coordinates of element centers; only here the runtime computes in double precision."""
        op, rw = of_kind(self.rw, np.float64), self.rw
        wide, number, factor = (rw.op("Cast", each, to=TensorProto.DOUBLE) for each in (moved, at, scale))
        place = op("Sub", op("Add", wide, op("Div", op("Add", number, 0.5), factor)), 0.5)
        return rw.op("Cast", place, to=_SINGLE)

    def _of_a_region(
        self, axis: int, at: Value, several: Value, last: Value, most: Value
    ) -> tuple[Value, Value | None]:  # fmt: skip
        op, rw, rank = self.op, self.rw, len(self.node.operand(0).dims())
        region = self.node.operand(1)
        if region.is_const:
            region.check_finite()
        ends = (rw.op("Gather", region, integers(at), axis=0) for at in (axis, axis + rank))
        start, end = (rw.op("Cast", each, to=_SINGLE) for each in ends)
        step = op("Div", op("Mul", op("Sub", end, start), last), op("Where", several, most, 1))
        along = op("Add", op("Mul", start, last), op("Mul", at, step))
        centre = op("Mul", op("Mul", op("Add", start, end), last), 0.5)
        place = op("Where", several, along, centre)
        return place, op("Or", op("Less", place, 0), op("Greater", place, last))

    def taps(self, place: Value, axis: int) -> Taps:
        """The positions along an axis, with weights, of which the elements of the result are sums."""
        op = self.op
        own, _, scale = self._sizes(axis)
        last = op("Sub", own, 1)

        def kept(number: Value) -> Value:
            return op("Min", op("Max", number, 0), last)

        if self.mode == "nearest":
            return [(kept(self._nearest(place, scale)), None)]
        if self.mode == "linear":
            inside = kept(place)
            below = op("Floor", inside)
            part = op("Sub", inside, below)
            return [(below, op("Sub", 1, part)), (kept(op("Add", below, 1)), part)]
        below = op("Floor", place)
        shares = self._cubic(op("Sub", place, below))
        ats = [op("Add", below, apart) for apart in (-1, 0, 1, 2)]
        if self.node.attr("exclude_outside", 0):
            within = [op("And", op("Greater", at, -0.5), op("Less", at, op("Add", last, 0.5))) for at in ats]
            shares = [op("Where", truth, share, 0) for truth, share in zip(within, shares, strict=True)]
            total = op("Add", op("Add", shares[0], shares[1]), op("Add", shares[2], shares[3]))
            shares = [op("Div", share, total) for share in shares]
        return [(kept(at), share) for at, share in zip(ats, shares, strict=True)]

    def _nearest(self, place: Value, scale: Value) -> Value:
        op = self.op
        floor, ceil = op("Floor", place), op("Ceil", place)
        if not self.nearest:
            return op("Where", op("Less", scale, 1), ceil, floor)
        if self.nearest in ("floor", "ceil"):
            return floor if self.nearest == "floor" else ceil
        tie = op("Less", op("Abs", op("Sub", op("Sub", place, floor), 0.5)), NEAR_HALF)
        return op("Where", tie, floor if self.nearest.endswith("floor") else ceil, rounded(place, op, _SINGLE))

    def _cubic(self, part: Value) -> list[Value]:
        """The cubic weights of the two elements before and the two after."""
        op, a = self.op, self.node.attr("cubic_coeff_a", -0.75)

        def near(t: Value) -> Value:
            inner = op("Sub", op("Mul", t, a + 2), a + 3)
            return op("Add", op("Mul", op("Mul", inner, t), t), 1)

        def far(t: Value) -> Value:
            inner = op("Sub", op("Mul", t, a), 5 * a)
            return op("Sub", op("Mul", op("Add", op("Mul", inner, t), 8 * a), t), 4 * a)

        rest = op("Sub", 1, part)
        return [far(op("Add", part, 1)), near(part), near(rest), far(op("Add", rest, 1))]
