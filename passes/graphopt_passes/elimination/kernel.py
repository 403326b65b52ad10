"""Kernel elements of a convolution that only multiply padding."""

from __future__ import annotations

import numpy as np

from graphopt.operators.window import KernelAxis
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter


class EliminatePaddedKernelCells(OpRule):
    """Crop border elements of a `Conv`'s kernel that lie in the padding at every position of the window.

    For example, a 3x3 kernel of dilation 24 on a 14x14 image multiplies the image with its center only: it is a 1x1
    kernel. Segmentation networks have these if their input is small.
    """

    ops = ("Conv",)
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        weight, axes = node.operand(1), KernelAxis.of(node)
        live = [axis.live() for axis in axes]
        if all(cells == (0, axis.cells - 1) for axis, cells in zip(axes, live, strict=True)):
            raise Decline
        array = weight.array()
        if array.dtype.kind != "f" or not np.isfinite(array).all():
            raise Decline("the weight {} is not finite", weight.name)
        smaller = [axis.cut(*cells) for axis, cells in zip(axes, live, strict=True)]
        kept = array[(slice(None), slice(None), *(slice(first, last + 1) for first, last in live))]
        made = rw.again(
            node, node.inputs[0], rw.constant(np.ascontiguousarray(kept), like=weight), *node.inputs[2:],
            kernel_shape=kept.shape[2:], pads=(*(axis.before for axis in smaller), *(axis.after for axis in smaller)),
            dilations=tuple(axis.dilation for axis in smaller),
        )  # fmt: skip
        return rw.replace(node, [made])
