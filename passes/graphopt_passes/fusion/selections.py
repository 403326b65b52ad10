"""Positions of an axis that are taken by several operators, or one by one, taken in one step."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from contextlib import suppress

import numpy as np
from onnx import TensorProto

from graphopt.ir.types import NUMBER_TYPES, element_bits, element_count
from graphopt.operators import Concat, Cut, Gather, Selection, Slice, Split, Squeeze
from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter, Value

_MOST_READERS = 1 << 12
"""A value with more readers than this is not looked at."""

_MOST_POSITIONS = 1 << 14
"""Longer axes are not followed position by position."""

_DEEPEST = 4
"""How many operators a part may be away from the value."""


class TakenApart(OpRule):
    """Join operators that together take every position of an axis exactly once into one `Split`.

    What lies inside of a part is taken of that part, where it may be a `Split` again.
    """

    opsets = "2-"

    def part(self, node: Node) -> Selection:
        """What a node takes, the axis kept."""
        return Selection.of(node.result)

    def check(self, x: Value, axis: int, nodes: Collection[Node]) -> None:
        """Decline where a `Split` in place of these would not be faster, or not run."""

    def write(self, part: Value, node: Node, rw: Rewriter) -> Value:
        """What a node gives, from what it takes."""
        return part

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Sort all of these operators that read the value by where they start."""
        x = node.operand(0)
        if x.is_const or not 2 <= len(x.users) <= _MOST_READERS:
            raise Decline
        front = self.part(node)
        if front.run().start:
            raise Decline  # the one in front asks for all
        axis = front.axis
        readers: dict[range, list[Node]] = {}
        for user in x.users:
            if user.op == node.op and user.graph is node.graph and user.inputs[0] is x:
                with suppress(Decline):
                    part = self.part(user)
                    if part.axis == axis:
                        readers.setdefault(part.run(), []).append(user)
        parts = _widest(readers)
        if len(parts) < 2:
            raise Decline
        if [0, *(run.stop for run in parts)] != [*(run.start for run in parts), x.size(axis)]:
            raise Decline("what is taken of {} along axis {} overlaps or leaves something out", x.name, axis)
        self.check(x, axis, [user for users in readers.values() for user in users])
        made = Split(x, axis, tuple(map(len, parts))).write(rw)
        starts = [part.start for part in parts]
        pairs = []
        for run in sorted(readers, key=lambda run: (run.start, run.stop)):
            at = bisect_right(starts, run.start) - 1
            whole, value = parts[at], made[at]
            cut = Cut.at(range(run.start - whole.start, run.stop - whole.start), len(whole))
            value = value if run == whole else Slice(value, {axis: cut}).write(rw)
            pairs += [(user, [self.write(value, user, rw)]) for user in readers[run]]
        return rw.replace_all(pairs, anchor=min((user for user, _ in pairs), key=lambda user: user.order))


def _widest(runs: Collection[range]) -> list[range]:
    """Those that are not inside of another, from the front."""
    found: list[range] = []
    for run in sorted(runs, key=lambda run: (run.start, -run.stop)):
        if not found or run.stop > found[-1].stop:
            found.append(run)
    return found


class FuseSlicesIntoSplit(TakenApart):
    """Join `Slice` nodes that together take all of a value along one axis into one `Split`.

    Two or more of them, with constant bounds, steps of 1 and a known size: each element belongs to exactly one. Slices
    inside of one of these become slices of it, as where a rotary embedding turns the halves of the first part only.
    Other readers of the value, and slices along other axes, do not matter.
    """

    # No pattern, here and below: any number of operators read one value.
    ops = ("Slice",)
    peers = {"onnxruntime": "GatherSliceToSplitFusion", "onnxscript": "SlicesSplit"}


_FEWEST_RUNS = 64
"""A `Gather` copies as many runs; with fewer of them the nodes that are added take what is saved: two positions of 32
runs took 6.31 us gathered and 6.43 us split, of 128 runs 7.53 and 6.51, of 603 000 runs 9714 and 437 (one thread)."""

_LONGEST_RUN = 32
"""Elements from which on copying itself takes the time: 256 runs of 16 took 12.5 us gathered and 8.0 us split, of 64
12.9 and 11.7."""

_SPLIT = NUMBER_TYPES | {TensorProto.STRING}
"""The element types that are split at every opset."""

_UNKNOWN_SIZE = 16
"""What a dimension is taken for that is not known."""


def runs_along(x: Value, axis: int) -> tuple[int, int, bool]:
    """In how many runs a position of an axis lies, of how many elements, and whether `Gather` copies them as fast."""
    dims = x.dims()
    runs, run = element_count(dims[:axis], _UNKNOWN_SIZE), element_count(dims[axis + 1 :], _LONGEST_RUN + 1)
    return runs, run, run > _LONGEST_RUN or runs < _FEWEST_RUNS


class FuseGathersIntoSplit(TakenApart):
    """Join `Gather` nodes that together take every position of an axis into one `Split`.

    Each takes one position, by a constant scalar (then a `Squeeze` follows) or a list of one. A `Gather` copies run
    by run: the real and the imaginary part of a spectrum, or the four numbers of a box, are runs of one element. Where
    the runs are long, or a few that lose the axis, nothing would be gained, and the nodes stay. The columns of a table,
    each of which keeps its axis, are split however few rows there are: that is one node in place of one a column.
    """

    ops = ("Gather",)
    peers = {"onnxruntime": "GatherSliceToSplitFusion"}

    def part(self, node: Node) -> Selection:
        """One position, given as a number or as a list of one."""
        indices = node.operand(1)
        if not indices.is_const or indices.shape not in ((), (1,)):
            raise Decline
        x = node.operand(0)
        axis = x.axis(node.attr("axis", 0))
        return Selection.one(x, axis, indices.integer())

    def check(self, x: Value, axis: int, nodes: Collection[Node]) -> None:
        if x.dtype not in _SPLIT:  # others can be gathered
            raise Decline("{} is of a type that not every opset splits", x.name)
        runs, run, fast = runs_along(x, axis)
        if fast and (run > _LONGEST_RUN or any(node.operand(1).rank == 0 for node in nodes)):
            raise Decline("{} runs of {} elements are gathered as fast", runs, run)

    def write(self, part: Value, node: Node, rw: Rewriter) -> Value:
        """Without the axis where the position is a number."""
        gather = Gather.of(node)
        return part if gather.positions.ndim else Squeeze(part, (gather.axis,)).write(rw)


class ConvertGatherToSlice(OpRule):
    """Take neighbours in order with a `Slice`, which copies them as one block, not with a `Gather` one by one.

    The indices are a constant list, and the size of the axis is known: a `Gather` complains of positions that do not
    exist, which a `Slice` passes over.
    """

    ops = ("Gather",)
    opsets = "10-"
    peers = {"onnxruntime": "GatherToSliceFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, indices = node.operand(0), node.operand(1)
        if x.is_const or not indices.is_const or indices.rank != 1 or indices.size(0) < 2:
            raise Decline
        taken = Selection.of(node.result)
        taken.run()
        return rw.replace(node, [taken.write(rw)])


_BLOCK = 256
"""`Gather` copies as many bytes at once. ONNX Runtime takes 0.9 of the time of `Split` and `Concat` with 384 bytes, 0.5
with 12 thousand, and 1.4 with 64."""


class FuseSplitGatherConcat(OpRule):
    """Take what `Concat` joins of parts of one value from that value in one step.

    The parts are made by `Split`, `Slice` and `Gather` along the axis of the `Concat`, in constant places. In order
    and complete they are the value itself; neighbours in order are a `Slice`; others a `Gather`, unless there is so
    little behind the axis that it would copy a few bytes at a time.
    """

    # No pattern: there is any number of parts, each some operators away from the value.
    ops = ("Concat",)
    sources = ("Gather", "Slice", "Split")
    opsets = "10-"
    peers = {"onnxsim": "fuse_split_gather_concat"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        concat = Concat.of(node)
        followed = [_followed(part, concat.axis, node) for part in concat.parts]
        shared = [x for x in followed[0] if all(x in others for others in followed)]
        if len(followed) < 2 or not shared or (len(set(concat.parts)) == 1 and len(shared) == 1):
            raise Decline
        x = shared[-1]
        positions = np.concatenate([np.asarray(others[x].positions, np.int64) for others in followed])
        if not positions.size:
            raise Decline
        taken = Selection.at(x, concat.axis, positions)
        if not isinstance(taken.positions, range):
            _check_gather(concat, x)
        return rw.replace(node, [taken.write(rw)])


def _followed(part: Value, axis: int, reader: Node) -> dict[Value, Selection]:
    """What a value is taken of along an axis, itself first, and how."""
    found: dict[Value, Selection] = {}
    with suppress(Decline):
        taken = Selection.all_of(part, axis)
        while len(found) <= _DEEPEST and taken.x.size(axis) <= _MOST_POSITIONS:
            found[taken.x] = taken
            taken = Selection.of(taken.x, reader).then(taken)
    return found


def _check_gather(concat: Concat, x: Value) -> None:
    """Decline where one `Gather` would not be faster."""
    if any(part is not x and not part.one_use for part in concat.parts):
        raise Decline("a part has other readers")
    if x in concat.parts:
        raise Decline("the whole of {} is joined with parts of it", x.name)
    size = element_count(x.dims()[concat.axis + 1 :]) * (element_bits(x.dtype or 0) or 0) // 8
    if size < _BLOCK:
        raise Decline("there are only {} bytes behind axis {}", size, concat.axis)
