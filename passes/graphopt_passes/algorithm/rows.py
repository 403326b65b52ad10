"""Permutations of whole rows, as one `Gather`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from onnx import TensorProto

from graphopt.operators import Reshape, Slice, Split
from graphopt.operators.transpose import Transpose, keeps_order
from graphopt.records import dataclass
from graphopt.rewrite import Decline, Dim, Node, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, Work, check_count, count, size_of

_TYPES = frozenset({TensorProto.FLOAT, TensorProto.INT32})


class ConvertTransposeToRows(Weighed, OpRule):
    """Replace a `Transpose` of several axes, including the last, with a one-axis `Transpose` and a `Gather` of rows.

    ONNX Runtime has kernels for moving one axis, and for moving whole rows; otherwise it copies element by element.
    """

    ops = ("Transpose",)
    opsets = "5-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Take rows of the last axis before or after the `Transpose`, whichever is longer."""
        view = Transpose.of(node)
        x, perm, dims = view.x, view.perm, view.x.dims()
        if x.dtype not in _TYPES:
            raise Decline("{} is not float32 or int32, for which the kernels were measured", x.name)
        if x.is_const or is_one_move(dims, perm):
            raise Decline("{} moves one axis, or whole rows: already fast", node.result.name)
        open_first = not isinstance(dims[0], int)
        if (open_first and perm[0] != 0) or not all(isinstance(dim, int) for dim in dims[1:]):
            raise Decline("the shape of {} is not known", x.name)
        size = size_of(x)
        lead = perm[0] == 0
        last = len(dims) - 1
        before = x.size(last) >= x.size(perm[-1])
        width = x.size(last if before else perm[-1])
        rows = size / width / (count(dims[:1]) if lead else 1)
        works = {"kernel": 4, "move": size, "gathered row": size / width, "element": size}
        self.weigh(rw, {"kernel": 1, "move apart": size}, works)
        if rows * 4 > _LARGEST:
            raise Decline("a list of {:.0f} row indices is too long", rows)
        if before:
            order = tuple(axis for axis in perm if axis != last)
            found = _gathered(x, dims, order, lead, rw)
            seen = Reshape.to(found, (*(dims[axis] for axis in order), width)).write(rw)
            place = perm.index(last)
            made = Transpose(seen, (*range(place), last, *range(place, last))).write(rw)
            return rw.replace(node, [made])
        kept = tuple(axis for axis in range(len(dims)) if axis != perm[-1])
        moved = Transpose(x, (*kept, perm[-1])).write(rw)
        before_gather = tuple(dims[axis] for axis in (*kept, perm[-1]))
        found = _gathered(moved, before_gather, tuple(kept.index(axis) for axis in perm[:-1]), lead, rw)
        return rw.replace(node, [Reshape.to(found, node.result.dims()).write(rw)])


class ConvertTransposeOfUnits(Weighed, OpRule):
    """Move axes of size 1 by a `Reshape` before a `Transpose` that moves the other axes as one, or as whole rows.

    ONNX Runtime looks at the permutation only: if axes of size 1 move differently, it copies element by element.
    """

    ops = ("Transpose",)
    opsets = "5-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        view = Transpose.of(node)
        x, dims = view.x, view.x.dims()
        if x.is_const or x.dtype == TensorProto.STRING:
            raise Decline
        if keeps_order(view.perm, dims) or not is_one_move(dims, view.perm) or _is_seen(dims, view.perm):
            raise Decline
        size = size_of(x)
        moved = size * (_MOVES_OF_EIGHT_BYTES if x.dtype in _EIGHT_BYTES else 1)
        self.weigh(rw, {"kernel": 1, "move apart": size}, {"kernel": 2, "move": moved})
        return rw.replace(node, [view.without_moving_units(node.result.dims(), rw)])


_EIGHT_BYTES = frozenset({TensorProto.INT64, TensorProto.UINT64, TensorProto.DOUBLE, TensorProto.COMPLEX64})
_MOVES_OF_EIGHT_BYTES = 12
"""Cost of moving an element of 8 bytes, relative to one of 4; elements of 1 and 2 bytes cost the same as of 4."""


_LARGEST = 1 << 20
"""Most bytes of a list of row indices."""


def is_one_move(dims: Sequence[Dim], perm: Sequence[int]) -> bool:
    """Whether a permutation moves a single axis, counting adjacent axes that stay together as one, or whole rows."""
    long = [axis for axis in perm if dims[axis] != 1]
    if not long or long[-1] == max(long):
        return True
    return _moves_one([axis for at, axis in enumerate(long) if at == 0 or not _follows(long[at - 1], axis, dims)])


def _is_seen(dims: Sequence[Dim], perm: Sequence[int]) -> bool:
    """Whether the permutation alone, without sizes, shows that one run of axes moves, or that rows stay whole."""
    if _moves_one([axis for at, axis in enumerate(perm) if at == 0 or axis != perm[at - 1] + 1]):
        return True
    last = max(axis for axis in perm if dims[axis] != 1)
    return all(perm[axis] == axis for axis in range(last, len(perm)))


def _moves_one(order: list[int]) -> bool:
    """Whether the axes without one of them are in ascending order."""
    return any(rest == sorted(rest) for rest in ([*order[:at], *order[at + 1 :]] for at in range(len(order))))


def _follows(one: int, two: int, dims: Sequence[Dim]) -> bool:
    return two > one and all(dim == 1 for dim in dims[one + 1 : two])


def _gathered(x: Value, dims: Sequence[Dim], order: Sequence[int], lead: bool, rw: Rewriter) -> Value:
    """Permute the axes before the last by a `Gather` of rows; with `lead`, the first axis stays in place."""
    kept = tuple(dims[:1]) if lead else ()
    sizes = [dim for dim in dims[len(kept) :] if isinstance(dim, int)]
    moved = [axis - len(kept) for axis in order[len(kept) :]]
    places = np.arange(count(sizes[:-1]), dtype=np.int32).reshape(sizes[:-1]).transpose(moved).ravel()
    rows = Reshape.to(x, (*kept, len(places), sizes[-1])).write(rw)
    return rw.op("Gather", rows, places, axis=len(kept))


@dataclass(frozen=True, slots=True)
class _Chain:
    """A chain of operators that move whole rows of the last axis.

    Attributes:
        source: the value that it starts from.
        places: the index in the source of each row of the result, in the result's shape without its last axis.
        nodes: the operators.
        rolls: number of operators that gather rows, or join pieces in another order.
        work: the cost of the operators.
    """

    source: Value
    places: np.ndarray
    nodes: frozenset[Node]
    rolls: int
    work: Work


class ConvertRollToGather(Weighed, OpRule):
    """Replace operators that roll images and partition them into windows, or the inverse, with one `Gather` of rows.

    Shifted-window attention is exported as `Slice`, `Concat`, `Transpose` and `Reshape`, or with a `Gather`.
    """

    ops = ("Concat", "Gather", "Reshape", "Transpose")
    opsets = "5-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        result = node.result
        if result.dtype != TensorProto.FLOAT or not result.shape or not _may_roll(result) or _goes_on(result):
            raise Decline
        chain = _chain(result, node)
        if not chain.rolls:
            raise Decline
        if chain.rolls == 1 and {each.op for each in chain.nodes} <= {"Gather", "Reshape"}:
            raise Decline("{} is already computed by one Gather", result.name)
        size, width = size_of(result), result.size(len(result.dims()) - 1)
        then = {"kernel": 3, "gathered row": size / width, "element": size}
        self.weigh(rw, {**chain.work}, then)
        rows = Reshape.to(chain.source, (size_of(chain.source) // width, width)).write(rw)
        found = rw.op("Gather", rows, chain.places.astype(np.int32).ravel(), axis=0)
        return rw.replace(node, [Reshape.to(found, result.dims()).write(rw)])


_NUMBERS = {int}

_LONGEST, _MOST_ROWS = 32, 1 << 22
"""The most operators of a chain, and rows that it moves."""


def _may_roll(value: Value) -> bool:
    """Whether a `Concat` or `Gather` precedes the value in the chain, or shapes there are unknown or inconsistent."""
    count: int | None = None
    while shape := value.shape:
        if {*map(type, shape)} != _NUMBERS:
            return True
        here = prod(shape)  # type: ignore[arg-type]  # numbers
        if count not in (None, here):
            return True
        count = here
        node = value.producer
        if node is None or node.op not in ("Reshape", "Transpose"):
            return node is not None and node.op in ("Concat", "Gather")
        value = node.operand(0)
    return True


def _goes_on(value: Value) -> bool:
    """Whether all readers of a value continue the chain of row moves."""
    if value.is_output or not value.users:
        return False
    readers = list(value.users)
    if len(readers) == 1 and readers[0].op in ("Gather", "Reshape", "Transpose"):
        return _keeps_rows(readers[0])
    if any(reader.op not in ("Slice", "Split") for reader in readers):
        return False
    joins = {join for piece in readers for out in piece.results for join in out.users}
    return len(joins) == 1 and joins.pop().op == "Concat"


def _keeps_rows(node: Node) -> bool:
    """Whether the operator keeps the last axis in place, and its rows whole."""
    before, after = node.operand(0).shape, node.result.shape
    if not before or not after or before[-1] != after[-1] or not isinstance(after[-1], int):
        return False
    if node.op == "Reshape":
        return True
    if node.op == "Gather":
        return node.operand(1).rank == 1 and node.operand(1).is_const and len(before) == len(after)
    perm = node.attr("perm")
    return bool(perm) and perm[-1] == len(perm) - 1


def _chain(value: Value, reader: Node, most: int = _LONGEST) -> _Chain:
    """The chain that computes a value; an empty one if its producer does not move whole rows."""
    node = value.producer
    if not most or node is None or node.graph is not reader.graph or not isinstance(value.dims()[-1], int):
        return _begin(value)
    if node.op in ("Reshape", "Transpose") and _keeps_rows(node):
        before = _of_part(node.operand(0), node, most - 1)
        shape = tuple(value.sizes())[:-1]
        if node.op == "Reshape":
            if before.places.size != count(shape):  # possible in a branch that is never taken
                raise Decline("{} is not a reshape of {}", value.name, node.operand(0).name)
            return _further(before, before.places.reshape(shape), node, {"kernel": 1})
        moved = before.places.transpose(Transpose.of(node).perm[:-1])
        return _further(before, moved, node, {"kernel": 1, "element": count(value.sizes())})
    if node.op == "Gather" and _keeps_rows(node):
        return _picked(node, most - 1)
    if node.op == "Concat":
        return _rolled(value, node, most - 1)
    return _begin(value)


def _picked(node: Node, most: int) -> _Chain:
    """The chain up to a `Gather` along an axis other than the last."""
    x, positions = node.operand(0), node.operand(1).array()
    axis = x.axis(node.attr("axis", 0))
    if axis == len(x.dims()) - 1:
        return _begin(node.result)
    before, sizes = _of_part(x, node, most), node.result.sizes()
    if positions.size and not -x.size(axis) <= positions.min() <= positions.max() < x.size(axis):
        raise Decline("{} holds an index that is out of range for {}", node.operand(1).name, x.name)
    work = {"kernel": 1, "element": count(sizes), "gathered row": count(sizes[: axis + 1])}
    return _further(before, before.places.take(positions, axis), node, work, rolls=1)


def _begin(value: Value) -> _Chain:
    sizes = value.sizes()
    if not count(sizes) or len(sizes) < 2:
        raise Decline
    check_count(count(sizes[:-1]), "rows", _MOST_ROWS)
    return _Chain(value, np.arange(count(sizes[:-1])).reshape(sizes[:-1]), frozenset(), 0, {})


def _of_part(value: Value, reader: Node, most: int) -> _Chain:
    """The chain that computes a value; an empty one if it has other readers."""
    return _chain(value, reader, most) if value.one_use and not value.is_output else _begin(value)


def _further(before: _Chain, places: np.ndarray, node: Node, work: Work, rolls: int = 0) -> _Chain:
    total = {kind: before.work.get(kind, 0) + work.get(kind, 0) for kind in {**before.work, **work}}
    return _Chain(before.source, places, before.nodes | {node}, before.rolls + rolls, total)


def _rolled(value: Value, node: Node, most: int) -> _Chain:
    """The chain up to a `Concat` of pieces of one value, along an axis other than the last."""
    axis = value.axis(node.attr("axis"))
    pieces = [node.operand(at) for at in range(len(node.inputs))]
    makers = [piece.producer for piece in pieces if piece.one_use and not piece.is_output]
    parts = [made for made in makers if made is not None and made.op in ("Slice", "Split") and made.graph is node.graph]
    whole = {made.operand(0) for made in parts}
    if axis == len(value.dims()) - 1 or len(parts) < len(pieces) or len(whole) != 1:
        return _begin(value)
    taken = [_positions(made, piece.index, axis) for made, piece in zip(parts, pieces, strict=True)]
    known = [np.asarray(places, np.int64) for places in taken if places is not None]
    if len(known) < len(pieces):
        return _begin(value)
    x, readers = whole.pop(), set(parts)
    before = _chain(x, node, most) if set(x.users) == readers and not x.is_output else _begin(x)
    work = {"kernel": 1 + len(readers), "element": 2 * count(value.sizes())}
    return _further(before, before.places.take(np.concatenate(known), axis), node, work, rolls=1)


def _positions(node: Node, output: int, axis: int) -> Sequence[int] | None:
    """The positions that a `Slice` or `Split` output selects along an axis; None if it cuts another axis."""
    if node.op == "Split":
        _, along, positions = Split.part(node, output)
        return positions if along == axis else None
    cut = Slice.of(node)
    return cut.along(axis).positions(cut.x.size(axis)) if set(cut.cuts) <= {axis} else None
