"""A `Transpose` between two reshapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphopt.ir import Dim, Node, Value
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by
from graphopt_passes.fusion.reshapes import RESHAPES, constant_target


class FuseReshapeIntoTranspose(OpRule):
    """Take the reshape behind a `Transpose` into the one before it, or remove both.

    The second one only parts dimensions, or inserts and removes some of size 1: it can as well be done before, each
    part going along with the dimension that it is of. Where that gives back the shape before the first one, as in
    attention that is computed in three dimensions for a while, only the `Transpose` is left. The first one stays for
    its other readers.
    """

    name = "fuse_reshape_into_transpose"
    ops = RESHAPES
    opsets = "5-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Find out of which dimension each dimension of the result is."""
        middle, result = node.input(0), node.outputs[0]
        transpose = made_by(middle, "Transpose")
        if middle is None or result is None or transpose is None:
            return None
        between = transpose.input(0)
        first = made_by(between, *RESHAPES)
        if between is None or first is None or not middle.one_use:
            return None
        x = first.input(0)
        if x is None or transpose.graph is not node.graph or first.graph is not node.graph:
            return Mismatch("{} is computed in an outer graph", middle.name)
        if middle.shape is None or result.shape is None or x.shape is None:
            return Mismatch("the rank of {}, {} or {} is not known", x.name, middle.name, result.name)
        groups = parted(middle.shape, result.shape)
        if groups is None:
            return Mismatch("{} does not only part dimensions of {}", result.name, middle.name)
        perm = transpose.attr("perm") or tuple(range(len(groups)))[::-1]
        order = _as_before(x.shape, result.shape, [axis for at in np.argsort(perm) for axis in groups[at]])
        return self._moved(node, rw, x, result.shape, order)

    def _moved(self, node: Node, rw: Rewriter, x: Value, shape: Sequence[Dim], order: list[int]) -> Outcome:
        """Write the reshape, unless it does nothing, and the transpose behind it."""
        wanted = [shape[axis] for axis in order]
        if x.shape is None or list(x.shape) != wanted or None in wanted:
            target = constant_target(x, wanted)
            if target is None:
                return Mismatch("no constant shape takes {} to {}", x.name, tuple(wanted))
            x = rw.op("Reshape", x, np.array(target, np.int64))
        back = tuple(int(at) for at in np.argsort(order))
        return rw.replace(node, [x if back == tuple(range(len(back))) else rw.op("Transpose", x, perm=back)])


def _as_before(before: Sequence[Dim], shape: Sequence[Dim], order: list[int]) -> list[int]:
    """An order of axes in which those of size 1 make `shape` the one before, or else stay where they are in `shape`."""
    others = [axis for axis in order if shape[axis] != 1]
    ones = [axis for axis in range(len(shape)) if shape[axis] == 1]
    if len(before) == len(shape):
        rest, units = iter(others), iter(ones)
        moved = [next(units if dim == 1 else rest, None) for dim in before]
        found = [axis for axis in moved if axis is not None]
        if len(found) == len(order) and [shape[axis] for axis in found] == list(before):
            return found
    for axis in ones:
        others.insert(axis, axis)
    return others


def parted(before: Sequence[Dim], after: Sequence[Dim]) -> list[list[int]] | None:
    """Which axes of `after` each axis of `before` becomes, where a reshape only parts dimensions.

    Args:
        before: the shape that is reshaped; two dimensions of one name are equal.
        after: the shape that it becomes.

    Returns:
        For each axis of `before` the axes of `after`, in order, none for some of size 1; None when it is not known
        to be so.
    """
    low, end_before, end_after = 0, len(before), len(after)
    while low < min(end_before, end_after) and before[low] is not None and before[low] == after[low]:
        low += 1
    while (
        low < min(end_before, end_after)
        and before[end_before - 1] is not None
        and before[end_before - 1] == after[end_after - 1]
    ):
        end_before, end_after = end_before - 1, end_after - 1
    inner = _parted_inner(before[low:end_before], after[low:end_after])
    if inner is None:
        return None
    groups = [[axis] for axis in range(low)]
    groups += [[low + axis for axis in group] for group in inner[0]]
    groups += [[end_after + axis] for axis in range(len(before) - end_before)]
    ones = [low + axis for axis in inner[1]]
    if ones and not groups:
        return None
    if ones:
        beside = low + len(inner[0])
        if beside < len(groups):
            groups[beside][:0] = ones
        else:
            groups[-1] += ones
    return groups


def _parted_inner(before: Sequence[Dim], after: Sequence[Dim]) -> tuple[list[list[int]], list[int]] | None:
    """The groups, and the axes of size 1 behind all of them."""
    if len(before) == 1:
        return [list(range(len(after)))], []
    if not all(isinstance(dim, int) and dim > 0 for dim in (*before, *after)):
        return None
    sizes = [dim for dim in after if isinstance(dim, int)]
    groups: list[list[int]] = []
    at = 0
    for dim in before:
        assert isinstance(dim, int)
        start, product = at, 1
        while at < len(sizes) and (product < dim or (dim == 1 and at == start and sizes[at] == 1)):
            product *= sizes[at]
            at += 1
        if product != dim:
            return None
        groups.append(list(range(start, at)))
    return (groups, list(range(at, len(sizes)))) if set(sizes[at:]) <= {1} else None
