"""Pooling operators whose kernels read windows element by element."""

from __future__ import annotations

from math import prod

import numpy as np
from onnx import TensorProto

from graphopt.operators.builder import with_operand
from graphopt.operators.pool import Pool
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, check_count, count, size_of


class ConvertAveragePoolToConv(Weighed, OpRule):
    """Replace an `AveragePool` of opset 19 or later with a depthwise convolution with equal weights.

    From opset 19 on, ONNX Runtime uses a kernel for dilated windows, 3 to 20 times as slow. If windows contain padding
    that does not count, their sums are multiplied by a constant image.
    """

    ops = ("AveragePool",)
    opsets = "19-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        view = Pool.of(node)
        x, dims = view.x, view.x.dims()
        if x.dtype != TensorProto.FLOAT or len(dims) != 4:
            raise Decline("{} is not a float32 image, for which the kernels were measured", x.name)
        if view.ceil or view.same:
            raise Decline("the last window of {} may extend beyond the padding", node.result.name)
        view.check_fits()
        channels, taps = x.size(1), prod(view.kernel)
        check_count(channels)
        padded = any(view.before + view.after)
        counted = not padded or view.counts_padding
        scale = None if counted else _counts(view, node.result)
        size_of(x)
        outputs, planes = count(node.result.dims()), count(x.dims()[:2])  # a depthwise product for each plane
        kind = "taps" if set(view.strides) == {1} else "strided taps"
        passes = 0 if counted else outputs
        now = {"kernel": 1, "average": outputs * taps}
        then = {"kernel": 1 + bool(passes), kind: outputs * taps, "matrix": planes, "element": passes}
        self.weigh(rw, now, then)
        weight = np.full((channels, 1, *view.kernel), 1 / taps if counted else 1, np.float32)
        made = rw.op(
            "Conv", x, weight, group=channels, kernel_shape=view.kernel, strides=view.strides,
            dilations=view.dilations, pads=(*view.before, *view.after),
        )  # fmt: skip
        return rw.replace(node, [with_operand(rw, "Mul", made, scale)])


def _counts(view: Pool, result: Value) -> np.ndarray:
    """The reciprocal of the number of image elements in each window."""
    shares = np.ones((1, 1), np.float32)
    for at in range(2):
        size, windows = view.x.size(2 + at), result.size(2 + at)
        check_count(windows, "windows")
        first = np.arange(windows)[:, None] * view.strides[at] - view.before[at]
        places = first + np.arange(view.kernel[at]) * view.dilations[at]
        inside = ((places >= 0) & (places < size)).sum(axis=1).astype(np.float32)
        if not inside.all():
            raise Decline("a window of {} contains only padding", result.name)
        shares = shares * (inside[:, None] if at == 0 else inside[None, :])
    return 1 / shares


_DILATED_SINCE = 19
"""The opset from which on `AveragePool` uses the kernel for dilated windows."""


class PoolToReduction(Weighed, OpRule):
    """Replace a pool whose only window is the whole image with `ReduceMean` or `ReduceMax` over its axes."""

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x = node.operand(0)
        view = None if node.op.startswith("Global") else Pool.of(node)
        rank = len(x.dims())
        if x.dtype != TensorProto.FLOAT or rank < 3 or (view is not None and rank != 2 + len(view.kernel)):
            raise Decline("{} is not a float32 image, for which the kernels were measured", x.name)
        if view is not None:
            _check_whole(view, node.result)
        reduction = "ReduceMax" if "Max" in node.op else "ReduceMean"
        if reduction == "ReduceMean" and (reader := _tells_apart(node.result)):
            raise Decline("rounding may make equal channels differ, which affects {}", reader.op)
        size = size_of(x)
        slow = node.op == "AveragePool" and rw.graph.opset() >= _DILATED_SINCE
        self.weigh(rw, {"kernel": 1, "average" if slow else "global pool": size}, {"kernel": 1, "reduce": size})
        return rw.replace(node, [rw.op(reduction, x, axes=tuple(range(2, rank)))])


_TELLING = ("ArgMax", "ArgMin", "Hardmax", "LogSoftmax", "Softmax", "TopK")
_BETWEEN = ("Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


def _tells_apart(value: Value, most: int = 8) -> Node | None:
    """A reader that compares channels by their means, so that rounding may decide."""
    for user in value.users:
        if user.op in _TELLING or (user.op in _BETWEEN and not most):
            return user
        if user.op in _BETWEEN and (found := _tells_apart(user.results[0], most - 1)):
            return found
    return None


def _check_whole(view: Pool, result: Value) -> None:
    """Decline unless the window is the whole image, without padding."""
    image = view.x.dims()[2:]
    if image != view.kernel or set(view.dilations) != {1}:
        raise Decline("the window of {} does not cover all of {}", result.name, view.x.name)
    strides = set(view.strides)
    grown = view.same and (set(view.kernel) != {1} if strides == {1} else image != view.strides)
    if any(view.before + view.after) or grown:
        raise Decline("{} is padded", view.x.name)


class ConvertGlobalAveragePoolToReduceMean(PoolToReduction):
    """Replace `GlobalAveragePool` with `ReduceMean`, which sums several rows at a time."""

    ops = ("GlobalAveragePool",)
    numerics = Numerics.ROUNDING


class ConvertGlobalMaxPoolToReduceMax(PoolToReduction):
    """Replace `GlobalMaxPool` with `ReduceMax`, which compares several rows at a time."""

    ops = ("GlobalMaxPool",)
    numerics = Numerics.FAST


class ConvertFullAveragePoolToReduceMean(PoolToReduction):
    """Replace an `AveragePool` whose only window is the whole image with `ReduceMean`.

    From opset 19 on, the kernel for dilated windows takes 8 to 37 times as long.
    """

    ops = ("AveragePool",)
    numerics = Numerics.ROUNDING


class ConvertFullMaxPoolToReduceMax(PoolToReduction):
    """Replace a `MaxPool` whose only window is the whole image with `ReduceMax`.

    Results differ for NaN.
    """

    ops = ("MaxPool",)
    numerics = Numerics.FAST
