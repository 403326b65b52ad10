"""Matrix products between `Transpose` nodes that swap rows and columns."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphopt.ir.forms import BROADCASTING
from graphopt.operators import Transpose
from graphopt.rewrite import Decline, Level, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.elementwise import UNARY
from graphopt_passes.fusion.transposes.permuted import Operand
from graphopt_passes.fusion.transposes.region import permutes
from graphopt_passes.fusion.transposes.table import permuted

_BETWEEN = ("MatMul", *UNARY, *BROADCASTING)
_MOST_NODES = 32
_LEAST_COLUMNS = 64
"""With fewer columns, a product from the left with each matrix of a batch takes longer than the transposes."""

_MOST_BYTES = 1 << 20
"""A larger matrix with other readers is not duplicated."""


class FuseTransposesAroundMatmul(OpRule):
    """Replace `(x^T W)^T` with `W^T x`, removing the `Transpose` nodes before and after matrix products.

    The token-mixing layers of MLP mixers are exported like this. Activations, arithmetic with constants and more
    products may lie between; nothing else may read the intermediate values. Not at level
    `basic`: quantizers take only a constant right operand for a weight.
    """

    # No pattern: there may be any number of operators between the first `Transpose` and the last.
    ops = ("Transpose",)
    sources = _BETWEEN
    level = Level.EXTENDED
    opsets = "7-"
    numerics = Numerics.ROUNDING  # kernels add up in another order

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        perm = Transpose.of(node).perm
        rank = len(perm)
        if rank < 2 or perm != (*range(rank - 2), rank - 1, rank - 2):
            raise Decline
        new: dict[Value, Value] = {}
        between = _between(node, rank, new)
        if all(n.op != "MatMul" for n in between):
            raise Decline
        for n in between:
            if n.op == "MatMul":
                new[n.result] = rw.op("MatMul", _turned(n.operand(1), new), _turned(n.operand(0), new))
            else:
                (new[n.result],) = permuted(n, new, perm).write(n, rw)
        return rw.replace(node, [new[node.operand(0)]])


def _between(last: Node, rank: int, sources: dict[Value, Value]) -> list[Node]:
    """The operators between the first `Transpose` nodes, whose operands go into `sources`, and the last, in order."""
    found: dict[Node, None] = {}
    values = [last.operand(0)]
    while values:
        value = values.pop()
        if value.rank != rank:
            raise Decline("{} is not known to have rank {}", value.name, rank)
        producer = value.source("Transpose", *_BETWEEN, reader=last)
        if permutes(producer, Transpose.of(last).perm):
            sources[value] = producer.operand(0)
        elif producer not in found:
            found[producer] = None
            _check(producer, len(found))
            values += [value for value in producer.operands if not value.is_const]
    for value in (value for node in found for value in node.results):
        if value.output_count or any(user is not last and user not in found for user in value.users):
            raise Decline("{} has other readers", value.name)
    return sorted(found, key=lambda node: node.order)


def _check(node: Node, count: int) -> None:
    """Decline an operator that cannot work on the operands before their `Transpose`, or would become slower."""
    if node.op == "Transpose":
        raise Decline("{} is transposed with another permutation", node.result.name)
    if count > _MOST_NODES:
        raise Decline("there are more than {} operators before {}", _MOST_NODES, node.result.name)
    if node.op == "MatMul" and node.operand(1).is_const:
        x = node.operand(0)
        rows = x.dims()[-2]
        if not isinstance(rows, int) or rows < _LEAST_COLUMNS:
            raise Decline("{} has {} rows, expected {} at least", x.name, rows, _LEAST_COLUMNS)


def _turned(value: Value, new: Mapping[Value, Value]) -> Operand:
    """An operand of a product with rows and columns swapped."""
    if value in new:
        return new[value]
    matrix = value.const(None if value.one_use else _MOST_BYTES)
    if matrix is None or matrix.ndim != 2:
        raise Decline("{} is not a constant matrix, or too large to store twice", value.name)
    return np.ascontiguousarray(matrix.T)
