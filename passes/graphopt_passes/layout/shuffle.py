"""Channels put in another order between convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from graphopt.ir import Node, Value
from graphopt.match import Mismatch
from graphopt.rewrite import Level, Numerics, OpRule, Outcome, Rewriter

_MOST_CHANNELS = 1 << 16
"""The order of more is not written down: a model need only state to have them."""


class ConvertChannelShuffleToGather(OpRule):
    """Shuffle channels by one `Gather`, or one for each piece that they are split into afterwards.

    A shuffle is a `Reshape` of the channels to groups, a `Transpose` of groups and members, and a `Reshape` back.
    `Gather` copies whole channels and needs no pass of its own for the `Split`.
    """

    name = "convert_channel_shuffle_to_gather"
    ops = ("Reshape", "Split")
    level = Level.LAYOUT
    numerics = Numerics.EXACT
    opsets = "7-"
    peers: ClassVar[dict[str, str]] = {}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Replace a shuffle at its last node, the `Split` if there is one."""
        if node.op == "Split":
            return self._split(node, rw)
        out = node.output(0)
        shuffle = read_shuffle(out)
        if isinstance(shuffle, Mismatch) or out is None or shuffle is None:
            return shuffle if isinstance(shuffle, Mismatch) else None
        if out.one_use and next(iter(out.users)).op == "Split" and _sizes(next(iter(out.users)), 1) is not None:
            return None
        x, order = shuffle
        return rw.replace(node, [rw.op("Gather", x, order, axis=1)])

    def _split(self, node: Node, rw: Rewriter) -> Outcome:
        value = node.input(0)
        shuffle = read_shuffle(value)
        if value is None or not isinstance(shuffle, tuple) or node.attr("axis", 0) not in (1, -3):
            return None
        if not value.one_use:
            return Mismatch("{} has other readers", value.name)
        x, order = shuffle
        sizes = _sizes(node, len(order))
        if sizes is None or sum(sizes) != len(order) or None in node.outputs:
            return Mismatch("{} is not split at known channels", value.name)
        ends = np.cumsum(sizes)
        pieces = [order[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        return rw.replace(node, [rw.op("Gather", x, piece, axis=1) for piece in pieces])


def read_shuffle(value: Value | None) -> tuple[Value, np.ndarray] | Mismatch | None:
    """For a shuffled image: the image, and the channel of it that stands at each place.

    Args:
        value: what may be a shuffled image.

    Returns:
        None when it is made by something else; a `Mismatch` when it is not known to be a shuffle of channels alone.
    """
    second = value.producer if value is not None else None
    transposed = second.input(0) if second is not None and second.op == "Reshape" else None
    transpose = transposed.producer if transposed is not None else None
    if value is None or transposed is None or transpose is None or transpose.op != "Transpose":
        return None
    grouped = transpose.input(0)
    first = grouped.producer if grouped is not None else None
    if (
        grouped is None
        or first is None
        or first.op != "Reshape"
        or tuple(transpose.attr("perm") or ()) != (0, 2, 1, 3, 4)
    ):
        return None
    x = first.input(0)
    shape, parts = (x.shape, grouped.shape) if x is not None else (None, None)
    if x is None or shape is None or parts is None or len(shape) != 4 or None in shape[1:] or None in parts[1:]:
        return Mismatch("the sizes of {} are not known", grouped.name)
    channels, groups, members = shape[1], parts[1], parts[2]
    images = (shape, (parts[0], channels, *parts[3:]), value.shape or ())
    if any(image[1:] != shape[1:] for image in images) or not _one_batch(images):
        return Mismatch("{} does not regroup channels alone", grouped.name)
    if not (isinstance(channels, int) and isinstance(groups, int) and isinstance(members, int)):
        return Mismatch("the channels of {} are not known", x.name)
    if channels > _MOST_CHANNELS:
        return Mismatch("{} channels are too many to state their order", channels)
    if groups * members != channels:
        return Mismatch("{} regroups more than channels", grouped.name)
    if not grouped.one_use or not transposed.one_use:
        return Mismatch("{} has other readers", grouped.name if not grouped.one_use else transposed.name)
    return x, np.arange(channels, dtype=np.int64).reshape(groups, members).T.reshape(-1)


def _one_batch(images: Sequence[tuple[Any, ...]]) -> bool:
    """Whether images of equal channels, heights and widths, reshaped from one another, are equally many."""
    first = images[0]
    if first[0] is not None and all(image[0] == first[0] for image in images):
        return True
    # A Reshape gives the batch a name of its own, or none; numbers as many as before make as many images.
    return all(isinstance(dim, int) and dim > 0 for dim in first[1:])


def _sizes(node: Node, channels: int) -> list[int] | None:
    """The channels of each piece of a Split along axis 1."""
    stated = node.ints("split")
    if stated:
        return list(stated)
    count = len(node.outputs)
    each = -(-channels // count)
    return [max(min(each, channels - each * at), 0) for at in range(count)]
