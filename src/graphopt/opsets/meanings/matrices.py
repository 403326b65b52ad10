"""Determinants by Gaussian elimination."""

from __future__ import annotations

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.registry import down, typed
from graphopt.rewrite import Rewriter

_MOST_ROWS = 64
"""Most rows of a matrix whose elimination is unrolled."""


@down(11, "Det")
def eliminated(node: Node, change: Change, rw: Rewriter) -> None:
    """Compute a determinant as the product of pivots, with partial pivoting as in libraries."""
    x, rank = node.operand(0), len(node.operand(0).dims())
    size, op = x.size(-1), typed(rw, x)
    if not 0 < size <= _MOST_ROWS:
        raise Decline("there is no Det before opset 11, and the matrices have {} rows", size)
    rows, columns = rank - 2, rank - 1

    def cut(value: Value, axis: int, start: int, end: int) -> Value:
        return rw.op("Slice", value, starts=[start], ends=[end], axes=[axis])

    rest, result = x, None
    for left in range(size, 1, -1):
        place = rw.op("ArgMax", rw.op("Abs", cut(rest, columns, 0, 1)), axis=rows, keepdims=1)
        chosen = rw.op("Equal", place, np.arange(left, dtype=np.int64)[:, None])
        row = rw.op("ReduceSum", op("Where", chosen, rest, 0), axes=[rows], keepdims=1)
        pivot, first = cut(row, columns, 0, 1), rw.op("Equal", place, np.asarray(0, np.int64))
        signed = op("Where", first, pivot, rw.op("Neg", pivot))
        result = signed if result is None else rw.op("Mul", result, signed)
        others = cut(op("Where", chosen, cut(rest, rows, 0, 1), rest), rows, 1, left)
        divisor = op("Where", op("Equal", pivot, 0), 1, pivot)
        factor = rw.op("Div", cut(others, columns, 0, 1), divisor)
        rest = rw.op("Sub", cut(others, columns, 1, left), rw.op("Mul", factor, cut(row, columns, 1, left)))
    result = rest if result is None else rw.op("Mul", result, rest)
    rw.replace(node, [rw.op("Squeeze", result, axes=[rows, columns])])
