"""Two consecutive operators of one kind, fused into one."""

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
    """Fuse an operator with the one of the same kind before it, as their view composes them.

    Attributes:
        view: the view of the operators.
        kinds: the operators; by default the one that the view is named after.
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
    """Fuse two `Gather` with constant indices into one, where the second selects among the positions of the first.

    The first one stays for its other readers, where it has any.
    """

    view = Gather


class FuseConsecutiveSlices(Consecutive):
    """Fuse two `Slice` with constant bounds into one.

    On different axes always; on the same axis if its size is known, or with steps of 1 and bounds counted from the
    front. Only slices may read the first one: it would stay for other readers, and rotary embeddings of some of the
    rows would no longer rotate the value that they add to.
    """

    view = Slice
    peers = {"onnxoptimizer": "fuse_consecutive_slices", "onnxslim": "EliminationSlice"}

    def rewrite(self, m: Match, rw: Rewriter) -> Fired:
        between = m.first.result
        if between.output_count or any(reader.op != "Slice" for reader in between.users):
            raise Decline("{} has readers other than Slice", between.name)
        return super().rewrite(m, rw)


class FuseConsecutiveSqueezes(Consecutive):
    """Fuse two `Squeeze` into one.

    The first one stays for its other readers, where it has any.
    """

    view = Squeeze
    peers = {"onnxoptimizer": "fuse_consecutive_squeezes"}


class FuseConsecutiveUnsqueezes(Consecutive):
    """Fuse two `Unsqueeze` into one.

    The first one stays for its other readers, where it has any.
    """

    view = Unsqueeze
    peers = {
        "onnxoptimizer": "fuse_consecutive_unsqueezes",
        "onnxslim": "EliminationUnsqueeze",
        "onnxscript": "UnsqueezeUnsqueeze",
    }


class FuseConsecutiveTransposes(Consecutive):
    """Fuse two `Transpose` into one, or into none where they cancel.

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
    """Fuse two reductions of the same kind into one over the axes of both.

    Sums, means, products and norms of floats. Integers may be rounded or overflow in between, where ONNX Runtime's
    result differs from that of one longer reduction; sums and products of cast booleans do neither. Both reductions
    keep their axes, or neither does; or the second drops all that the first kept.
    """

    kinds = ("ReduceL1", "ReduceL2", "ReduceMean", "ReduceProd", "ReduceSum")
    numerics = Numerics.ROUNDING
    view, alone = Reduction, True
    peers = {"onnxsim": "fuse_consecutive_reduce"}


_REDUCING = tuple(sorted(REDUCTIONS | POSITIONS))
"""`ArgMax` and `ArgMin` count as reductions."""


class _ReducedAxes(PatternRule):
    """Fold an operator that restores or drops the axes of a reduction into that reduction.

    Attributes:
        view: the view of the operator that names the axes; a reshape may do the same by stating sizes.
        reshapes: the reshapes.
        keeps: whether the result has the reduced axes.
        said: what happens to the axes, for the reason of a decline.
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
                raise Decline("{} is not known to differ from the reduction only by its axes", result.name)
        else:
            axes = self.view.of(m.root).axes
            if reduction.axes != axes:
                raise Decline("axes {} are reduced, {} {}", reduction.axes, axes, self.said)
        return reduction.keeping(self.keeps).write(rw)

    def sizes(self, dims: Sequence[Dim], axes: Sequence[int]) -> Iterator[Dim]:
        """The sizes of the result for an operand of sizes `dims`, with the reduced axes kept or dropped."""
        for axis, dim in enumerate(dims):
            if axis not in axes:
                yield dim
            elif self.keeps:
                yield 1


class FuseConsecutiveReduceUnsqueeze(_ReducedAxes):
    """Let a reduction keep its axes instead of restoring them with `Unsqueeze` or `Reshape`."""

    view, keeps, said = Unsqueeze, True, "come back"
    peers = {"onnxoptimizer": "fuse_consecutive_reduce_unsqueeze", "onnxslim": "FusionReduce"}


class FuseConsecutiveReduceSqueeze(_ReducedAxes):
    """Let a reduction drop its axes instead of removing them with `Squeeze`, `Reshape` or `Flatten`."""

    view, keeps, said = Squeeze, False, "go"
    reshapes = ("Flatten", "Reshape")


class FuseConsecutiveLogSoftmax(PatternRule):
    """Fuse `Softmax` and `Log` into `LogSoftmax`.

    Where `Softmax` underflows to zero the logarithm is minus infinity, and `LogSoftmax` gives the right finite number:
    more accurate, but not the same, so it takes `numerics="fast"`.
    """

    numerics = Numerics.FAST
    peers = {"onnxoptimizer": "fuse_consecutive_log_softmax"}

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        return op.Log(op.Softmax(x, _bind="softmax", _other_attrs=True))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        return rw.op("LogSoftmax", m.x, **m.softmax.attrs)


_MOST_BYTES = 1 << 20
"""Larger constants are not folded."""

Part = Callable[[Value, Node], Node]
"""Gives the producer of an operand of a node, if it is of the node's kind and fuses with it; declines otherwise."""


def _leaves(node: Node, part: Part) -> tuple[list[Value], Decline]:
    """The leaves of a tree of operators of one kind, and a reason why one of them is no branch."""
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
    """Whether another operator fuses this one as part of its tree; fusing bottom-up takes quadratic time."""
    with suppress(Decline):
        return node.result.one_use and part(node.result, next(iter(node.result.users))) is node
    return False


class FuseConsecutiveConcats(OpRule):
    """Fuse a `Concat` into the `Concat` along the same axis that alone reads it."""

    # No pattern: a whole tree of `Concat` is fused at once, at any operands.
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
    """The `Concat` along the same axis that computes an operand of a `Concat`."""
    if node.op != "Concat":
        raise Decline
    inner = value.sole_source("Concat", reader=node)
    a, b = inner.attr("axis"), node.attr("axis")
    if a != b and (value.rank is None or value.axis(a) != value.axis(b)):
        raise Decline("{} is concatenated along axis {}, not {}", value.name, a, b)
    return inner


class FuseConsecutiveMinMax(OpRule):
    """Fuse nested `Min`, or nested `Max`, into one of all their operands, with the constants folded into one."""

    # No pattern: a whole tree of them is fused at once, at any operands.
    ops = ("Max", "Min")
    sources = ("Max", "Min")
    opsets = "8-"
    numerics = Numerics.ROUNDING  # of 0 and -0 either may be the result
    peers = {"onnxscript": ("FuseSuccessiveMin", "FuseSuccessiveMax")}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Fuse one inner operator, or a whole tree if no operand is constant."""
        value = next((value for value in node.operands if value.made_by(node.op)), node.operand(0))
        inner = value.sole_source(node.op, reader=node)
        if _is_branch(node, _of_variables):
            return None
        operands, _ = _leaves(node, _of_variables)
        if len(operands) == len(node.inputs):
            operands = [v for each in node.operands for v in (inner.operands if each is value else [each])]
        return rw.replace(node, [rw.op(node.op, *_with_one_constant(operands, node.op))])


def _of_variables(value: Value, node: Node) -> Node:
    """The producer of an operand, if it is the same operator and neither has constant operands."""
    inner = value.sole_source(node.op, reader=node)
    if any(each.is_const for each in (*node.operands, *inner.operands)):
        raise Decline
    return inner


def _with_one_constant(operands: list[Value], op: str) -> list[Value | np.ndarray]:
    """The operands, with the constant ones folded into one."""
    plain = [v for v in dict.fromkeys(operands) if not v.is_const]
    constants = [v for v in dict.fromkeys(operands) if v.is_const]
    if len(constants) < 2:
        return [*plain, *constants]
    arrays = [array for v in constants if (array := v.const(_MOST_BYTES)) is not None]
    if len(arrays) < len(constants) or any(a.dtype.kind not in "fiu" or np.isnan(a).any() for a in arrays):
        raise Decline("the constants are large, hold NaN or are not numbers")
    better = np.minimum if op == "Min" else np.maximum
    return [*plain, np.asarray(reduce(better, arrays[1:], np.broadcast_to(arrays[0], joint_shape(*arrays))))]
