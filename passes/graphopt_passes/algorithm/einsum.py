"""Einstein sums of two operands as one matrix product."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import TensorProto

from graphopt.operators import Reshape, Transpose
from graphopt.operators.einsum import Einsum
from graphopt.rewrite import Decline, Dim, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, Work, count, joined, size_of


class ConvertEinsumToProduct(Weighed, OpRule):
    """Compute an `Einsum` of two operands as one `MatMul`, with the letters of each kind as one axis.

    Letters of both operands are a batch where the result has them, and are summed over where not; others are rows or
    columns. `replace_einsum_with_matmul` does those that are a product as they stand.
    """

    ops = ("Einsum",)
    opsets = "12-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        view, equation = Einsum.of(node), node.attr("equation")
        a, b, first, second, out = view.a, view.b, view.first, view.second, view.out
        if a.dtype != TensorProto.FLOAT or b.dtype != TensorProto.FLOAT:
            raise Decline("the operands are not of float32, whose kernels were measured")
        sizes = view.sizes()
        batch = "".join(letter for letter in out if letter in first and letter in second)
        inner = "".join(letter for letter in first if letter in second and letter not in out)
        rows = "".join(letter for letter in out if letter in first and letter not in second)
        columns = "".join(letter for letter in out if letter in second and letter not in first)
        if sorted(first) != sorted(batch + inner + rows) or sorted(second) != sorted(batch + inner + columns):
            raise Decline("{} sums over a letter of one operand, or has a letter twice", equation)
        if not inner or sorted(out) != sorted(batch + rows + columns):
            raise Decline("{} is no matrix product", equation)
        size_of(a), size_of(b)
        self.weigh(rw, *_work(node, sizes, (first, second, out), (batch, rows, inner, columns)))
        left = _shaped(a, first, (batch, rows, inner), sizes, rw)
        right = _shaped(b, second, (batch, inner, columns), sizes, rw)
        product, order = rw.op("MatMul", left, right), batch + rows + columns
        parted = Reshape.to(product, [sizes[letter] for letter in order]).write(rw)
        perm = tuple(order.index(letter) for letter in out)
        return rw.replace(node, [Transpose(parted, perm).write(rw)])


_KERNELS = 5
"""What an `Einsum` starts: it transposes its operands and its result, too."""


def _work(node: Node, sizes: Mapping[str, Dim], terms: tuple[str, ...], groups: tuple[str, ...]) -> tuple[Work, Work]:
    """The work of an `Einsum`, and of the product with the letters in groups: batch, rows, inner, columns."""
    batch, rows, inner, columns = groups
    values = (node.operand(0), node.operand(1), node.result)
    wanted = ((batch, rows, inner), (batch, inner, columns), (batch, rows, columns))
    kernels, moved = 1, 0
    for value, letters, parts in zip(values, terms, wanted, strict=True):
        if value.is_const:
            continue
        kernels += any(len(part) != 1 for part in parts)
        if "".join(parts) != letters:
            kernels += 1
            moved += count(value.dims())
    product = count(sizes[letter] for letter in "".join(groups))
    now = {"kernel": _KERNELS, "product": product, "einsum": sum(count(value.dims()) for value in values)}
    return now, {"kernel": kernels, "product": product, "move": 2 * moved}


def _along(letters: str, sizes: Mapping[str, Dim]) -> Dim:
    """The size of some letters as one axis: a number, the name of a single one, or None."""
    return sizes[letters] if len(letters) == 1 else joined([sizes[letter] for letter in letters])


def _shaped(value: Value, letters: str, groups: tuple[str, ...], sizes: Mapping[str, Dim], rw: Rewriter) -> Value:
    """An operand with one axis for each group of letters; without one for a batch of none."""
    order = "".join(groups)
    moved = Transpose(value, tuple(letters.index(letter) for letter in order)).write(rw)
    shape = [_along(group, sizes) if group else 1 for group in groups]
    return Reshape.to(moved, shape if groups[0] else shape[1:]).write(rw)
