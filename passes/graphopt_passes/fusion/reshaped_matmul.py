"""Matrix products of reshaped operands whose result is reshaped back."""

from __future__ import annotations

from graphopt.ir.types import agree
from graphopt.rewrite import Decline, Dim, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.fusion.reshapes import RESHAPES

Shape = tuple[Dim, ...]


class FuseReshapesIntoMatmul(OpRule):
    """Remove the reshapes that merge dimensions before a `MatMul` and split them after it.

    Either the rows of the left operand are merged, for a product with one matrix, or the batch axes of both operands,
    as `torch.bmm` requires. The shapes must be known to be equal, symbolic dimensions included, except for one
    dimension that follows from the others.
    """

    # No pattern: the operands may be reshaped in an outer graph.
    ops = RESHAPES
    sources = ("MatMul",)
    numerics = Numerics.ROUNDING
    peers = {"onnxscript": ("two_reshapes_matmul_reshape_rule", "one_reshape_matmul_reshape_rule")}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        product = node.operand(0)
        matmul = product.made_by("MatMul")
        if matmul is None or matmul.operand(0).made_by(*RESHAPES) is None:
            raise Decline
        product.sole_source("MatMul", reader=node)
        left, right = matmul.operand(0), matmul.operand(1)
        x, other = _before(left), _before(right)
        shape = node.result.shape
        if _rows_merged(x, left, right, shape):
            return rw.replace(node, [rw.op("MatMul", x, right)])
        if other is not right and _batches_merged((x, left), (other, right), shape):
            return rw.replace(node, [rw.op("MatMul", x, other)])
        raise Decline("{} is not known to have the shape of the product without reshapes", node.result.name)


def _before(value: Value) -> Value:
    """The operand of the reshape that gives a value; the value itself if it is not reshaped."""
    reshape = value.made_by(*RESHAPES)
    return value if reshape is None else reshape.operand(0)


def _rows_merged(x: Value, left: Value, right: Value, result: Shape | None) -> bool:
    """Whether the product of `left` by one matrix equals that of `x`, the operand `left` is reshaped from."""
    before, between, weight = x.shape or (), left.shape or (), right.shape or ()
    if len(before) < 2 or len(between) < 2 or len(weight) != 2:
        return False
    depth_stays = _is_size(before[-1]) and before[-1] == between[-1]
    return depth_stays and must_be(result, (*before[:-1], weight[1]))


def _batches_merged(left: tuple[Value, Value], right: tuple[Value, Value], result: Shape | None) -> bool:
    """Whether a batched product is the same without reshapes; each pair is a value before and after its reshape."""
    (a, a_between), (b, b_between) = ([value.shape or () for value in pair] for pair in (left, right))
    if min(map(len, (a, a_between, b, b_between))) < 2:
        return False
    if not _same(a[-2:], a_between[-2:]) or not _same(b[-2:], b_between[-2:]):
        return False
    if not all(map(_is_size, (*a[-2:], *b[-2:]))) or not _same(a[:-2], b[:-2]):
        return False
    if not len(a_between) == len(b_between) == 3 and not _same(a_between[:-2], b_between[:-2]):
        return False  # a single batch axis holds as many matrices as before, known or not
    return must_be(result, (*a[:-1], b[-1]))


def _is_size(dim: Dim) -> bool:
    """Whether a dimension is a known number other than 0, so that equal element counts mean equal row counts."""
    return isinstance(dim, int) and dim > 0


def _same(a: Shape, b: Shape) -> bool:
    return a == b and None not in a


def must_be(shape: Shape | None, wanted: Shape) -> bool:
    """Whether `shape` must be `wanted`, which has as many elements: one dimension follows from all others."""
    if shape is None or len(shape) != len(wanted):
        return False
    open_axes = [axis for axis, dim in enumerate(shape) if not agree(dim, wanted[axis])]
    others = [dim for axis, dim in enumerate(shape) if axis not in open_axes]
    return not open_axes or (len(open_axes) == 1 and all(_is_size(dim) for dim in others))
