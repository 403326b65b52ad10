"""Operators that only change the shape, fused into one `Reshape`."""

from __future__ import annotations

from math import prod

import numpy as np

from graphopt.ir.types import agree
from graphopt.match import Attr, Const, Match, OpBuilder, Pattern, Rest, Var
from graphopt.operators import Reshape
from graphopt.operators.axes import of_ones
from graphopt.rewrite import Decline, Fired, Node, OpRule, Outcome, PatternRule, Rewriter, Value
from graphopt_passes.elementwise import OF_ONE_TYPE

RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


class FuseConsecutiveReshapes(PatternRule):
    """Fuse two of `Reshape`, `Flatten`, `Squeeze` and `Unsqueeze` into one `Reshape` with a constant shape.

    The shape is that of the second `Reshape` if it copies no dimension, and otherwise follows from the known shape of
    the result. If that has more than one dynamic dimension, the two become one `Squeeze` or `Unsqueeze` where together
    they only remove or insert dimensions of size 1. The first one stays for its other readers, where it has any.
    """

    opsets = "5-"
    peers = {
        "onnxoptimizer": "eliminate_consecutive_idempotent_ops",
        "onnxsim": ("fuse_consecutive_reshapes", "fuse_reshape_family"),
        "onnxruntime": "ReshapeFusion",
        "onnxslim": "EliminationReshape",
        "onnxscript": ("ReshapeReshape", "SqueezeReshape1d"),
    }

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        reshape = op.AnyOf(*RESHAPES)
        return reshape(reshape(x, ..., _shared=True, _bind="first"), ...)

    def rewrite(self, m: Match, rw: Rewriter) -> Fired:
        """Leave two `Squeeze`, and two `Unsqueeze`, to the pass that fuses these."""
        if _are_axes_alone(m.first, m.root):
            raise Decline
        return _joined(m.root, m.x, rw)


def _are_axes_alone(first: Node, second: Node) -> bool:
    """Whether both are `Squeeze`, or both `Unsqueeze`."""
    return first.op == second.op and second.op in ("Squeeze", "Unsqueeze")


def _joined(node: Node, x: Value, rw: Rewriter, *, like: Value | None = None) -> Fired:
    """Replace the second of two reshapes with one reshape of `x`, in the first way that gives the same result.

    `x` takes the place of the first one's operand; `like` has its shape, which is not yet inferred for a new value.
    """
    declined = Decline()
    for way in (_as_stated, _as_known, _by_ones):
        try:
            return rw.replace(node, [way(node, x, like or x, rw)])
        except Decline as reason:
            declined = declined if declined.args else reason
    raise declined


def _as_stated(node: Node, x: Value, like: Value, rw: Rewriter) -> Value:
    """The second `Reshape` itself, if its target shape means the same for the operand of the first one."""
    between = node.operand(0)
    if node.op != "Reshape" or not node.operand(1).is_const:
        raise Decline
    second = Reshape.of(node)
    copied = [] if second.allowzero else [axis for axis, size in enumerate(second.target) if size == 0]
    if not all(agree(like.dim(axis), between.dim(axis)) for axis in copied):
        raise Decline
    return rw.op("Reshape", x, shape=second.target, allowzero=node.attrs.get("allowzero"))


def _as_known(node: Node, x: Value, like: Value, rw: Rewriter) -> Value:
    """One `Reshape` to the shape of the result."""
    return Reshape.to(x, node.result.dims(), before=like.shape).write(rw)


def _by_ones(node: Node, x: Value, like: Value, rw: Rewriter) -> Value:
    """One `Squeeze` or `Unsqueeze`, where all other dimensions are known to be the same."""
    before, after = like.dims(), node.result.dims()
    if None in before or None in after or [dim for dim in before if dim != 1] != [dim for dim in after if dim != 1]:
        raise Decline
    return of_ones(x, before, after).write(rw)


_MOST_BETWEEN = 8
_ARITHMETIC = ("Add", "Div", "Max", "Min", "Mul", "Pow", "Sub")
_BROADCASTING = 8
"""The first opset in which all operators of `_ARITHMETIC` broadcast."""


class MoveElementwiseBeforeReshape(OpRule):
    """Move elementwise operators between two reshapes before the first one, and fuse the reshapes.

    If the reshapes do not fuse, all stay: in a chain of such pairs each operator would pass one reshape after the other
    without a gain. Two `Squeeze`, or two `Unsqueeze`, are fused by their own pass. Up to eight operators may lie
    between the reshapes, unary or with constant numbers as other operands, such as a written-out GELU; nothing else
    reads the values between. `Reshape`, `Flatten`, `Squeeze` and `Unsqueeze` count as reshapes.
    """

    # No pattern: there may be any number of operators between.
    ops = RESHAPES
    sources = (*OF_ONE_TYPE, *_ARITHMETIC)
    opsets = "5-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        first, between = _between(node)
        moved: dict[Value | None, Value] = {first.result: first.operand(0)}
        for each in between:
            inputs = [moved.get(value, value) for value in each.inputs]
            moved[each.result] = rw.again(each, *inputs)
        last = moved[node.operand(0)]
        if _are_axes_alone(first, node):
            return rw.set_input(node, 0, rw.again(first, last, *first.inputs[1:]))
        return _joined(node, last, rw, like=first.operand(0))


def _between(node: Node) -> tuple[Node, list[Node]]:
    """The first of two reshapes with only elementwise operators between it and `node`, and these in order."""
    between: list[Node] = []
    arithmetic = _ARITHMETIC if node.graph.opset() >= _BROADCASTING else ()
    readers, left, maker, rank = {node}, {node.operand(0)}, node, 0
    while left:
        value = max(left, key=lambda each: each.producer.order if each.producer else -1)
        left.remove(value)
        maker = value.source(*OF_ONE_TYPE, *arithmetic, *RESHAPES, reader=node)
        if value.output_count or not readers.issuperset(value.users):
            raise Decline("{} has other readers", value.name)
        if maker.op in RESHAPES:
            break
        if len(between) == _MOST_BETWEEN:
            raise Decline("more than {} operators lie between it and another reshape", _MOST_BETWEEN)
        between.append(maker)
        readers.add(maker)
        operands = maker.operands if maker.op in arithmetic else maker.operands[:1]
        numbers = [each.sizes() for each in operands if each.is_const]
        if any(prod(sizes) != 1 for sizes in numbers):
            raise Decline
        rank = max(rank, *map(len, numbers), 0)
        left.update(each for each in operands if not each.is_const)
    if left or not between or maker.op not in RESHAPES:
        raise Decline
    if rank and rank > min(len(maker.operand(0).dims()), len(maker.result.dims())):
        raise Decline("a constant number would raise the rank of {}", maker.result.name)
    return maker, between[::-1]


class MoveBiasBeforeReshape(PatternRule):
    """Move the addition of a bias before the reshape that splits the columns of a matrix product, for later fusion.

    The projections of a `MultiHeadAttention` of Keras are products whose columns become heads, with a bias per head.
    """

    opsets = "7-"

    def pattern(self, op: OpBuilder) -> Pattern:
        """A product with a constant matrix, whose columns lie in the last axes after the reshape."""
        product = op.AnyOf("MatMul", "Gemm")(Var(), Const("weight", silent=True), ..., _bind="product")
        return op.Add(op.AnyOf(*RESHAPES)(product, ..., _bind="reshape"), Const("bias", silent=True))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        product, bias = m.product.result, m.bias.array()
        columns = _last_of_product(m.reshape.result, product)
        lead = max(bias.ndim - len(columns), 0)
        if bias.ndim > len(m.reshape.result.dims()) or set(bias.shape[:lead]) - {1}:
            raise Decline("{} varies between rows", m.bias.name)
        if any(size not in (1, column) for size, column in zip(bias.shape[::-1], columns[::-1], strict=False)):
            raise Decline("{} would broadcast to other sizes than {}", m.bias.name, m.reshape.result.name)
        row = np.broadcast_to(bias.reshape(bias.shape[lead:]), columns).reshape(-1)
        total = rw.op("Add", product, rw.constant(row, like=m.bias))
        return rw.again(m.reshape, total, *m.reshape.inputs[1:])


def _last_of_product(result: Value, product: Value) -> tuple[int, ...]:
    """The sizes of the last axes of `result` that together make up the columns of the product."""
    dims, columns = result.dims(), product.dim(-1)
    for count in range(1, len(dims) + 1):
        sizes = tuple(dim for dim in dims[-count:] if isinstance(dim, int))
        if len(sizes) == count and prod(sizes) == columns and columns:
            return sizes
    raise Decline("the last axes of {} are not the columns of {}", result.name, product.name)


class FuseReshapesIntoGather(PatternRule):
    """Remove the reshapes that flatten the index of a `Gather` before it and split its result after it.

    `index_select` of a table is exported like that, for positions that were computed for each sequence of a batch.
    """

    opsets = "5-"

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        flat = op.Reshape(Var("index"), ..., _shared=True, _bind="flat")
        return op.Reshape(op.Gather(x, flat, axis=Attr("axis")), ...)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        dims, axis, result = m.x.dims(), m.x.axis(m.axis), m.root.result
        wanted = (*dims[:axis], *m.index.dims(), *dims[axis + 1 :])
        if len(m.flat.result.dims()) != 1 or None in wanted or result.dims() != wanted:
            raise Decline("{} does not have the shape of gathering {} from {}", result.name, m.index.name, m.x.name)
        return rw.op("Gather", m.x, m.index, axis=axis)


class FuseConcatIntoReshape(PatternRule):
    """Make the shape of a `Reshape` constant if all but one of its dimensions are.

    The computed dimension follows from the number of elements, so it becomes -1. A constant 0 copies a dimension, which
    must be known not to be empty.
    """

    opsets = "5-"
    peers = {
        "onnxoptimizer": "fuse_concat_into_reshape",
        "onnxruntime": "ReshapeFusion",
        "onnxslim": ("FusionConcatReshape", "EliminationReshapeAs"),
        "onnxscript": "MaterializeReshapeShape",
    }

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        return op.Reshape(x, op.Concat(Rest("parts"), axis=Attr(), _shared=True), allowzero=Attr("allowzero"))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        target = [size for part in m.parts for size in _sizes(part)]
        if target.count(-1) > 1:
            raise Decline("{} dimensions are not constant, expected at most 1", target.count(-1))
        for axis, size in enumerate(target):
            dim = m.x.dim(axis)
            copies_full = not m.allowzero and isinstance(dim, int) and dim > 0
            if size == 0 and -1 in target and not copies_full:
                raise Decline("dimension {} may be empty", axis)
        shape = rw.constant(np.array(target, np.int64), like=m.root.operand(1))
        return rw.again(m.root, m.x, shape)


def _sizes(part: Value) -> tuple[int, ...]:
    """The sizes that a part of a shape holds, -1 for one that is computed."""
    if part.is_const:
        return part.ints()
    if part.shape != (1,):
        raise Decline("{} is not known to be a single number", part.name)
    return (-1,)
