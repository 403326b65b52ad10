"""Scales of matrix products, after moves and sums of these."""

from __future__ import annotations

from graphopt.match.factors import number
from graphopt.rewrite import Decline, Level, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.fusion.contrib.matmul import check_matrices, check_moderate, scaled_product
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST, check_float
from graphopt_passes.fusion.gelu import completes_gelu
from graphopt_passes.fusion.moved import before_moves, moved_again
from graphopt_passes.fusion.reshapes import RESHAPES

_MOVES = ("Pad", "Slice", "Transpose", *RESHAPES)
_PRODUCTS = ("MatMul", f"{DOMAIN}::FusedMatMul")


class FuseScaleIntoMovedMatmul(OpRule):
    """Fold a constant that multiplies or divides a sum of matrix products into `alpha` of each `FusedMatMul`.

    Each product may be padded with zeros, reshaped, sliced and transposed before the sum, like the scores of relative
    positions in Conformer and Transformer-XL. A single product is taken as well.
    """

    # No pattern: there may be any number of moves.
    ops = ("Div", "Mul")
    sources = ("Add", *_MOVES)
    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = f"7-{NEWEST}"
    finite = True

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        at = 1 if node.op == "Mul" and node.operand(0).is_const else 0
        value, constant = node.operand(at), node.operand(1 - at)
        by = number(constant)
        if by is None or completes_gelu(node):
            raise Decline
        if len(constant.dims()) > len(value.dims()):
            raise Decline("{} may have more axes than {}", constant.name, value.name)
        check_moderate(by)
        factor = by if node.op == "Mul" else 1 / by
        add = value.made_by("Add")
        if add is None:
            return rw.replace(node, [_scaled(value, node, factor, rw)])
        value.sole_source("Add", reader=node)
        parts = [_scaled(part, add, factor, rw) for part in add.operands]
        return rw.replace(node, [rw.op("Add", *parts)])


def _scaled(value: Value, reader: Node, factor: float, rw: Rewriter) -> Value:
    """The same moves of the product with the factor folded in."""
    value, moves = before_moves(value, reader, _MOVES)
    for move in moves:
        if move.op == "Pad":
            _check_zeros(move)
    product = value.sole_source(*_PRODUCTS, reader=moves[-1] if moves else reader)
    check_float(product.result)
    check_matrices(product)
    return moved_again(scaled_product(rw, product, {}, factor), moves, rw)


def _check_zeros(pad: Node) -> None:
    """Decline padding with a constant other than zero, which the scale would no longer multiply."""
    fill = pad.input(2) if pad.graph.opset() >= 11 else None
    filled = pad.attr("value", 0.0) if fill is None else number(fill)
    if pad.attr("mode", "constant") == "constant" and filled != 0:
        raise Decline("{} is not known to be padded with zeros", pad.operand(0).name)
