"""A few values that are concatenated and then reordered."""

from __future__ import annotations

import math

import numpy as np

from graphopt.operators import Slice, Transpose
from graphopt.operators.concat import Concat
from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter, Value
from graphopt_passes.fusion.reshapes import RESHAPES

_MOVES = ("Slice", "Transpose", *RESHAPES)
_MOST = 64
"""The most elements that are tracked one by one."""


class FuseMovesIntoConcat(OpRule):
    """Concatenate parts directly in the order into which later reshapes, `Slice` and `Transpose` bring them.

    PyTorch counts pads from the last axis and exports dynamic ones as a `Concat`, which four operators reorder for
    `Pad`. Both the `Concat` and the result have rank 1 and no more than 64 elements; a part that is not constant must
    stay in one piece.
    """

    # No pattern: there may be any number of parts and moves.
    ops = ("Reshape", "Slice", "Squeeze")
    sources = _MOVES
    opsets = "5-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        if node.result.rank != 1:
            raise Decline
        moves, value = [node], node.operand(0)
        while value.made_by(*_MOVES):
            moves.append(value.sole_source(*_MOVES, reader=moves[-1]))
            value = moves[-1].operand(0)
        if len(moves) < 2:
            raise Decline
        concat = Concat.of(value.source("Concat", reader=moves[-1]))
        if value.rank != 1 or len(concat.sizes) != len(concat.parts) or sum(concat.sizes) > _MOST:
            raise Decline("{} is not a short list concatenated from parts of known sizes", value.name)
        places = np.arange(sum(concat.sizes))
        for move in reversed(moves):
            places = _moved(places, move)
        values = _arranged(concat, places.tolist(), rw)
        return rw.replace(node, [values[0] if len(values) == 1 else rw.op("Concat", *values, axis=0)])


def _moved(places: np.ndarray, move: Node) -> np.ndarray:
    """The original position of each element after a move."""
    if move.op == "Transpose":
        return places.transpose(Transpose.of(move).perm)
    if move.op in RESHAPES:
        sizes = move.result.sizes()
        if math.prod(sizes) != places.size:
            raise Decline("{} does not have as many elements as its operand", move.result.name)
        return places.reshape(sizes)
    cuts = Slice.of(move).cuts
    for axis, cut in cuts.items():
        places = places.take(np.array(cut.positions(places.shape[axis]), np.int64), axis)
    return places


def _arranged(concat: Concat, places: list[int], rw: Rewriter) -> list[Value]:
    """The parts, and pieces of constant parts, whose concatenation holds the elements at `places` in order."""
    starts = np.cumsum((0, *concat.sizes)).tolist()
    owners = np.repeat(np.arange(len(concat.parts)), concat.sizes).tolist()
    values: list[Value] = []
    at = 0
    while at < len(places):
        part, size = concat.parts[owners[places[at]]], concat.sizes[owners[places[at]]]
        if part.is_const:
            ends = [i for i in range(at, len(places)) if not concat.parts[owners[places[i]]].is_const]
            end = min(ends, default=len(places))
            numbers = [concat.parts[owners[place]].array()[place - starts[owners[place]]] for place in places[at:end]]
            values.append(rw.constant(np.array(numbers, part.array().dtype), like=part))
        else:
            first, end = starts[owners[places[at]]], at + size
            if places[at:end] != list(range(first, first + size)):
                raise Decline("{} does not stay contiguous", part.name)
            values.append(part)
        at = end
    if not values:
        raise Decline("the result is empty")
    return values
