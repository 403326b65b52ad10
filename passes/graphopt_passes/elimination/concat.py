"""Empty inputs of `Concat`, and selections from a `Concat` that lie within one of its inputs."""

from __future__ import annotations

from graphopt.operators import Concat, Gather, Selection, Slice, Split, Unsqueeze
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.elementwise import OF_ONE_TYPE, is_constant_number
from graphopt_passes.fusion.moved import before_moves, moved_again

_BETWEEN = (*OF_ONE_TYPE, "Mul", "Unsqueeze")


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


class EliminateComputedPartOfConcat(OpRule):
    """Compute only the part of a `Concat` that a `Slice` selects behind elementwise operators and `Unsqueeze`.

    Rotary embeddings compute cosines and sines of angles that are concatenated with themselves, and ONNX Runtime's
    operator reads only one half. The operators between must have no other readers; the `Concat` stays if it has some.
    """

    # No pattern: there may be any number of operators between.
    ops = ("Slice",)
    sources = _BETWEEN
    opsets = "7-"
    numerics = Numerics.ROUNDING  # kernels may compute the last elements of a row differently

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        sliced = Slice.of(node)
        value, moves = before_moves(sliced.x, node, _BETWEEN)
        if not moves or len(sliced.cuts) != 1:
            raise Decline
        concat = Concat.of(value.source("Concat", reader=moves[-1]))
        ((axis, cut),) = sliced.cuts.items()
        for move in moves:
            axis = _axis_before(move, axis)
        part = _sliced(Slice(value, {axis: cut}), concat)
        return rw.replace(node, [moved_again(part.write(rw), moves, rw)])


def _axis_before(move: Node, axis: int) -> int:
    """The axis that is `axis` behind an operator."""
    if move.op == "Unsqueeze":
        new = Unsqueeze.of(move).axes
        if axis in new:
            raise Decline("axis {} of {} is new", axis, move.result.name)
        return axis - sum(each < axis for each in new)
    if not all(map(is_constant_number, move.operands[1:])) or len(move.result.dims()) != len(move.operand(0).dims()):
        raise Decline("{} is not computed with one number for all elements", move.result.name)
    return axis


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
    part, start = concat.holder((positions[0], positions[-1]))
    return Selection(part, concat.axis, range(positions.start - start, positions.stop - start, positions.step))


def _split(split: Split, concat: Concat) -> tuple[Value, ...]:
    """The inputs of the `Concat`, if they equal the outputs of the `Split`."""
    if split.axis != concat.axis:
        raise Decline
    if split.sizes != concat.sizes:
        raise Decline("it splits into sizes {}, but sizes {} were concatenated", split.sizes, concat.sizes)
    return concat.parts
