"""A scale and a shift per channel: batch normalization, and `Mul`, `Div`, `Add` and `Sub` with a constant."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.records import dataclass


@dataclass(frozen=True, slots=True)
class Affine:
    """`scale * y + shift` with float64 numbers per channel.

    Attributes:
        scale: the factors; None for 1.
        shift: the addends; None for 0.
    """

    scale: np.ndarray | None = None
    shift: np.ndarray | None = None

    @classmethod
    def of(cls, node: Node, value: Value, rank: int, axis: int, channels: int) -> Affine:
        """Read a node as an affine function of one of its operands.

        Args:
            node: a `BatchNormalization`, `Mul`, `Div`, `Add` or `Sub`.
            value: the operand.
            rank: its rank.
            axis: its channel axis, from the front.
            channels: its number of channels.

        Raises:
            Decline: it is none of these, its other operand is not one finite constant number per channel, or the
                result is no affine function of the operand.
        """
        if node.op == "BatchNormalization":
            return cls.of_normalization(node, channels)
        if node.op not in ("Add", "Div", "Mul", "Sub") or not node.graph.broadcasts(node.op):
            raise Decline
        is_left = node.operand(0) is value
        other = node.operand(1) if is_left else node.operand(0)
        row = per_channel(other, rank, axis, channels)
        if node.op == "Add":
            return cls(shift=row)
        if node.op == "Mul":
            return cls(scale=row)
        if not is_left:
            raise Decline(
                "{} is the {}, not the left operand", value.name, "subtrahend" if node.op == "Sub" else "divisor"
            )
        if node.op == "Sub":
            return cls(shift=-row)
        if not row.all():
            raise Decline("{} is divided by zero", value.name)
        return cls(scale=1.0 / row)

    @classmethod
    def of_normalization(cls, node: Node, channels: int | None = None) -> Affine:
        """Read a `BatchNormalization` with constant statistics.

        It supports all opsets: `is_test` up to 6, `spatial` up to 8, `training_mode` from 14. Before opset 14, more
        than one output means that statistics are computed from the batch.

        Raises:
            Decline: the statistics come from the batch, are not constant, not per channel, or not finite.
        """
        opset = node.graph.opset()
        if opset < 7 and not node.attr("is_test", 0):
            raise Decline("is_test is not set: the statistics come from the batch")
        if opset < 9 and not node.attr("spatial", 1):
            raise Decline("spatial is 0: every position has its own statistics")
        if node.attr("training_mode", 0):
            raise Decline("training_mode is set: the statistics come from the batch")
        if any(value is not None for value in node.outputs[1:]):
            raise Decline("{} also outputs statistics", node.name or "the normalization")
        given = [node.operand(index).array() for index in range(1, 5)]
        scale, shift, mean, variance = rows = [row.astype(np.float64) for row in given]
        if any(row.ndim != 1 or row.shape != scale.shape for row in rows):
            raise Decline("the statistics do not have one number per channel")
        with np.errstate(all="ignore"):
            factor = scale / np.sqrt(variance + np.float64(np.float32(node.attr("epsilon"))))
            moved = mean * factor
            offset = shift - moved
            # A runtime computes these in the type of the result, in which they must not overflow either.
            singles = given[0].dtype != np.float64
            computed = [row.astype(np.float32) if singles else row for row in (factor, moved, offset)]
        if not all(np.isfinite(row).all() for row in computed):
            raise Decline("the scale and shift computed from the statistics are not finite")
        if channels is not None and len(factor) != channels:
            raise Decline("{} statistics for {} channels", len(factor), channels)
        return cls(factor, offset)

    def mapped(self, change: Callable[[np.ndarray], np.ndarray]) -> Affine:
        """Apply a function to the factors and to the addends."""
        return Affine(*(None if row is None else change(row) for row in (self.scale, self.shift)))

    def share(self, channels: slice) -> Affine:
        """The restriction to some of the channels."""
        return self.mapped(lambda row: row[channels])

    def among(self, part: range, channels: int) -> Affine:
        """The extension to `channels` channels: this function on the channels in `part`, the identity on the others."""
        rows: list[np.ndarray | None] = []
        for row, nothing in ((self.scale, 1.0), (self.shift, 0.0)):
            full = None if row is None else np.full(channels, nothing)
            if full is not None:
                full[part.start : part.stop] = row
            rows.append(full)
        return Affine(*rows)

    def of_bias(self, bias: np.ndarray | None, channels: int) -> np.ndarray | None:
        """The bias after this function, in float64; None if there is neither a bias nor a shift."""
        if bias is None and self.shift is None:
            return None
        row = np.zeros(channels) if bias is None else bias
        row = row if self.scale is None else row * self.scale
        return row if self.shift is None else row + self.shift


def per_channel(value: Value, rank: int, axis: int, channels: int) -> np.ndarray:
    """A constant that broadcasts to a result, as one finite float64 number per channel.

    Args:
        value: the constant.
        rank: the rank of the result.
        axis: its channel axis, from the front.
        channels: its number of channels.

    Raises:
        Decline: it is not constant, varies along another axis, would change the shape or the rank of the result, or is
            not finite.
    """
    constant = value.array()
    shape = (1,) * (rank - constant.ndim) + constant.shape
    fits = len(shape) == rank and all(size == 1 or at == axis for at, size in enumerate(shape))
    if not fits or shape[axis] not in (1, channels):
        raise Decline("{} has shape {}, expected one number per channel", value.name, constant.shape)
    row = np.broadcast_to(constant.astype(np.float64).reshape(-1), (channels,))
    if not np.isfinite(row).all():
        raise Decline("{} is not finite", value.name)
    return row
