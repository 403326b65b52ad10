"""Einstein sums of two operands as one matrix product."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import TensorProto

from graphopt.operators import Reshape, Transpose
from graphopt.operators.einsum import Einsum
from graphopt.rewrite import Decline, Dim, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, Work, count, joined, size_of


class ConvertEinsumToProduct(Weighed, OpRule):
    """Replace an `Einsum` of two operands with one `MatMul`.

    Letters in both operands are batch axes if the result has them, else they are contracted; the others are rows or
    columns. All contracted letters are joined to one axis, as are the columns, and the rows if there is a batch; axes
    of unknown size may stay separate. `replace_einsum_with_matmul` handles products that need no such reshape.
    """

    ops = ("Einsum",)
    opsets = "12-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        view = Einsum.of(node)
        view = view if view.out[-1:] in view.second else view.swapped()
        a, b, first, second, out = view.a, view.b, view.first, view.second, view.out
        if a.dtype != TensorProto.FLOAT or b.dtype != TensorProto.FLOAT:
            raise Decline("the operands are not float32, for which the kernels were measured")
        sizes, axes = view.sizes(), view.as_product()
        size_of(a), size_of(b)
        self.weigh(rw, *_work((a, b, node.result), sizes, (first, second, out), axes))
        product = rw.op("MatMul", _shaped(a, first, axes[0], sizes, rw), _shaped(b, second, axes[1], sizes, rw))
        order = "".join(axes[2])
        if not _is_each(axes[2]):
            shape = [_along(group, sizes) for group in axes[2]]
            product = Reshape.to(product, [sizes[letter] for letter in order], before=shape).write(rw)
        perm = tuple(order.index(letter) for letter in out)
        return rw.replace(node, [Transpose(product, perm).write(rw)])


_KERNELS = 5
"""Number of kernels in an `Einsum`, which also transposes its operands and its result."""


def _work(
    values: tuple[Value, ...], sizes: Mapping[str, Dim], terms: tuple[str, ...], axes: tuple[tuple[str, ...], ...]
) -> tuple[Work, Work]:
    """The work of an `Einsum`, and of the product; `axes` has the letters of each axis of its operands and result."""
    kernels, moved = 1, 0
    for value, letters, parts in zip(values, terms, axes, strict=True):
        if value.is_const:
            continue
        kernels += not _is_each(parts)
        if "".join(parts) != letters:
            kernels += 1
            moved += count(value.dims())
    product = count(sizes[letter] for letter in sorted(set("".join(terms))))
    now = {"kernel": _KERNELS, "product": product, "einsum": sum(count(value.dims()) for value in values)}
    return now, {"kernel": kernels, "product": product, "move": 2 * moved}


def _is_each(axes: tuple[str, ...]) -> bool:
    """Whether letters and axes correspond one to one."""
    return all(len(group) == 1 for group in axes)


def _along(letters: str, sizes: Mapping[str, Dim]) -> Dim:
    """The size of the joined letters: a number (1 without letters), the symbol of a single letter, or None."""
    return sizes[letters] if len(letters) == 1 else joined([sizes[letter] for letter in letters])


def _shaped(value: Value, letters: str, axes: tuple[str, ...], sizes: Mapping[str, Dim], rw: Rewriter) -> Value:
    """Transpose and reshape an operand to one axis per group of letters."""
    order = "".join(axes)
    moved = Transpose(value, tuple(letters.index(letter) for letter in order)).write(rw)
    if _is_each(axes):
        return moved
    before = [sizes[letter] for letter in order]
    return Reshape.to(moved, [_along(group, sizes) for group in axes], before=before).write(rw)
