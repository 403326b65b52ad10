"""Copies that keep the order of elements, or repeat elements that broadcasting would repeat."""

from __future__ import annotations

from contextlib import suppress

from graphopt.operators import Reshape
from graphopt.operators.transpose import Transpose, keeps_order
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Tries, Value
from graphopt_passes.elementwise import EXPANDED, TOGETHER, UNARY


class EliminateExpandBeforeBroadcast(OpRule):
    """Remove an `Expand` before an operator that broadcasts, where another operand has the shape of the result.

    A `Tile` along axes of size 1 likewise. If it would stay for another reader, all readers keep it: broadcasting takes
    longer than reading the expanded value.
    """

    # No pattern: any of the operands may be repeated.
    ops = TOGETHER
    sources = ("Expand", "Tile")
    opsets = "8-"
    numerics = Numerics.ROUNDING  # with a single number, kernels of powers round and of extrema choose a zero otherwise

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        tries = Tries()
        for index, value in enumerate(node.operands):
            with tries:
                source = value.source(*self.sources, reader=node)
                x = source.operand(0)
                pairs = zip(x.dims(), value.dims(), strict=True) if source.op == "Tile" else ()
                if any(size not in (1, dim) or size in (0, None) for size, dim in pairs):
                    raise Decline("{} may be expanded along an axis that does not have size 1", x.name)
                if not _has_other(node, value):
                    raise Decline("no other operand is known to have the shape of {}", node.result.name)
                if value.output_count or not all(
                    user.op in self.ops and _has_other(user, value) for user in value.users
                ):
                    raise Decline("{} has other readers", value.name)
                return rw.set_input(node, index, x)
        raise tries.declined


def _has_other(node: Node, value: Value) -> bool:
    """Whether another operand has the shape of the result."""
    return any(other is not value and other.has_shape_of(node.result) for other in node.operands)


class EliminateExpandBeforeMatmul(OpRule):
    """Remove an `Expand` of a matrix to the batch of a `MatMul`, which broadcasts it without a copy.

    The other operand must have the batch of the result. PyTorch's `bmm` requires expanded matrices.
    """

    # No pattern: either operand may be repeated.
    ops = ("MatMul",)
    sources = ("Expand",)
    opsets = "8-"
    numerics = Numerics.ROUNDING  # the product of one row and a matrix has another kernel

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        tries, batch = Tries(), node.result.dims()[:-2]
        for index, (value, other) in enumerate((node.operands, node.operands[::-1])):
            with tries:
                x = value.sole_source("Expand", reader=node).operand(0)
                matrix = value.dims()[-2:]
                if len(matrix) < _OF_MATRIX or None in matrix or x.dims()[-2:] != matrix:
                    raise Decline("the last two axes of {} may be expanded", x.name)
                if None in batch or other.dims()[:-2] != batch:
                    raise Decline("{} is not known to have the batch axes of {}", other.name, node.result.name)
                return rw.set_input(node, index, x)
        raise tries.declined


_OF_MATRIX = 2
"""The rank of a matrix."""

_BETWEEN_TWO = (
    "Add", "And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mul", "Or", "Pow", "Sub", "Xor",
)  # fmt: skip
"""Without `Div`: if the result is empty, an integer divisor of 0 is never used."""


class MoveElementwiseBeforeExpand(OpRule):
    """Move elementwise operators before an `Expand`, so that they compute fewer elements.

    It applies to unary operators, to binary ones with a constant number, and to `Where` between numbers. The number of
    operators stays the same, but the `Expand` can be removed if its readers broadcast, as attention does with a mask.
    An `Expand` with several readers is duplicated behind each of them if all copies can be removed.
    """

    # No pattern: the operators have different numbers of operands.
    ops = (*UNARY, *_BETWEEN_TWO, "Where")
    sources = ("Expand",)
    opsets = "8-"
    numerics = Numerics.ROUNDING  # kernels may compute the last elements differently, and so a single one

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        expanded = [value for value in node.operands if value.made_by("Expand") is not None]
        if len(expanded) != 1:
            raise Decline
        if expanded[0].one_use or not self._goes(expanded[0]):
            expanded[0].sole_source("Expand", reader=node)
        expand = expanded[0].source("Expand", reader=node)
        x, shape = expand.operand(0), expand.operand(1)
        _check_numbers(node, expanded[0])
        if node.result.dtype not in EXPANDED:
            raise Decline("Expand may not support the element type of {}", node.result.name)
        if not x.dims() and any(value.dims() for value in node.operands if value is not expanded[0]):
            raise Decline("{} is a scalar, but another operand is not", x.name)
        inputs = [x if value is expanded[0] else value for value in node.inputs]
        return rw.replace(node, [rw.op("Expand", rw.again(node, *inputs), shape)])

    def _goes(self, value: Value, most: int = 8) -> bool:
        """Whether all readers of a value broadcast it, directly or after at most `most` operators."""
        if value.output_count or not value.users or not most:
            return False
        return all(self._goes_at(user, value, most) for user in value.users)

    def _goes_at(self, user: Node, value: Value, most: int) -> bool:
        if user.op in EliminateExpandBeforeBroadcast.ops:
            others = [other for other in user.operands if other.has_shape_of(user.result)]
            if any(other is not value and not self._is_repeated(other) for other in others):
                return True
        with suppress(Decline):
            if user.op in self.ops:
                _check_numbers(user, value)
                return self._goes(user.result, most - 1)
        return False

    def _is_repeated(self, value: Value, most: int = 8) -> bool:
        """Whether only an `Expand` gives a value its shape, and so would have to stay."""
        maker = value.producer
        if maker is None or maker.op == "Expand":
            return maker is not None
        sources = [x for x in maker.operands if x.has_shape_of(value)] if maker.op in self.ops and most else []
        return bool(sources) and all(self._is_repeated(x, most - 1) for x in sources)


def _check_numbers(node: Node, expanded: Value) -> None:
    """Decline unless all operands other than `expanded` are constant numbers."""
    for value in node.operands:
        if value is not expanded and (not value.is_const or value.sizes() not in ((), (1,))):
            raise Decline("{} is not a constant number", value.name)


class ConvertTransposeToReshape(OpRule):
    """Replace a `Transpose` that only moves axes of size 1 past others with a `Reshape`, which copies nothing.

    The new shape must be known: dynamic sizes keep their axis, or there is only one.
    """

    ops = ("Transpose",)
    opsets = "9-"  # before, new integer constants are not possible in models of old IR versions
    peers = {"onnxslim": "EliminationTransposeAsReshape"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, y = node.operand(0), node.result
        if x.shape is None:
            raise Decline
        transpose = Transpose.of(node)
        if not keeps_order(transpose.perm, x.shape) or transpose.moves_nothing:
            raise Decline
        if y.users and not y.output_count and all(user.op == "Gemm" for user in y.users):
            raise Decline("{} is only read by Gemm, which can transpose it", y.name)
        return rw.replace(node, [Reshape(x, _target(transpose)).write(rw)])


class ConvertGatherToSqueeze(OpRule):
    """Replace a `Gather` of the only slice along an axis of size 1 with a `Squeeze`, which copies nothing.

    Exporters select from a batch of one image, or from a stack of one value, like this.
    """

    ops = ("Gather",)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, index = node.operand(0), node.operand(1)
        if index.rank != 0 or not index.is_const:
            raise Decline
        axis = x.axis(node.attr("axis", 0))
        if x.dim(axis) != 1:
            raise Decline
        if index.integer() not in (0, -1):
            raise Decline("index {} is out of range for axis {} of size 1", index.integer(), axis)
        return rw.replace(node, [rw.op("Squeeze", x, axes=(axis,))])


def _target(transpose: Transpose) -> tuple[int, ...]:
    """The shape operand of the `Reshape`: 0 copies the size of an axis, -1 stands for the only dynamic one."""
    shape = transpose.x.dims()
    dynamic = [axis for axis, dim in enumerate(shape) if not isinstance(dim, int)]
    target: list[int] = []
    for at, axis in enumerate(transpose.perm):
        dim = shape[axis]
        target.append(dim if isinstance(dim, int) else 0 if at == axis else -1)
    if 0 in shape or (-1 in target and len(dynamic) > 1):
        raise Decline("{} is empty, or more than one of its dimensions is not known", transpose.x.name)
    return tuple(target)
