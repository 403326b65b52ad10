"""Enlarging images of bytes, or images with channels last."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import prod

import numpy as np
from onnx import TensorProto

from graphopt.operators.resize import Resize
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.resize import by_products
from graphopt_passes.algorithm.work import MOST_ELEMENTS, Weighed, Work, check_count, count, size_of
from graphopt_passes.fusion.contrib.operands import NEWEST_OF_BYTES
from graphopt_passes.fusion.contrib.parameters import BYTES

_MOST_COPIES = 1 << 14
"""The largest growth of an image at which sums are exact: of a float's 24 bits, a byte takes 8, and the weights of an
axis that grows by 2**n take n + 1."""

_FIXED = ("half_pixel", "pytorch_half_pixel", "asymmetric")
_RANK = 4


class ConvertNearestResizeToCopies(Weighed, OpRule):
    """Replace a nearest `Resize` of images with channels last with `Concat` of each pixel, and each line, with itself.

    With channels last, the kernel of `Resize` always computes the source index of each element anew.
    """

    ops = ("Resize",)
    opsets = f"11-{NEWEST_OF_BYTES}"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        view = Resize.of(node)
        x, dims, factors = view.x, view.x.dims(), view.scales
        if not view.repeats:
            raise Decline("{} does not repeat pixels by integer factors", node.result.name)
        if len(dims) != _RANK or len(factors) != _RANK or (factors[0], factors[3]) != (1, 1):
            raise Decline("{} is not an NHWC image of which only H and W are resized", x.name)
        down, right = map(int, factors[1:3])
        height, width, channels = (x.size(axis) for axis in (1, 2, 3))
        if down == right == 1:
            raise Decline("{} keeps its size", x.name)
        copied = size_of(x) * right * (1 + down)
        check_count(copied, "elements", MOST_ELEMENTS)
        size = 1 if x.dtype in BYTES else 4
        if x.dtype not in (*BYTES, TensorProto.FLOAT):
            raise Decline("the kernels were not measured for the element type of {}", x.name)
        now = {"kernel": 1, "resize nearest": count(dims) * right * down}
        self.weigh(rw, now, {"kernel": 4, "image pass last": size * copied})
        made = _repeated(x, (-1, channels), right, rw)
        made = _repeated(made, (-1, right * width * channels), down, rw)
        return rw.replace(node, [rw.op("Reshape", made, shape=(-1, down * height, right * width, channels))])


def _repeated(x: Value, shape: Sequence[int], times: int, rw: Rewriter) -> Value:
    """Reshape to a matrix, and repeat each row `times` times along the last axis."""
    rows = rw.op("Reshape", x, np.array(shape, np.int64))
    return rw.op("Concat", *[rows] * times, axis=1)


class _LinearOfBytes(Weighed, OpRule):
    """Replace a linear `Resize` of bytes with a form on floats, truncated to integers as its kernel does."""

    ops = ("Resize",)
    opsets = f"11-{NEWEST_OF_BYTES}"
    numerics = Numerics.EXACT

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        view = Resize.of(node)
        x, dims = view.x, view.x.dims()
        if x.dtype not in BYTES or view.mode != "linear":
            raise Decline
        if len(dims) != _RANK or len(view.scales) != _RANK or view.scales[:2] != (1, 1):
            raise Decline("{} is not an NCHW image of which only H and W are resized", x.name)
        work, written = self.work(node, view), count(node.result.dims())
        casts = {"bytes to floats": count(dims), "floats to bytes": written}
        self.weigh(rw, {"kernel": 1, "resize linear of bytes": written}, {**casts, **work})
        made = self.write(node, view, rw.op("Cast", x, to=TensorProto.FLOAT), rw)
        return rw.replace(node, [rw.op("Cast", made, to=x.dtype)])

    @abstractmethod
    def work(self, node: Node, view: Resize) -> Work:
        """The work of the form besides both casts; declines where some byte would differ."""

    @abstractmethod
    def write(self, node: Node, view: Resize, floats: Value, rw: Rewriter) -> Value:
        """Resize the image of floats."""


class ConvertByteResizeToProducts(_LinearOfBytes):
    """Replace a linear `Resize` that enlarges images of bytes with products of floats with column and row weights.

    For factors that are powers of 2, up to 16384 times as many pixels, all weights and sums are exact, and are
    truncated to integers as before.
    """

    def work(self, node: Node, view: Resize) -> Work:
        x, sizes = view.x, node.result.sizes()
        if view.coordinates not in _FIXED or view.antialias or not all(map(_doubles, view.scales)):
            raise Decline("the scales of {} are not powers of 2, or its weights are not exact", x.name)
        if prod(view.scales) > _MOST_COPIES:
            raise Decline("{} is enlarged {:g} times, for which sums are not exact", x.name, prod(view.scales))
        if 0 in sizes or x.sizes()[:2] != sizes[:2]:
            raise Decline("{} is empty", node.result.name)
        (height, width), (rows, columns) = x.sizes()[2:], sizes[2:]
        images = count(sizes[:2])
        products = images * (height * width * columns + height * columns * rows)
        return {"kernel": 4, "matrix": images, "product": products, "read": count(sizes)}

    def write(self, node: Node, view: Resize, floats: Value, rw: Rewriter) -> Value:
        return by_products(node, view, floats, rw)


class ConvertByteResizeToFloats(_LinearOfBytes):
    """Replace a linear `Resize` of bytes with one of floats between two casts.

    The kernel for bytes computes floats too, pixel by pixel, and truncates them as `Cast` does, so all bytes are equal.
    """

    def work(self, node: Node, view: Resize) -> Work:
        if view.antialias or view.coordinates == "tf_crop_and_resize":
            raise Decline("{} uses antialias or tf_crop_and_resize", node.result.name)
        return {"kernel": 3, "resize linear": count(node.result.dims())}

    def write(self, node: Node, view: Resize, floats: Value, rw: Rewriter) -> Value:
        return rw.again(node, floats, *node.inputs[1:])


def _doubles(factor: float) -> bool:
    return factor >= 1 and float(factor).is_integer() and int(factor) & (int(factor) - 1) == 0
