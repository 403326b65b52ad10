"""Two operators of a kind in a row that are one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from graphopt.ir import Dim, Node, Value
from graphopt.match import Either, Match, OpBuilder, Pattern
from graphopt.operators import Gather, Reduction, Slice, Squeeze, Transpose, Unsqueeze
from graphopt.operators.linear import joint_shape
from graphopt.operators.reduce import POSITIONS, REDUCTIONS
from graphopt.rewrite import Decline, Fired, Numerics, OpRule, Outcome, PatternRule, Rewriter, Tries
from graphopt_passes.fusion.reshaped_matmul import must_be


class Consecutive(PatternRule):
    """Join an operator and one of its kind that it reads, as their view says.

    Attributes:
        view: the view of the operators.
        kinds: the operators; where nothing is said, the one that the view is called after.
        alone: whether nothing else may read the first one; otherwise it stays for its other readers.
    """

    view: ClassVar[Any]
    kinds: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[bool] = False

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        kinds = (getattr(op, kind) for kind in self.kinds or (self.view.__name__,))
        return Either(*(kind(kind(x, ..., _shared=not self.alone, _bind="first"), ...) for kind in kinds))

    def rewrite(self, m: Match, rw: Rewriter) -> Fired:
        return rw.pass_on(m.root, self.join(self.view.of(m.first), self.view.of(m.root)).write(rw))

    def join(self, first: Any, second: Any) -> Any:
        return first.then(second)


class FuseConsecutiveGathers(Consecutive):
    """Join two `Gather` at constant positions into one, where the second takes of the positions of the first.

    The first one stays for its other readers, where it has any.
    """

    view = Gather


class FuseConsecutiveSlices(Consecutive):
    """Join two `Slice` with constant bounds into one.

    On different axes always; on the same axis where its size is known, or with steps of 1 and bounds from the front.
    Nothing but slices may read the first one: for others it would stay, and rotary embeddings of a part of the rows
    would no longer turn the value that they add to.
    """

    view = Slice
    peers = {"onnxoptimizer": "fuse_consecutive_slices", "onnxslim": "EliminationSlice"}

    def rewrite(self, m: Match, rw: Rewriter) -> Fired:
        between = m.first.result
        if between.output_count or any(reader.op != "Slice" for reader in between.users):
            raise Decline("{} has other readers than slices", between.name)
        return super().rewrite(m, rw)


class FuseConsecutiveSqueezes(Consecutive):
    """Join two `Squeeze` into one.

    The first one stays for its other readers, where it has any.
    """

    view = Squeeze
    peers = {"onnxoptimizer": "fuse_consecutive_squeezes"}


class FuseConsecutiveUnsqueezes(Consecutive):
    """Join two `Unsqueeze` into one.

    The first one stays for its other readers, where it has any.
    """

    view = Unsqueeze
    peers = {
        "onnxoptimizer": "fuse_consecutive_unsqueezes",
        "onnxslim": "EliminationUnsqueeze",
        "onnxscript": "UnsqueezeUnsqueeze",
    }


class FuseConsecutiveTransposes(Consecutive):
    """Join two `Transpose` into one, or into none where they cancel.

    With permutations `p` and then `q` the result has the permutation `p[q[i]]`; a missing `perm` reverses the axes.
    The first one stays for its other readers, where it has any.
    """

    view = Transpose
    peers = {
        "onnxoptimizer": "fuse_consecutive_transposes",
        "onnxruntime": "TransposeOptimizer",
        "onnxslim": "EliminationTranspose",
        "onnxscript": "TransposeTranspose",
    }


class FuseConsecutiveReduce(Consecutive):
    """Join two reductions of the same kind into one over the axes of both.

    Sums, means, products and norms of floats; those of integers may be rounded in between, or leave their range, and
    what ONNX Runtime makes of that is no part of a longer sum. Sums and products of truth values do neither.
    Both keep their axes, or neither does; or the second drops all that the first kept.
    """

    kinds = ("ReduceL1", "ReduceL2", "ReduceMean", "ReduceProd", "ReduceSum")
    numerics = Numerics.ROUNDING
    view, alone = Reduction, True
    peers = {"onnxsim": "fuse_consecutive_reduce"}


_REDUCING = tuple(sorted(REDUCTIONS | POSITIONS))
"""Positions of the largest or smallest count as reductions."""


class _ReducedAxes(PatternRule):
    """Let a reduction do what an operator behind it does to the axes that it reduced.

    Attributes:
        view: of the operator that names the axes; a reshape may do the same by their sizes.
        reshapes: the reshapes.
        keeps: whether the axes are there in the end.
        said: what becomes of the axes.
    """

    view: ClassVar[Any]
    reshapes: ClassVar[tuple[str, ...]] = ("Reshape",)
    keeps: ClassVar[bool]
    said: ClassVar[str]

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        behind = op.AnyOf(*sorted((self.view.__name__, *self.reshapes)))
        return behind(op.AnyOf(*_REDUCING)(x, ..., _bind="reduction"), ...)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        reduction, result = Reduction.of(m.reduction), m.root.result
        if reduction.keepdims == self.keeps:
            raise Decline
        if m.root.op in self.reshapes:
            if not must_be(result.shape, tuple(self.sizes(m.x.dims(), reduction.axes))):
                raise Decline("{} is not known to differ from the reduction by its axes alone", result.name)
        else:
            axes = self.view.of(m.root).axes
            if reduction.axes != axes:
                raise Decline("axes {} are reduced, {} {}", reduction.axes, axes, self.said)
        return reduction.keeping(self.keeps).write(rw)

    def sizes(self, dims: Sequence[Dim], axes: Sequence[int]) -> Iterator[Dim]:
        """Those of the result of what has these, with the axes as they are to be in the end."""
        for axis, dim in enumerate(dims):
            if axis not in axes:
                yield dim
            elif self.keeps:
                yield 1


class FuseConsecutiveReduceUnsqueeze(_ReducedAxes):
    """Let a reduction keep its axes instead of putting them back with `Unsqueeze` or `Reshape`."""

    view, keeps, said = Unsqueeze, True, "come back"
    peers = {"onnxoptimizer": "fuse_consecutive_reduce_unsqueeze", "onnxslim": "FusionReduce"}


class FuseConsecutiveReduceSqueeze(_ReducedAxes):
    """Let a reduction drop its axes instead of taking them away with `Squeeze`, `Reshape` or `Flatten`."""

    view, keeps, said = Squeeze, False, "go"
    reshapes = ("Flatten", "Reshape")


class FuseConsecutiveLogSoftmax(PatternRule):
    """Join `Softmax` and `Log` into `LogSoftmax`.

    Where `Softmax` rounds to zero the logarithm is minus infinity, and `LogSoftmax` gives the right finite number: more
    exact, but not the same, so it takes `numerics="fast"`.
    """

    numerics = Numerics.FAST
    peers = {"onnxoptimizer": "fuse_consecutive_log_softmax"}

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        return op.Log(op.Softmax(x, _bind="softmax", _other_attrs=True))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        return rw.op("LogSoftmax", m.x, **m.softmax.attrs)


_MOST_BYTES = 1 << 20
"""Constants that take more are not computed ahead."""

Part = Callable[[Value, Node], Node]
"""The operator of the same kind that an operand of one comes from and goes away with; declines where there is none."""


def _leaves(node: Node, part: Part) -> tuple[list[Value], Decline]:
    """What a whole tree of operators of one kind reads, and why one of its operands is no branch."""
    leaves: list[Value] = []
    tries = Tries()
    waiting = [(value, node) for value in reversed(node.operands)]
    while waiting:
        value, reader = waiting.pop()
        with tries:
            inner = part(value, reader)
            waiting += [(each, inner) for each in reversed(inner.operands)]
            continue
        leaves.append(value)
    return leaves, tries.declined


def _is_branch(node: Node, part: Part) -> bool:
    """Whether another operator collects this one with its tree: from the inside out takes quadratic time."""
    with suppress(Decline):
        return node.result.one_use and part(node.result, next(iter(node.result.users))) is node
    return False


class FuseConsecutiveConcats(OpRule):
    """Let a `Concat` read the parts of a `Concat` along the same axis that only it reads."""

    # No pattern: whole trees of them are joined at once, whichever operands are joined in turn.
    ops = ("Concat",)
    sources = ("Concat",)
    opsets = "4-"
    peers = {"onnxoptimizer": "fuse_consecutive_concats", "onnxslim": "EliminationConcat"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        if _is_branch(node, _joined):
            return None
        parts, declined = _leaves(node, _joined)
        if len(parts) == len(node.inputs):
            raise declined
        return rw.replace(node, [rw.op("Concat", *parts, axis=node.attr("axis"))])


def _joined(value: Value, node: Node) -> Node:
    """The `Concat` along the same axis that an operand of a `Concat` comes from."""
    if node.op != "Concat":
        raise Decline
    inner = value.sole_source("Concat", reader=node)
    a, b = inner.attr("axis"), node.attr("axis")
    if a != b and (value.rank is None or value.axis(a) != value.axis(b)):
        raise Decline("{} is joined along axis {}, not {}", value.name, a, b)
    return inner


class FuseConsecutiveMinMax(OpRule):
    """Join `Min` of `Min`, or `Max` of `Max`, into one of all their operands, the constant ones made one."""

    # No pattern: whole trees of them are joined at once, whichever operands are one.
    ops = ("Max", "Min")
    sources = ("Max", "Min")
    opsets = "8-"
    numerics = Numerics.ROUNDING  # of two zeros either may be found
    peers = {"onnxscript": ("FuseSuccessiveMin", "FuseSuccessiveMax")}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Collect the operands of an inner one; of a whole tree of them where nothing is constant."""
        value = next((value for value in node.operands if value.made_by(node.op)), node.operand(0))
        inner = value.sole_source(node.op, reader=node)
        if _is_branch(node, _of_variables):
            return None
        operands, _ = _leaves(node, _of_variables)
        if len(operands) == len(node.inputs):
            operands = [v for each in node.operands for v in (inner.operands if each is value else [each])]
        return rw.replace(node, [rw.op(node.op, *_with_one_constant(operands, node.op))])


def _of_variables(value: Value, node: Node) -> Node:
    """The same operator that an operand of one comes from, both of variables alone."""
    inner = value.sole_source(node.op, reader=node)
    if any(each.is_const for each in (*node.operands, *inner.operands)):
        raise Decline
    return inner


def _with_one_constant(operands: list[Value], op: str) -> list[Value | np.ndarray]:
    """The operands with all that is constant computed ahead."""
    plain = [v for v in dict.fromkeys(operands) if not v.is_const]
    constants = [v for v in dict.fromkeys(operands) if v.is_const]
    if len(constants) < 2:
        return [*plain, *constants]
    arrays = [array for v in constants if (array := v.const(_MOST_BYTES)) is not None]
    if len(arrays) < len(constants) or any(a.dtype.kind not in "fiu" or np.isnan(a).any() for a in arrays):
        raise Decline("the constants are large, hold NaN or are no numbers")
    better = np.minimum if op == "Min" else np.maximum
    return [*plain, np.asarray(reduce(better, arrays[1:], np.broadcast_to(arrays[0], joint_shape(*arrays))))]
