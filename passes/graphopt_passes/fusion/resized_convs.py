"""1x1 convolutions after a `Resize` that enlarges their input."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import reduce
from math import prod

import numpy as np
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators import Concat
from graphopt.operators.resize import Resize, factors_of, resized
from graphopt.operators.window import Window
from graphopt.records import dataclass
from graphopt.rewrite import Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.algorithm.work import Weighed, count, size_of
from graphopt_passes.fusion.contrib.operands import DOMAIN

_FUSED = f"{DOMAIN}::FusedConv"
_ACTIVATIONS = ("", "Relu", "Sigmoid", "Tanh")
"""The activations of `FusedConv` that are operators without parameters."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of the channels that a convolution reads.

    Attributes:
        x: the value that holds them.
        start: the first channel.
        resize: the `Resize` that computes `x`, and its view, if the convolution can move before it.
    """

    x: Value
    start: int
    resize: tuple[Node, Resize] | None = None

    @property
    def stays(self) -> bool:
        """Whether the convolution reads `x` itself, as before."""
        return self.resize is None

    @property
    def pixels(self) -> int:
        """How many elements the convolution reads."""
        return count((self.x if self.resize is None else self.resize[1].x).dims())


class MoveConvBeforeResize(Weighed, OpRule):
    """Move a 1x1 convolution before the `Resize` that enlarges its input.

    A linear or nearest `Resize` computes a mean of pixels, the same for all channels, and the convolution a sum of
    channels, the same for all pixels, so the two commute. Of concatenated channels, those that come from smaller images
    get a convolution of their own, and the results are added, as in decoders that join all levels of a pyramid. This
    runs before the layout of images is chosen.
    """

    # No pattern: any number of parts may be concatenated.
    ops = ("Conv", _FUSED)
    sources = ("Concat", "Resize")
    needs = (("Resize",),)
    opsets = "11-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, weight = node.operand(0), node.operand(1)
        joined = x.source("Concat", "Resize", reader=node)
        if node.result.dtype != TensorProto.FLOAT or len(x.dims()) != 4:
            raise Decline("{} is not a float32 image, for which the kernels were measured", x.name)
        array = weight.array()
        if array.shape[2:] != (1, 1) or node.attr("group", 1) != 1:
            raise Decline("{} is not an ungrouped 1x1 convolution", node.result.name)
        window = Window.of(node, (1, 1))
        if window.strides != (1, 1) or any(window.before + window.after):
            raise Decline("{} has strides or padding", node.result.name)
        if str(node.attr("activation", "")) not in _ACTIVATIONS or len(node.inputs) > 3:
            raise Decline("{} adds a residual, or its activation has parameters", node.result.name)
        size_of(x)
        parts = self._parts(joined, node)
        if all(part.stays for part in parts):
            raise Decline("no part of {} is enlarged enough to pay for the additions", x.name)
        _check_finite(node, array, parts)
        self._weigh(node, parts, rw)
        return rw.replace(node, [_written(node, array, parts, rw)])

    def _parts(self, joined: Node, reader: Node) -> list[_Part]:
        """The parts of the convolution's input, each with the `Resize` that the convolution can move before."""
        whole = reader.operand(0)
        if joined.op == "Resize":
            return [self._part(whole, 0, reader)]
        concat = Concat.of(joined)
        if concat.axis != 1 or not whole.one_use:
            raise Decline("{} is not concatenated along channels for {} only", whole.name, reader.result.name)
        parts, start = list[_Part](), 0
        for value in concat.parts:
            parts.append(self._part(value, start, joined))
            start += value.size(1)
        return parts

    @staticmethod
    def _part(value: Value, start: int, reader: Node) -> _Part:
        with suppress(Decline):
            node = value.sole_source("Resize", reader=reader)
            view = Resize.of(node)
            factors_of(node, view)
            is_mean = view.mode in ("linear", "nearest") and not view.antialias
            enlarges = len(view.scales) == 4 and view.scales[:2] == (1, 1) and prod(view.scales) > 1
            if is_mean and enlarges and view.coordinates != "tf_crop_and_resize":
                return _Part(value, start, (node, view))
        return _Part(value, start)

    def _weigh(self, node: Node, parts: list[_Part], rw: Rewriter) -> None:
        outputs, size = node.result.size(1), count(node.result.dims())
        now, then = defaultdict[str, float](float), defaultdict[str, float](float)
        kept = [part for part in parts if part.stays]
        now["kernel"], then["kernel"] = 1 + (len(parts) > 1), len(kept[:1]) + (len(kept) > 1)
        now["element"] = sum(count(part.x.dims()) for part in parts) * (len(parts) > 1)
        then["element"] = sum(part.pixels for part in kept) * (len(kept) > 1)
        for part in parts:
            elements = count(part.x.dims())
            now["product"] += elements * outputs
            then["product"] += part.pixels * outputs
            if part.resize is not None:
                kind = f"resize {part.resize[1].mode}"
                now[kind] += elements
                then[kind] += size
                now["kernel"] += 1
                then["kernel"] += 3
                then["element"] += size
        self.weigh(rw, now, then)


def _check_finite(node: Node, array: np.ndarray, parts: list[_Part]) -> None:
    """Decline if a weight or bias may be infinite: interpolating the result multiplies infinity by 0, which is NaN."""
    views = [part.resize[1] for part in parts if part.resize is not None]
    if all(view.mode == "nearest" for view in views):
        return
    if not np.isfinite(array).all():
        raise Decline("weights of {} are not finite", node.result.name)
    bias = node.input(2)
    if bias is not None and len(views) == len(parts):
        bias.check_finite()


def _written(node: Node, array: np.ndarray, parts: list[_Part], rw: Rewriter) -> Value:
    """The sum of all products, and the activation."""
    total = reduce(lambda total, made: rw.op("Add", total, made), _products(node, array, parts, rw))
    activation = str(node.attr("activation", ""))
    return rw.op(activation, total) if activation else total


def _products(node: Node, array: np.ndarray, parts: list[_Part], rw: Rewriter) -> Iterator[Value]:
    """A convolution of the parts that stay, and one before each `Resize`; the first one adds the bias."""
    bias, kept = node.input(2), [part for part in parts if part.stays]
    if kept:
        whole = kept[0].x if len(kept) == 1 else rw.op("Concat", *(part.x for part in kept), axis=1)
        weight = np.concatenate([_share(array, part) for part in kept], axis=1)
        yield rw.op("Conv", whole, weight, bias, kernel_shape=(1, 1))
        bias = None
    for part in parts:
        if part.resize is not None:
            resize, view = part.resize
            small = rw.op("Conv", view.x, np.ascontiguousarray(_share(array, part)), bias, kernel_shape=(1, 1))
            bias = None
            scales, sizes = factors_of(resize, view)
            if sizes is not None:
                sizes[1] = len(array)
            yield resized(resize, small, scales, sizes, rw)


def _share(array: np.ndarray, part: _Part) -> np.ndarray:
    return array[:, part.start : part.start + part.x.size(1)]
