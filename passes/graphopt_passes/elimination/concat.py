"""Empty inputs of `Concat`, and selections from a `Concat` that lie within one of its inputs."""

from __future__ import annotations

from graphopt.operators import Concat, Gather, Selection, Slice, Split
from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter, Value


class EliminateEmptyConcatInputs(OpRule):
    """Remove inputs of `Concat` that have size 0 along its axis.

    The others determine the result and its shape, as long as one of them remains.
    """

    ops = ("Concat",)
    peers = {"onnxoptimizer": "eliminate_nop_with_unit"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        axis = node.attr("axis", 1)
        left = [value for value in node.operands if value.dim(axis) != 0]
        if len(left) == len(node.inputs):
            raise Decline
        if not left:
            raise Decline("all inputs are empty")
        return rw.replace(node, [rw.op("Concat", *left, axis=axis) if len(left) > 1 else left[0]])


class EliminatePartOfConcat(OpRule):
    """Select from an input of a `Concat` instead of its result, where a single input contains the selection.

    It applies to `Gather` and `Slice` along the axis of the `Concat`, with constant positions, and `Split` at exactly
    the boundaries of the inputs. The `Concat` stays if it has other readers.
    """

    # No pattern: a Concat has any number of operands, one of which the positions select.
    ops = ("Gather", "Slice", "Split")
    sources = ("Concat",)
    opsets = "2-"
    peers = {"onnxsim": "rewrite_gather_over_concat"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        concat = Concat.of(node.operand(0).source("Concat", reader=node))
        if len(concat.parts) < 2:
            raise Decline
        if node.op == "Split":
            return rw.replace(node, _split(Split.of(node), concat))
        part = _gathered(Gather.of(node), concat) if node.op == "Gather" else _sliced(Slice.of(node), concat)
        return rw.replace(node, [part.write(rw)])


def _gathered(gather: Gather, concat: Concat) -> Gather:
    """The `Gather` from the input that contains all its positions."""
    positions = gather.positions
    if gather.axis != concat.axis:
        raise Decline
    if not positions.size:
        raise Decline("no elements are selected")
    if positions.min() < 0:  # non-negative positions do not depend on the size of the whole
        positions = gather.from_front()
    part, start = concat.holder(positions.reshape(-1))
    return Gather(part, gather.axis, positions - start)


def _sliced(sliced: Slice, concat: Concat) -> Selection:
    """The `Slice` of the input that contains it."""
    if list(sliced.cuts) != [concat.axis]:
        raise Decline
    cut, size = sliced.cuts[concat.axis], sum(concat.sizes)
    if len(concat.sizes) < len(concat.parts) and not (0 <= cut.start < size and 0 <= cut.end <= size):
        raise Decline("the size of axis {} of {} is not known", concat.axis, sliced.x.name)
    positions = cut.positions(size)
    if not positions:
        raise Decline
    part, start = concat.holder(positions)
    return Selection(part, concat.axis, range(positions.start - start, positions.stop - start, positions.step))


def _split(split: Split, concat: Concat) -> tuple[Value, ...]:
    """The inputs of the `Concat`, if they equal the outputs of the `Split`."""
    if split.axis != concat.axis:
        raise Decline
    if split.sizes != concat.sizes:
        raise Decline("it splits into sizes {}, but sizes {} were concatenated", split.sizes, concat.sizes)
    return concat.parts
