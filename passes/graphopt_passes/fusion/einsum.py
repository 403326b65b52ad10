"""Einstein sums that are matrix products."""

from __future__ import annotations

import re

from onnx import TensorProto as T

from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value

_EQUATION = re.compile(r"([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]*)")
_TYPES = frozenset({T.FLOAT, T.DOUBLE, T.FLOAT16, T.INT32, T.INT64, T.UINT32, T.UINT64})


class ReplaceEinsumWithMatmul(OpRule):
    """Write an `Einsum` of two operands that is a batched matrix product as `MatMul`.

    The batch letters come first and in one order; the last two of each operand, and of the result, may stand either way
    round, which takes a `Transpose`. ONNX Runtime takes 1.2 to 2 times as long for the `Einsum`.
    """

    # No pattern: what there is to match stands in the equation.
    ops = ("Einsum",)
    opsets = "12-"
    numerics = Numerics.ROUNDING
    peers = {"onnxoptimizer": "replace_einsum_with_matmul"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        first, second, out = read_equation(node)
        a, b = node.operand(0), node.operand(1)
        if out[-2:-1] not in first:
            a, b, first, second = b, a, second, first
        _check_sizes(a, b, first, second, _summed(first, second, out))
        if first[-2] != out[-2]:
            a = _turned(a, len(first), rw)
        if second[-1] != out[-1]:
            b = _turned(b, len(second), rw)
        return rw.replace(node, [rw.op("MatMul", a, b)])


def read_equation(node: Node) -> tuple[str, str, str]:
    """The letters of both operands and of the result; declines where the sum is over others, or not explicit."""
    equation = str(node.attr("equation")).replace(" ", "")
    found = _EQUATION.fullmatch(equation)
    if len(node.inputs) != 2 or found is None:
        raise Decline("{} is not an explicit sum over two operands", equation)
    return found[1], found[2], found[3]


def _turned(value: Value, rank: int, rw: Rewriter) -> Value:
    """The value with its last two axes swapped."""
    return rw.op("Transpose", value, perm=(*range(rank - 2), rank - 1, rank - 2))


def _summed(first: str, second: str, out: str) -> str:
    """The letter that is summed over in a product of the matrices that the last two letters of each operand are."""
    batch = out[:-2]
    letters = [set(term[-2:]) for term in (first, second, out)]
    shared = letters[0] & letters[1]
    if (
        min(len(first), len(second), len(out)) < 2
        or any(len(set(term)) < len(term) for term in (first, second, out))
        or first[:-2] != batch
        or second[:-2] != batch
        or len(shared) != 1
        or out[-2] not in letters[0] - shared
        or out[-1] not in letters[1] - shared
    ):
        raise Decline("{},{}->{} is no matrix product", first, second, out)
    return shared.pop()


def _check_sizes(a: Value, b: Value, first: str, second: str, inner: str) -> None:
    """Decline unless `MatMul` computes the element type, and the sizes agree along the axis that is summed over."""
    if a.dtype not in _TYPES or b.dtype != a.dtype:
        raise Decline("the element type is none that MatMul computes")
    if len(a.dims()) != len(first) or len(b.dims()) != len(second):
        raise Decline("the operands do not have the ranks {} and {}", len(first), len(second))
    sizes = a.dims()[first.index(inner)], b.dims()[second.index(inner)]
    if sizes[0] is None or sizes[0] != sizes[1]:
        raise Decline("the sizes {} and {} of {} are not known to be equal", *sizes, inner)
