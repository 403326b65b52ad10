"""Einstein sums of two operands as one matrix product."""

from __future__ import annotations

from onnx import TensorProto

from graphopt.operators import Reshape, Transpose
from graphopt.records import dataclass
from graphopt.rewrite import Decline, Dim, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, Work, count, size_of
from graphopt_passes.fusion.einsum import read_equation


@dataclass(frozen=True, slots=True)
class _Term:
    """An operand or the result: letters in order, and the size of each."""

    letters: str
    sizes: dict[str, Dim]

    def along(self, letters: str) -> Dim:
        """The size of some letters as one axis: a number, the name of a single one, or None."""
        if len(letters) == 1:
            return self.sizes[letters]
        sizes = [self.sizes[letter] for letter in letters]
        return count(sizes) if all(isinstance(size, int) for size in sizes) else None


class ConvertEinsumToProduct(Weighed, OpRule):
    """Compute an `Einsum` of two operands as one `MatMul`, with the letters of each kind as one axis.

    Letters of both operands are a batch where the result has them, and are summed over where not; others are rows or
    columns. `replace_einsum_with_matmul` does those that are a product as they stand.
    """

    ops = ("Einsum",)
    opsets = "12-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        first, second, out = read_equation(node)
        a, b, equation = node.operand(0), node.operand(1), node.attr("equation")
        sizes = _sizes(a, b, first, second)
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
        term = _Term(out, sizes)
        left = _shaped(a, first, (batch, rows, inner), term, rw)
        right = _shaped(b, second, (batch, inner, columns), term, rw)
        product, order = rw.op("MatMul", left, right), batch + rows + columns
        parted = Reshape.to(product, [sizes[letter] for letter in order]).write(rw)
        perm = tuple(order.index(letter) for letter in out)
        return rw.replace(node, [Transpose(parted, perm).write(rw)])


_KERNELS = 5
"""What an `Einsum` starts: it transposes its operands and its result, too."""


def _work(node: Node, sizes: dict[str, Dim], terms: tuple[str, ...], groups: tuple[str, ...]) -> tuple[Work, Work]:
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


def _sizes(a: Value, b: Value, first: str, second: str) -> dict[str, Dim]:
    """The size of each letter; declines where the product does not take an element type, a rank or a size."""
    if a.dtype != TensorProto.FLOAT or b.dtype != TensorProto.FLOAT:
        raise Decline("the operands are not of float32, whose kernels were measured")
    if len(a.dims()) != len(first) or len(b.dims()) != len(second):
        raise Decline("the operands do not have the ranks {} and {}", len(first), len(second))
    sizes = dict(zip(first, a.dims(), strict=True))
    for letter, size in zip(second, b.dims(), strict=True):
        if letter in sizes and (size is None or sizes[letter] != size):
            raise Decline("the sizes {} and {} of {} are not known to be equal", sizes[letter], size, letter)
        sizes[letter] = size
    return sizes


def _shaped(value: Value, letters: str, groups: tuple[str, ...], term: _Term, rw: Rewriter) -> Value:
    """An operand with one axis for each group of letters; without one for a batch of none."""
    order = "".join(groups)
    moved = Transpose(value, tuple(letters.index(letter) for letter in order)).write(rw)
    shape = [term.along(group) if group else 1 for group in groups]
    return Reshape.to(moved, shape if groups[0] else shape[1:]).write(rw)
