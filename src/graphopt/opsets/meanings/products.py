"""`Einsum` as matrix products, or as sums of elementwise products."""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import ascii_letters

from graphopt.errors import Decline
from graphopt.ir import Dim, Node, Value
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.computed import integers
from graphopt.opsets.meanings.positions import Counting
from graphopt.opsets.meanings.registry import down
from graphopt.rewrite import Rewriter

_TERM = re.compile(r"[a-zA-Z]*(\.\.\.[a-zA-Z]*)?")


@dataclass(frozen=True, slots=True)
class _Term:
    """An operand of an `Einsum`, with the letters of its axes."""

    value: Value
    letters: str

    def ordered(self, wanted: str, rw: Rewriter) -> Value:
        """The value with its axes in the wanted order, and axes of size 1 for letters that it lacks."""
        present = [letter for letter in wanted if letter in self.letters]
        perm = [self.letters.index(letter) for letter in present]
        result = self.value if perm == sorted(perm) else rw.op("Transpose", self.value, perm=perm)
        missing = [place for place, letter in enumerate(wanted) if letter not in self.letters]
        return rw.op("Unsqueeze", result, axes=missing) if missing else result

    def of_different_letters(self, rw: Rewriter) -> _Term:
        """The term with diagonals taken, if a letter occurs more than once."""
        term, op = self, Counting(rw)
        for letter in dict.fromkeys(self.letters):
            while term.letters.count(letter) > 1:
                place, rank = term.letters.index(letter), len(term.letters)
                second = term.letters.index(letter, place + 1)
                rest = [axis for axis in range(rank) if axis not in (place, second)]
                size = op.size(self.value, self.letters.index(letter))
                last = rw.op("Transpose", term.value, perm=[*rest, place, second])
                shape = rw.op("Concat", integers(*[0] * len(rest)), op("Mul", size, size), axis=0)
                rows = rw.op("Reshape", last, shape)
                steps = op("Mul", op.up_to(size), op("Add", size, 1))
                found = rw.op("Gather", rows, steps, axis=len(rest))
                term = _Term(found, "".join(term.letters[axis] for axis in rest) + letter)
        return term

    def without(self, kept: set[str], rw: Rewriter) -> _Term:
        """The term summed over all letters that are not kept."""
        axes = [place for place, letter in enumerate(self.letters) if letter not in kept]
        if not axes:
            return self
        letters = "".join(letter for letter in self.letters if letter in kept)
        return _Term(rw.op("ReduceSum", self.value, axes=axes, keepdims=0), letters)


@down(12, "Einsum")
def product_of_two(node: Node, change: Change, rw: Rewriter) -> None:
    """Multiply operands in pairs: as matrices, or elementwise if rows or columns have more than one letter.

    Letters of only one of them that are not needed later are summed before. `Einsum` broadcasts an axis of size 1,
    which `MatMul` does not do for summed axes: for it their sizes must be known to be equal.
    """
    terms, out = _read(node)
    stretched = _stretched(terms)
    terms = [term.of_different_letters(rw) for term in terms]
    while len(terms) > 1:
        first, second, *rest = terms
        later = set(out).union(*(set(term.letters) for term in rest))
        terms = [_product(first, second, later, stretched, rw), *rest]
    result = terms[0].without(set(out), rw).ordered(out, rw)
    rw.replace(node, [rw.op("Identity", result) if result.name else result])


def _read(node: Node) -> tuple[list[_Term], str]:
    """The operands with their letters, and the letters of the result; ellipses become unused letters."""
    equation = str(node.attr("equation")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    operands = [node.operand(index) for index in range(len(node.inputs))]
    if len(texts) != len(operands) or not all(_TERM.fullmatch(text) for text in (*texts, right)):
        raise Decline("there is no Einsum before opset 12, and {} is not a supported equation", equation)
    dotted = [len(x.dims()) - len(text) + 3 for x, text in zip(operands, texts, strict=True) if "..." in text]
    fresh = [letter for letter in ascii_letters if letter not in equation][: max(dotted, default=0)]
    found = []
    for x, text in zip(operands, texts, strict=True):
        count = len(x.dims()) - len(text) + 3
        letters = text.replace("...", "".join(fresh[len(fresh) - count :]) if count else "")
        if len(letters) != len(x.dims()):
            raise Decline("there is no Einsum before opset 12, and {} is not a supported equation", equation)
        found.append(_Term(x, letters))
    if arrow:
        return found, right.replace("...", "".join(fresh))
    every = left.replace("...", "")
    return found, "".join(fresh) + "".join(sorted(each for each in set(every) - {","} if every.count(each) == 1))


def _stretched(terms: list[_Term]) -> set[str]:
    """The letters whose axes are not known to have equal sizes, so that an axis of size 1 may be broadcast."""
    sizes: dict[str, list[Dim]] = {}
    for term in terms:
        for letter, dim in zip(term.letters, term.value.dims(), strict=True):
            sizes.setdefault(letter, []).append(dim)
    return {letter for letter, dims in sizes.items() if len(dims) > 1 and (None in dims or len({*dims}) > 1)}


def _product(first: _Term, second: _Term, later: set[str], stretched: set[str], rw: Rewriter) -> _Term:
    """The product of two terms, summed over the letters that are not needed later."""
    a = first.without(later | set(second.letters), rw)
    b = second.without(later | set(a.letters), rw)
    both = [letter for letter in a.letters if letter in b.letters]
    summed = [letter for letter in both if letter not in later]
    batch = "".join(letter for letter in both if letter in later)
    rows = "".join(letter for letter in a.letters if letter not in both)
    columns = "".join(letter for letter in b.letters if letter not in both)
    if len(summed) == 1 and stretched.isdisjoint(summed) and len(rows) <= 1 and len(columns) <= 1:
        left, right = a.ordered(batch + rows + summed[0], rw), b.ordered(batch + summed[0] + columns, rw)
        count = len(batch)
        left = left if rows else rw.op("Unsqueeze", left, axes=[count])
        right = right if columns else rw.op("Unsqueeze", right, axes=[count + 1])
        product = rw.op("MatMul", left, right)
        gone = [place for place, there in ((count, rows), (count + 1, columns)) if not there]
        return _Term(rw.op("Squeeze", product, axes=gone) if gone else product, batch + rows + columns)
    wanted = batch + rows + columns + "".join(summed)
    term = _Term(rw.op("Mul", a.ordered(wanted, rw), b.ordered(wanted, rw)), wanted)
    return term.without(later, rw)
