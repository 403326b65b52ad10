"""Products of operands that were reshaped, and then reshaped back."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Dim, Node, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by, only_reader
from graphopt_passes.fusion.reshapes import RESHAPES

Shape = tuple[Dim, ...]


class FuseReshapesIntoMatmul(OpRule):
    """Let a `MatMul` work on more dimensions, instead of merging some before it and parting them behind it.

    Either the rows of the left operand are merged, for a product with one matrix, or the batches of both operands, as
    `torch.bmm` asks for. The shapes must be known to be equal, names of dimensions included, but for one
    dimension that follows from the others.
    """

    name = "fuse_reshapes_into_matmul"
    ops = RESHAPES
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxscript": "two_reshapes_matmul_reshape_rule"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Compare the shapes before, between and behind."""
        product, result = node.input(0), node.outputs[0]
        matmul = made_by(product, "MatMul")
        if product is None or result is None or matmul is None:
            return None
        left, right = matmul.inputs
        if left is None or right is None or not _is_reshaped(left):
            return None
        problem = only_reader(product, node)
        if problem is not None:
            return problem
        operands = _rows_merged(left, right, result)
        if operands is None:
            operands = _batches_merged(left, right, result)
        if operands is None:
            return Mismatch("{} is not known to have the shape of the product without reshapes", result.name)
        return rw.replace(node, [rw.op("MatMul", *operands)])


def _is_reshaped(value: Value) -> bool:
    return value.producer is not None and value.producer.op in RESHAPES and value.producer.inputs[0] is not None


def _before(value: Value) -> Value:
    """What a value is reshaped from."""
    assert value.producer is not None
    assert value.producer.inputs[0] is not None
    return value.producer.inputs[0]


def _rows_merged(left: Value, right: Value, result: Value) -> tuple[Value, Value] | None:
    """The operands of a product by one matrix, the left one not reshaped; None where this may not be the same."""
    x = _before(left)
    before, between, weight = x.shape, left.shape, right.shape
    if before is None or between is None or weight is None or len(before) < 2 or len(between) < 2 or len(weight) != 2:
        return None
    if not _is_size(before[-1]) or before[-1] != between[-1]:
        return None
    return (x, right) if _must_be(result.shape, (*before[:-1], weight[1])) else None


def _batches_merged(left: Value, right: Value, result: Value) -> tuple[Value, Value] | None:
    """The operands of a product of batches, neither reshaped; None where this may not be the same."""
    if not _is_reshaped(right):
        return None
    a, b = _before(left), _before(right)
    shapes = [value.shape for value in (a, left, b, right)]
    if any(shape is None or len(shape) < 2 for shape in shapes):
        return None
    a_before, a_between, b_before, b_between = (shape for shape in shapes if shape is not None)
    if not _same(a_before[-2:], a_between[-2:]) or not _same(b_before[-2:], b_between[-2:]):
        return None
    if not all(map(_is_size, (*a_before[-2:], *b_before[-2:]))) or not _same(a_before[:-2], b_before[:-2]):
        return None
    if not len(a_between) == len(b_between) == 3 and not _same(a_between[:-2], b_between[:-2]):
        return None  # a single axis of batches has as many as there are before, whether or not that is known
    return (a, b) if _must_be(result.shape, (*a_before[:-1], b_before[-1])) else None


def _is_size(dim: Dim) -> bool:
    """Whether a dimension is a known number other than 0, so that equal numbers of elements are equal rows."""
    return isinstance(dim, int) and dim > 0


def _same(a: Shape, b: Shape) -> bool:
    return a == b and None not in a


def _must_be(shape: Shape | None, wanted: Shape) -> bool:
    """Whether a shape is known to be another one of as many elements: one dimension follows from all others."""
    if shape is None or len(shape) != len(wanted):
        return False
    open_axes = [axis for axis, dim in enumerate(shape) if dim is None or dim != wanted[axis]]
    if not open_axes:
        return True
    others = [dim for axis, dim in enumerate(shape) if axis not in open_axes]
    return len(open_axes) == 1 and all(_is_size(dim) for dim in others)
