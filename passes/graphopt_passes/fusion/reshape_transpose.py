"""A `Transpose` between two reshapes."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.match import Match, OpBuilder, Pattern
from graphopt.operators import Reshape, Transpose
from graphopt.operators.transpose import units_beside
from graphopt.rewrite import Decline, Dim, PatternRule, Rewriter, Value
from graphopt_passes.fusion.reshapes import RESHAPES


class FuseReshapeIntoTranspose(PatternRule):
    """Fold the reshape after a `Transpose` into the reshape before it, or remove both reshapes.

    The second reshape only splits dimensions, or inserts and removes dimensions of size 1, so it can be done before the
    `Transpose`, which then moves the parts of a dimension together. Where that restores the shape before the first
    reshape, as in attention computed with rank 3, only the `Transpose` is left. The first reshape stays for its other
    readers.
    """

    opsets = "5-"

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        reshape = op.AnyOf(*RESHAPES)
        return reshape(op.Transpose(reshape(x, ..., _shared=True), ..., _bind="transpose"), ...)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        transpose, result, x = Transpose.of(m.transpose), m.root.result, m.x
        middle = m.transpose.result
        shape = result.dims()
        otherwise = Decline("{} is not known to only split dimensions of {}", result.name, middle.name)
        groups = _parted(middle.dims(), shape, otherwise)
        order = _as_before(x.dims(), shape, [axis for at in transpose.inverse for axis in groups[at]])
        wanted = [shape[axis] for axis in order]
        if list(x.dims()) != wanted or None in wanted:
            x = Reshape.to(x, wanted).write(rw)
        back = tuple(sorted(range(len(order)), key=order.__getitem__))
        return Transpose(x, back).write(rw)


def _as_before(before: Sequence[Dim], shape: Sequence[Dim], order: list[int]) -> list[int]:
    """Place the axes of size 1 in `order` so that the shape is `before`; if impossible, beside their neighbours."""
    others = [axis for axis in order if shape[axis] != 1]
    ones = [axis for axis in range(len(shape)) if shape[axis] == 1]
    if len(before) == len(shape):
        rest, units = iter(others), iter(ones)
        moved = [next(units if dim == 1 else rest, None) for dim in before]
        found = [axis for axis in moved if axis is not None]
        if len(found) == len(order) and [shape[axis] for axis in found] == list(before):
            return found
    return units_beside(others, shape)


def _parted(before: Sequence[Dim], after: Sequence[Dim], otherwise: Decline) -> list[list[int]]:
    """For each axis of `before`, the axes of `after` that a reshape splits it into, in order.

    Dimensions of one name are equal; an axis of size 1 may vanish. Raises `otherwise` if that is not known.
    """
    low = _equal(before, after)
    high = _equal(before[low:][::-1], after[low:][::-1])
    end = len(after) - high
    inner, ones = _parted_inner(before[low : len(before) - high], after[low:end], otherwise)
    groups = [[axis] for axis in range(low)]
    groups += [[low + axis for axis in group] for group in inner]
    groups += [[axis] for axis in range(end, len(after))]
    if ones and not groups:
        raise otherwise
    if low + len(inner) < len(groups):
        groups[low + len(inner)][:0] = [low + axis for axis in ones]
    elif ones:
        groups[-1] += [low + axis for axis in ones]
    return groups


def _equal(before: Sequence[Dim], after: Sequence[Dim]) -> int:
    """How many leading dimensions are known to be equal."""
    count = 0
    while count < min(len(before), len(after)) and before[count] is not None and before[count] == after[count]:
        count += 1
    return count


def _parted_inner(before: Sequence[Dim], after: Sequence[Dim], otherwise: Decline) -> tuple[list[list[int]], list[int]]:
    """The groups, and the trailing axes of size 1 that are in none."""
    if len(before) == 1:
        return [list(range(len(after)))], []
    sizes = [dim for dim in after if isinstance(dim, int) and dim > 0]
    groups: list[list[int]] = []
    at = 0
    for dim in before:
        if not isinstance(dim, int) or dim < 1 or len(sizes) < len(after):
            raise otherwise
        start, product = at, 1
        while at < len(sizes) and (product < dim or (dim == 1 and at == start and sizes[at] == 1)):
            product *= sizes[at]
            at += 1
        if product != dim:
            raise otherwise
        groups.append(list(range(start, at)))
    if any(dim != 1 for dim in after[at:]):
        raise otherwise
    return groups, list(range(at, len(after)))
