"""Positions of an axis that several operators select, or one operator one by one, selected in one step."""

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
"""A value with more readers is not examined."""

_MOST_POSITIONS = 1 << 14
"""Longer axes are not tracked position by position."""

_DEEPEST = 4
"""The most operators between a value and a part of it."""


class TakenApart(OpRule):
    """Fuse operators that together take every position of an axis exactly once into one `Split`.

    A selection inside a larger one becomes a slice of that part, which may be split in turn.
    """

    opsets = "2-"

    def part(self, node: Node) -> Selection:
        """The positions that a node selects, with the axis kept."""
        return Selection.of(node.result)

    def check(self, x: Value, axis: int, nodes: Collection[Node]) -> None:
        """Decline if a `Split` in place of `nodes` would not be faster, or not be supported."""

    def write(self, part: Value, node: Node, rw: Rewriter) -> Value:
        """The result of a node, given the part of the `Split` that it selects."""
        return part

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Sort the operators of this kind that read the value by their first position."""
        x = node.operand(0)
        if x.is_const or not 2 <= len(x.users) <= _MOST_READERS:
            raise Decline
        front = self.part(node)
        if front.run().start:
            raise Decline  # only the node that takes the first position rewrites all
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
            raise Decline("the parts of {} along axis {} overlap or have gaps", x.name, axis)
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
    """The ranges that are not inside another, in ascending order."""
    found: list[range] = []
    for run in sorted(runs, key=lambda run: (run.start, -run.stop)):
        if not found or run.stop > found[-1].stop:
            found.append(run)
    return found


class FuseSlicesIntoSplit(TakenApart):
    """Fuse `Slice` nodes that together take all of a value along one axis into one `Split`.

    Two or more of them, with constant bounds, steps of 1 and a known size: each element belongs to exactly one. Slices
    inside one of these become slices of its part, as where a rotary embedding rotates the halves of the first part
    only. Other readers of the value, and slices along other axes, do not matter.
    """

    # No pattern, here and below: any number of operators read one value.
    ops = ("Slice",)
    peers = {"onnxruntime": "GatherSliceToSplitFusion", "onnxscript": "SlicesSplit"}


_FEWEST_RUNS = 64
"""With fewer runs for `Gather` to copy, the added nodes cost what `Split` saves: two positions of 32 runs took 6.31 us
gathered and 6.43 us split, of 128 runs 7.53 and 6.51, of 603 000 runs 9714 and 437 (one thread)."""

_LONGEST_RUN = 32
"""In runs of more elements the copying itself dominates: 256 runs of 16 took 12.5 us gathered and 8.0 us split, of 64
12.9 and 11.7."""

_SPLIT = NUMBER_TYPES | {TensorProto.STRING}
"""The element types that `Split` accepts at every opset."""

_UNKNOWN_SIZE = 16
"""The assumed size of an unknown dimension."""


def runs_along(x: Value, axis: int) -> tuple[int, int, bool]:
    """How many contiguous runs a position of an axis consists of, their length, and whether `Gather` is as fast."""
    dims = x.dims()
    runs, run = element_count(dims[:axis], _UNKNOWN_SIZE), element_count(dims[axis + 1 :], _LONGEST_RUN + 1)
    return runs, run, run > _LONGEST_RUN or runs < _FEWEST_RUNS


class FuseGathersIntoSplit(TakenApart):
    """Fuse `Gather` nodes that together take every position of an axis into one `Split`.

    Each takes one position, by a constant scalar (then a `Squeeze` follows) or a list of one. A `Gather` copies run
    by run: the real and the imaginary part of a spectrum, or the four numbers of a box, are runs of one element. Where
    runs are long, or few and without the axis, nothing would be gained, and the nodes stay. The columns of a table,
    each of which keeps its axis, are split however few rows there are: that is one node in place of one per column.
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
            raise Decline("Split may not support the element type of {}", x.name)
        runs, run, fast = runs_along(x, axis)
        if fast and (run > _LONGEST_RUN or any(node.operand(1).rank == 0 for node in nodes)):
            raise Decline("{} contiguous runs of {} elements are gathered as fast", runs, run)

    def write(self, part: Value, node: Node, rw: Rewriter) -> Value:
        """The part, without the axis if the position is a scalar."""
        gather = Gather.of(node)
        return part if gather.positions.ndim else Squeeze(part, (gather.axis,)).write(rw)


class ConvertGatherToSlice(OpRule):
    """Replace a `Gather` of consecutive positions with a `Slice`, which copies them as one block.

    The indices are a constant list, and the size of the axis is known: positions out of range are an error in `Gather`
    and ignored by `Slice`.
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
"""The least bytes that `Gather` copies at once. ONNX Runtime takes 0.9 of the time of `Split` and `Concat` with 384
bytes, 0.5 with 12 thousand, and 1.4 with 64."""


class FuseSplitGatherConcat(OpRule):
    """Replace a `Concat` of parts of one value with one selection from that value.

    The parts are selected by `Split`, `Slice` and `Gather` along the axis of the `Concat`, at constant positions. All
    positions in order are the value itself; consecutive ones are a `Slice`; others a `Gather`, unless so little lies
    behind the axis that it would copy only a few bytes at a time.
    """

    # No pattern: there may be any number of parts, each some operators away from the value.
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
    """The values that `part` is selected from along an axis, itself first, each with the selection."""
    found: dict[Value, Selection] = {}
    with suppress(Decline):
        taken = Selection.all_of(part, axis)
        while len(found) <= _DEEPEST and taken.x.size(axis) <= _MOST_POSITIONS:
            found[taken.x] = taken
            taken = Selection.of(taken.x, reader).then(taken)
    return found


def _check_gather(concat: Concat, x: Value) -> None:
    """Decline if one `Gather` would not be faster."""
    if any(part is not x and not part.one_use for part in concat.parts):
        raise Decline("a part has other readers")
    if x in concat.parts:
        raise Decline("{} is concatenated with parts of itself", x.name)
    size = element_count(x.dims()[concat.axis + 1 :]) * (element_bits(x.dtype or 0) or 0) // 8
    if size < _BLOCK:
        raise Decline("there are only {} bytes per element of axis {}", size, concat.axis)
