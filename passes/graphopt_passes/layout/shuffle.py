"""Channels put in another order between convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators import Split
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
        """Replace a shuffle at its last node, the `Split` if there is one, whose many outputs no pattern can list."""
        if node.op == "Reshape":
            reader = next(iter(node.result.users)) if node.result.one_use else None
            if reader is not None and reader.op == "Split" and _is_divided(reader):
                raise Decline
            x, order = _shuffle(node)
            return rw.replace(node, [rw.op("Gather", x, order, axis=1)])
        x, order = _shuffle(node.operand(0).source("Reshape", reader=node))
        split = Split.of(node)
        if split.axis != 1 or None in node.outputs:
            raise Decline
        if not split.x.one_use:
            raise Decline("{} has other readers", split.x.name)
        if sum(split.sizes) != len(order):
            raise Decline("{} is not split at known channels", split.x.name)
        pieces = [order[start : start + size] for start, size in zip(split.starts, split.sizes, strict=True)]
        return rw.replace(node, [rw.op("Gather", x, piece, axis=1) for piece in pieces])


def _is_divided(node: Node) -> bool:
    """Whether the sizes of the pieces are known."""
    try:
        Split.of(node)
    except Decline:
        return False
    return True


def _shuffle(last: Node) -> tuple[Value, np.ndarray]:
    """The image that the last node of a shuffle reorders, and the channel of it that stands at each place.

    Raises:
        Decline: it is none, or not known to be a shuffle of channels alone.
    """
    transpose = last.operand(0).source("Transpose", reader=last)
    first = transpose.operand(0).source("Reshape", reader=transpose)
    if transpose.attr("perm") != (0, 2, 1, 3, 4):
        raise Decline
    x, grouped = first.operand(0), first.result
    shape, parts = x.dims(), grouped.dims()
    if len(shape) != 4 or None in (*shape[1:], *parts[1:]):
        raise Decline("the sizes of {} are not known", grouped.name)
    channels, groups, members = shape[1], parts[1], parts[2]
    images = shape, (parts[0], channels, *parts[3:]), last.result.dims()
    if any(image[1:] != shape[1:] for image in images) or not _one_batch(images):
        raise Decline("{} does not regroup channels alone", grouped.name)
    if not (isinstance(channels, int) and isinstance(groups, int) and isinstance(members, int)):
        raise Decline("the channels of {} are not known", x.name)
    if groups * members != channels:
        raise Decline("{} regroups more than channels", grouped.name)
    if channels > _MOST_CHANNELS:
        raise Decline("{} channels are too many to state their order", channels)
    for reader in (transpose, last):
        reader.operand(0).sole_source("Reshape", "Transpose", reader=reader)
    return x, np.arange(channels, dtype=np.int64).reshape(groups, members).T.reshape(-1)


def _one_batch(images: Sequence[tuple[Any, ...]]) -> bool:
    """Whether images of equal channels, heights and widths, reshaped from one another, are equally many."""
    first = images[0]
    if first[0] is not None and all(image[0] == first[0] for image in images):
        return True
    # A Reshape gives the batch a name of its own, or none; numbers as many as before make as many images.
    return all(isinstance(dim, int) and dim > 0 for dim in first[1:])
