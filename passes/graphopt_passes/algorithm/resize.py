"""Resizing images, whose kernels work pixel by pixel."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress

import numpy as np
from onnx import TensorProto

from graphopt.ir import FLOAT_TYPES
from graphopt.operators.resize import Resize, factors_of, resized
from graphopt.operators.transpose import FIRST, LAST, Transpose
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, Work, count, size_of
from graphopt_passes.elementwise import MOVES


class _Interpolated(Weighed, OpRule):
    """Replace a linear or cubic `Resize` of images, by constant scales or to constant sizes, with another form."""

    ops = ("Resize",)
    opsets = "11-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        return rw.replace(node, [self.write(node, _interpolated(node), rw)])

    @abstractmethod
    def write(self, node: Node, view: Resize, rw: Rewriter) -> Value:
        """Write the other form; declines where it is not faster."""


def _interpolated(node: Node) -> Resize:
    """Read a linear or cubic `Resize` of the height and width of float32 images; declines for others."""
    view = Resize.of(node)
    x = view.x
    if x.is_const:
        raise Decline
    if view.mode not in ("linear", "cubic"):
        raise Decline("{} is not linear or cubic", node.result.name)
    if view.coordinates == "tf_crop_and_resize":
        raise Decline("{} uses tf_crop_and_resize", node.result.name)
    if x.dtype != TensorProto.FLOAT or len(x.dims()) != 4 or len(view.scales) != 4 or view.scales[:2] != (1, 1):
        raise Decline("{} is not a float32 NCHW image of which only H and W are resized", x.name)
    if max(view.scales) == min(view.scales) == 1:  # channels may be first or last
        raise Decline("{} keeps its size", x.name)
    size_of(x)
    return view


_GROWING = 1.5
"""A scale that enlarges any axis of several pixels."""


def _check_sizes_change(view: Resize, result: Value) -> None:
    """Decline if a scale other than 1 keeps the size of an axis of several pixels, or may keep it.

    The runtime copies an operand whose shape does not change, such as unit vectors, and its cubic kernel with channels
    last copies along axes of unchanged size; with channels first, it resamples such an axis if the other one changes.
    """
    for axis in (2, 3):
        factor, before, after = view.scales[axis], view.x.dims()[axis], result.dims()[axis]
        known = isinstance(before, int) and isinstance(after, int)
        if factor != 1 and (before == after != 1 if known else factor < _GROWING):
            raise Decline("the scale {:.4g} may keep the size of axis {}", factor, axis)


def _now(view: Resize, result: Value) -> Work:
    if view.antialias:
        return {"kernel": 1, "resize filtered": count(view.x.dims()) + count(result.dims())}
    return {"kernel": 1, f"resize {view.mode}": count(result.dims())}


_TOGETHER = 8
"""Channels that the kernel processes at once. A remainder takes up to as long as twice as many channels."""


class _ChannelsLast(_Interpolated):
    """Resize with channels last, between two `Transpose`."""

    def write(self, node: Node, view: Resize, rw: Rewriter) -> Value:
        """The kernel takes constant scales, or sizes, for the axes between the first and the last one."""
        kind = self.kind(view, node.result)
        self.weigh(rw, _now(view, node.result), _last(kind, view, node.result))
        scales, sizes = (None if each is None else each[list(LAST)] for each in factors_of(node, view))
        made = resized(node, Transpose(view.x, LAST).write(rw), scales, sizes, rw)
        return Transpose(made, FIRST).write(rw)

    @abstractmethod
    def kind(self, view: Resize, result: Value) -> str:
        """The kind of work of the new form; declines where it is not faster, or not equivalent."""


def _last(kind: str, view: Resize, result: Value) -> Work:
    outputs, channels = count(result.dims()), view.x.size(1)
    left = channels % _TOGETHER if kind == "resize linear last" else 0
    wide = channels - left + 2 * _TOGETHER if left else channels
    return {"kernel": 3, "move": count(view.x.dims()) + outputs, kind: outputs // max(channels, 1) * wide}


class ConvertCubicResizeToChannelsLast(_ChannelsLast):
    """Run a cubic `Resize` that enlarges an image with channels last, between two `Transpose`.

    With channels first, ONNX Runtime recomputes all weights for each pixel of each channel. With channels last it skips
    neighbours of weight zero, so that an infinity there does not give NaN.
    """

    numerics = Numerics.FAST

    def kind(self, view: Resize, result: Value) -> str:
        if view.mode != "cubic" or view.antialias:
            raise Decline("{} is linear or uses antialias: already fast", result.name)
        if min(view.scales) < 1:
            raise Decline("{} shrinks the image, for which there is no faster kernel", result.name)
        _check_sizes_change(view, result)
        return "resize last"


_MOST_OUTPUTS = 1 << 21


class ConvertLinearResizeToChannelsLast(_ChannelsLast):
    """Run a linear `Resize` of images with channels last, between two `Transpose`.

    With channels first, ONNX Runtime recomputes the coordinates of each pixel for each channel.
    """

    numerics = Numerics.EXACT

    def kind(self, view: Resize, result: Value) -> str:
        return _linear_last(view, result)


def _linear_last(view: Resize, result: Value) -> str:
    """The kind of work of a linear `Resize` with channels last; declines where it is not faster, or not equivalent."""
    if view.mode != "linear" or view.antialias:
        raise Decline("{} is cubic or uses antialias", result.name)
    if view.x.size(1) < _TOGETHER:
        raise Decline("{} has {} channels, fewer than {}", view.x.name, view.x.size(1), _TOGETHER)
    if view.scales[2] == 1:
        raise Decline("{} keeps its height, where infinities would propagate differently", view.x.name)
    if count(result.dims()) > _MOST_OUTPUTS:
        raise Decline("{} is too large to stay in the cache between the two operators", result.name)
    return "resize linear last"


def _other_forms(view: Resize, result: Value) -> list[Work]:
    """The work of the forms that other passes would write."""
    with suppress(Decline):
        return [_last(_linear_last(view, result), view, result)]
    return []


class ConvertResizeToProducts(_Interpolated):
    """Replace a `Resize` of images with matrix products with column weights and row weights.

    The weights are the operator's results for unit vectors. The sums of products are as exact as those of its kernel. A
    NaN or an infinity spreads along its row and column.
    """

    numerics = Numerics.ROUNDING
    finite = True

    def write(self, node: Node, view: Resize, rw: Rewriter) -> Value:
        then = _work_of_products(node, view)
        self.weigh(rw, _now(view, node.result), then)
        for other in _other_forms(view, node.result):
            self.weigh_against(rw, other, then)
        return by_products(node, view, view.x, rw)


_INTEGERS = frozenset(
    {"Ceil", "DynamicQuantizeLinear", "Floor", "QuantizeLinear", "Round", "com.microsoft::QuantizeLinear"}
)
_BEFORE = MOVES | {
    "Abs", "Add", "AveragePool", "Clip", "Div", "LeakyRelu", "Max", "MaxPool", "Mean", "Min", "Mul", "Neg", "PRelu",
    "Pad", "Relu", "Resize", "Sub", "Sum", "Where",
}  # fmt: skip
"""Operators behind which many numbers halfway between integers, and integers, are still such."""


def _check_not_rounded(value: Value) -> None:
    """Decline if results become integers: of pixels that are integers many lie on, or halfway between, integers."""
    found = [value]
    for each in found:
        for user in each.users:
            if user.op in _INTEGERS or (user.op == "Cast" and user.attr("to", 0) not in FLOAT_TYPES):
                raise Decline("{} is rounded to integers, which reveals the last bits", value.name)
            if user.op in _BEFORE and len(found) < _MOST_FOLLOWED:
                found.extend(result for result in user.results if result not in found)


_MOST_FOLLOWED = 64
"""Values behind a `Resize` that are followed to an operator that rounds."""


def work_as_products(node: Node) -> Work:
    """The work of the products that replace a `Resize` if it stays in NCHW; declines where no products do."""
    if not ConvertResizeToProducts.knows_opset(node.graph.opset()):
        raise Decline
    return _work_of_products(node, _interpolated(node))


def _work_of_products(node: Node, view: Resize) -> Work:
    """Columns are resized first, since they are contiguous."""
    height, width = view.x.size(2), view.x.size(3)
    rows, columns = node.result.size(2), node.result.size(3)
    if not rows or not columns:
        raise Decline("{} is empty", node.result.name)
    _check_sizes_change(view, node.result)
    _check_not_rounded(node.result)
    if rows != height and not all(isinstance(dim, int) for dim in view.x.dims()[:2]):
        raise Decline("{} may be an empty batch, which MatMul rejects as its right operand", view.x.name)
    images = count(view.x.dims()[:2])
    work = images * (height * width * columns * (columns != width) + height * columns * rows * (rows != height))
    matrices = images * (rows != height)
    return {"kernel": 2, "matrix": matrices, "product": work, "read": count(node.result.dims())}


def by_products(node: Node, view: Resize, x: Value, rw: Rewriter) -> Value:
    """Resize an image by products with the weights of those of its columns and rows whose number changes."""
    if view.x.size(3) != node.result.size(3):
        x = rw.op("MatMul", x, weights_of(node, view, 3, rw))
    if view.x.size(2) != node.result.size(2):
        x = rw.op("MatMul", weights_of(node, view, 2, rw), x)
    return x


def weights_of(node: Node, view: Resize, axis: int, rw: Rewriter) -> Value:
    """The weights of one axis: unit vectors resized along it, to be folded to a constant."""
    before, after = view.x.size(axis), node.result.size(axis)
    scales, sizes = factors_of(node, view)
    others = [at for at in range(4) if at != axis]
    if scales is not None:
        scales[others] = 1
    if sizes is not None:
        sizes[others] = (1, 1, before)
    unit = np.eye(before, dtype=np.float32)[None, None]
    made = resized(node, unit, scales, sizes, rw)
    return rw.op("Reshape", made, np.array((before, after) if axis == 3 else (after, before), np.int64))


class ConvertConstantResizeToProducts(Weighed, OpRule):
    """Replace a `Resize` of a constant, such as position embeddings, to unknown sizes with two matrix products.

    The weights are the operator's results for unit vectors, computed at run time: a small part of its work.
    """

    ops = ("Resize",)
    opsets = "11-"
    numerics = Numerics.ROUNDING
    finite = True

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x = node.operand(0)
        if not x.is_const:
            raise Decline("{} is not constant", x.name)
        mode, dims = str(node.attr("mode", "nearest")), x.dims()
        cropped = node.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
        if mode not in ("cubic", "linear") or cropped:
            raise Decline("{} uses another mode than linear and cubic, or tf_crop_and_resize", node.result.name)
        if node.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
            raise Decline("{} keeps the aspect ratio", node.result.name)
        if x.dtype != TensorProto.FLOAT or len(dims) != 4 or not size_of(x):
            raise Decline("{} is not a float32 NCHW image of which only H and W are resized", x.name)
        if node.input(3) is None:
            raise Decline("{} has scales, which may keep a size but move its pixels", node.result.name)
        if dims[:2] != node.result.dims()[:2]:
            raise Decline("more than the height and width of {} may change", x.name)
        if count(dims[:2]) == 1:
            raise Decline("{} is one image: computing the weights would take as long", x.name)
        height, width = x.size(2), x.size(3)
        rows, columns = (count(node.result.dims()[axis : axis + 1]) for axis in (2, 3))
        images, outputs = count(dims[:2]), count(node.result.dims())
        filtered = bool(node.attr("antialias", 0))
        kind = "resize filtered" if filtered else f"resize {mode}"
        whole = outputs + filtered * count(dims)
        units = height * (rows + filtered * height) + width * (columns + filtered * width)
        work = images * (height * width * columns + height * columns * rows)
        then = {"kernel": 10, kind: units, "matrix": images, "product": work, "read": outputs}
        self.weigh(rw, {"kernel": 1, kind: whole}, then)
        x.check_finite()
        made = rw.op("MatMul", x, _unit_weights(node, 3, rw))
        return rw.replace(node, [rw.op("MatMul", _unit_weights(node, 2, rw), made)])


def _unit_weights(node: Node, axis: int, rw: Rewriter) -> Value:
    """The weights of one axis for sizes that are not constant: unit vectors resized along it."""
    x, given = node.operand(0), node.operand(3)
    axes = node.attr("axes")
    places = [x.axis(each) for each in (range(4) if axes is None else axes)]
    if given.is_const or axis not in places:
        raise Decline("{} is constant, or does not include axis {}", given.name, axis)
    before, at = x.size(axis), places.index(axis)
    own = rw.op("Slice", given, starts=(at,), ends=(at + 1,), axes=(0,))
    kept = [np.array([before], np.int64) if each == 5 - axis else own for each in (2, 3)]
    sizes = rw.op("Concat", np.ones(2, np.int64), *kept, axis=0)
    unit = np.eye(before, dtype=np.float32)[None, None]
    return rw.op("Squeeze", resized(node, unit, None, sizes, rw), axes=(0, 1))


class ConvertNearestResizeToFloor(Weighed, OpRule):
    """Use `asymmetric` coordinates and `floor` in a nearest `Resize` that doubles images: it has its own kernel.

    At scale 2 all coordinate and rounding modes select the same pixels, except `align_corners`.
    """

    ops = ("Resize",)
    opsets = "11-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        view = Resize.of(node)
        if view.mode != "nearest" or view.antialias or view.x.is_const:
            raise Decline
        if (view.coordinates, view.rounding) == ("asymmetric", "floor"):
            raise Decline("{} already uses asymmetric coordinates and floor", node.result.name)
        if not view.repeats:
            raise Decline("{} does not repeat pixels by integer factors", node.result.name)
        if tuple(view.scales) != (1, 1, 2, 2) or view.x.dtype != TensorProto.FLOAT:
            raise Decline("{} is not a float32 image enlarged by 2: there is no faster kernel", view.x.name)
        size_of(view.x)
        outputs = count(node.result.dims())
        self.weigh(rw, {"kernel": 1, "resize nearest": outputs}, {"kernel": 1, "resize doubled": outputs})
        return rw.set_attr(node, coordinate_transformation_mode="asymmetric", nearest_mode="floor")
