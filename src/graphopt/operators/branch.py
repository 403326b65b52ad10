"""Linear branches of a network, as convolutions that can be summed."""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node
from graphopt.operators.affine import Affine
from graphopt.operators.linear import Convolution, block_diagonal
from graphopt.operators.window import Window
from graphopt.records import dataclass

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Branch:
    """A convolution with all defaults made explicit.

    Attributes:
        kernel: weights in float64, `[out, in / group, *size]`.
        bias: one number per output channel, in float64.
        group: the number of groups.
        strides: by spatial axis.
        dilations: by spatial axis; 1 where the kernel has size 1.
        before: padding at the start of each spatial axis.
        after: padding at the end of each spatial axis.
    """

    kernel: np.ndarray
    bias: np.ndarray
    group: int
    strides: Sizes
    dilations: Sizes
    before: Sizes
    after: Sizes

    @classmethod
    def of(cls, node: Node) -> Branch:
        """Read a `Conv` with constant weights; declines if the padding depends on the size of the input."""
        conv = Convolution.of(node)
        kernel, bias = conv.kernel.array(), conv.bias()
        window = Window.of(node, kernel.shape[2:])
        before, after = window.padding()
        # the dilation of an axis with one element has no effect
        dilations = tuple(1 if size == 1 else step for size, step in zip(window.kernel, window.dilations, strict=True))
        row = np.zeros(kernel.shape[0]) if bias is None else bias
        return cls(kernel.astype(np.float64), row, conv.group, window.strides, dilations, before, after)

    @property
    def size(self) -> Sizes:
        """The size of the kernel."""
        return tuple(self.kernel.shape[2:])

    @property
    def cost(self) -> int:
        """Multiplications per element of the output."""
        return prod(self.kernel.shape[1:])

    @property
    def channels(self) -> tuple[int, int]:
        """Input and output channels."""
        return self.kernel.shape[1] * self.group, self.kernel.shape[0]

    def negated(self) -> Branch:
        """The branch with negated results."""
        return replace(self, kernel=-self.kernel, bias=-self.bias)

    def passing_on(self, normalization: Node | None) -> Branch:
        """The identity, or a normalization, as a depthwise 1x1 convolution with this branch's channels."""
        inputs, outputs = self.channels
        affine = Affine() if normalization is None else Affine.of_normalization(normalization)
        scale = np.ones(outputs) if affine.scale is None else affine.scale
        shift = np.zeros(outputs) if affine.shift is None else affine.shift
        if inputs != outputs or len(scale) != outputs or not outputs:
            raise Decline("the branch has {} input channels and {} output channels", inputs, outputs)
        one, zero = ((number,) * len(self.size) for number in (1, 0))
        return Branch(scale.reshape(-1, 1, *one), shift, outputs, one, one, zero, zero)

    def plus(self, other: Branch) -> Branch:
        """One convolution that computes the sum of both branches of one input; declines if it would cost more."""
        if self.strides != other.strides:
            raise Decline("the branches have different strides, {} and {}", self.strides, other.strides)
        if self.channels != other.channels:
            raise Decline(
                "the branches have different input or output channels, {} and {}", self.channels, other.channels
            )
        firsts, lasts, steps, rests = zip(
            *(_join_axis(self, other, axis) for axis in range(len(self.size))), strict=True
        )
        group = gcd(self.group, other.group)
        size = tuple((last - first) // step + 1 for first, last, step in zip(firsts, lasts, steps, strict=True))
        cost = self.channels[0] // group * prod(size)
        if cost > self.cost + other.cost:
            raise Decline(
                "the merged convolution takes {} multiplications per output, the branches {} and {}",
                cost,
                self.cost,
                other.cost,
            )
        kernel = np.zeros((self.kernel.shape[0], self.channels[0] // group, *size))
        read = np.zeros(kernel.shape, bool)
        for branch in (self, other):
            place = tuple(
                slice((-pad - first) // step, (-pad - first) // step + length)
                for pad, length, first, step in zip(branch.before, branch.size, firsts, steps, strict=True)
            )
            merge = branch.group // group
            kernel[(slice(None), slice(None), *place)] += block_diagonal(branch.kernel, branch.group, merge)
            # each of the merged groups reads its own channels only, the same at all taps
            channels = np.ones((*branch.kernel.shape[:2], *(1,) * len(size)), bool)
            read[(slice(None), slice(None), *place)] |= block_diagonal(channels, branch.group, merge)
        if not read.all():
            raise Decline("zero weights would multiply inputs that neither branch reads")
        before = tuple(-first for first in firsts)
        after = tuple(last + rest for last, rest in zip(lasts, rests, strict=True))
        return Branch(kernel, self.bias + other.bias, group, self.strides, steps, before, after)


_NOT_ALIGNED = "the windows of the branches are not aligned"


def _join_axis(a: Branch, b: Branch, axis: int) -> tuple[int, int, int, int]:
    """First and last tap, their step, and the padding after the last tap, of a window that covers both branches."""
    lengths = (a.size[axis], b.size[axis])
    steps = {branch.dilations[axis] for branch, n in zip((a, b), lengths, strict=True) if n > 1} or {1}
    if len(steps) > 1:
        raise Decline(_NOT_ALIGNED)
    step = steps.pop()
    firsts = [-branch.before[axis] for branch in (a, b)]
    lasts = [first + step * (n - 1) for first, n in zip(firsts, lengths, strict=True)]
    rests = [branch.after[axis] - last for branch, last in zip((a, b), lasts, strict=True)]
    if (firsts[0] - firsts[1]) % step or rests[0] != rests[1]:
        raise Decline(_NOT_ALIGNED)
    return min(firsts), max(lasts), step, rests[0]
