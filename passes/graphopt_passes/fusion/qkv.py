"""Matrix products that share their left operand."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from graphopt.records import dataclass
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value

_MOST_READERS = 64
"""A value with more readers is not examined: the search is quadratic in them."""


class FuseQkv(OpRule):
    """Fuse the products of one value with several constant weights, such as query, key and value, into one.

    `MatMul` or `Gemm`, any number of them; the weights are concatenated and the result is split. It is part of no
    level, since copying the parts costs ONNX Runtime as much as having fewer products saves: measured on one thread,
    three products of 16 x 256 by 256 x 256 take 40 us apart and 43 us fused, a BERT of four layers 6.66 and 6.18 ms
    at level `extended`, 5.14 and 5.17 ms at level `all`. The three 1x1 convolutions of an Inception block take 1.00 to
    1.03 of the time as one with a `Split`, so no pass fuses those.
    """

    # No pattern: the products are siblings, not a chain, and there may be any number of them.
    ops = ("MatMul", "Gemm")
    default = False
    opsets = "7-"
    numerics = Numerics.ROUNDING  # kernels add in another order
    peers = {"onnxoptimizer": "fuse_qkv"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x = node.operand(0)
        if len(x.users) < 2:
            raise Decline
        first = _Product.of(node)
        if len(x.users) > _MOST_READERS:
            raise Decline("{} has {} readers, more than {}", x.name, len(x.users), _MOST_READERS)
        if len(x.dims()) < 2:
            raise Decline("{} has rank {}, expected 2 at least", x.name, x.rank)
        group = [product for user in x.users if (product := _like(first, user, x))]
        group.sort(key=lambda product: product.node.order)
        if len(group) < 2:
            raise Decline("no other product of {} has a constant weight of its own and the same form", x.name)
        if group[0].node is not node:
            raise Decline
        return rw.replace_all(_merged(group, x, rw), anchor=node)


@dataclass(frozen=True, slots=True)
class _Product:
    """A product with a constant matrix that nothing else reads.

    Attributes:
        node: the operator.
        weight: the matrix.
        bias: a constant row; None where there is none.
        along: the axis of the matrix that the columns of the result lie along.
    """

    node: Node
    weight: np.ndarray
    bias: np.ndarray | None
    along: int

    @classmethod
    def of(cls, node: Node) -> _Product:
        """Read a product with a constant matrix that nothing else reads."""
        x, weight, bias = node.operand(0), node.operand(1), node.input(2)
        if not weight.is_const or not weight.one_use or weight.rank != 2 or x.users[node] != 1:
            raise Decline("{} is not a constant matrix with a single reader", weight.name)
        matrix = weight.array()
        along = 0 if node.op == "Gemm" and node.attr("transB", 0) else 1
        row = None if bias is None else bias.const()
        if bias is not None and (row is None or row.shape != (matrix.shape[along],)):
            raise Decline("the bias of {} is not a constant row", node.result.name)
        return cls(node, matrix, row, along)

    @property
    def form(self) -> tuple[Any, ...]:
        """The properties that products must share to be fused."""
        settings = [self.node.attr(key, default) for key, default in _GEMM] if self.node.op == "Gemm" else []
        return self.weight.shape[1 - self.along], self.weight.dtype, self.bias is None, *settings


_GEMM = (("alpha", 1.0), ("beta", 1.0), ("transA", 0), ("transB", 0))


def _like(first: _Product, node: Node, x: Value) -> _Product | None:
    """Another reader of `x` as a product that can be fused with the first; None if it cannot."""
    if node.op != first.node.op or node.graph is not first.node.graph or node.input(0) is not x:
        return None
    with suppress(Decline):
        product = _Product.of(node)
        return product if product.form == first.form else None
    return None


def _merged(group: list[_Product], x: Value, rw: Rewriter) -> list[tuple[Node, list[Value]]]:
    """One product with the concatenated weights, and its parts."""
    first = group[0]
    node, along = first.node, first.along
    weight = np.concatenate([product.weight for product in group], axis=along)
    operands: list[Value] = [x, rw.constant(weight, like=node.operand(1))]
    if first.bias is not None:
        row = np.concatenate([product.bias for product in group if product.bias is not None])
        operands.append(rw.constant(row, like=node.input(2)))
    product = rw.again(node, *operands)
    sizes = [each.weight.shape[along] for each in group]
    parts = rw.outputs(len(group), "Split", product, axis=len(x.dims()) - 1, split=sizes)
    return [(each.node, [part]) for each, part in zip(group, parts, strict=True)]
