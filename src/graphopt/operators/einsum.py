"""`Einsum` of two operands."""

from __future__ import annotations

import re

from graphopt.errors import Decline
from graphopt.ir import Dim, Node, Value
from graphopt.records import dataclass

_EQUATION = re.compile(r"([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]*)")


@dataclass(frozen=True, slots=True)
class Einsum:
    """A sum of products of two operands, read-only.

    Attributes:
        a: the first operand.
        b: the second operand.
        first: the letters of the first operand's axes.
        second: the letters of the second operand's axes.
        out: the letters of the result's axes.
    """

    a: Value
    b: Value
    first: str
    second: str
    out: str

    @classmethod
    def of(cls, node: Node) -> Einsum:
        """Read an `Einsum`.

        Raises:
            Decline: it does not have two operands, or does not state the letters of its result.
        """
        if node.op != "Einsum":
            raise Decline
        equation = str(node.attr("equation")).replace(" ", "")
        found = _EQUATION.fullmatch(equation)
        if len(node.inputs) != 2 or found is None:
            raise Decline("{} is not an explicit equation over two operands", equation)
        return cls(node.operand(0), node.operand(1), found[1], found[2], found[3])

    def swapped(self) -> Einsum:
        """The same sum with its operands swapped."""
        return Einsum(self.b, self.a, self.second, self.first, self.out)

    def check_ranks(self) -> None:
        """Check that each operand has as many axes as letters.

        Raises:
            Decline: one does not, or its rank is not known.
        """
        if len(self.a.dims()) != len(self.first) or len(self.b.dims()) != len(self.second):
            raise Decline("the operands do not have the ranks {} and {}", len(self.first), len(self.second))

    def sizes(self) -> dict[str, Dim]:
        """The size of each letter of the operands.

        Raises:
            Decline: a rank is not known, or the sizes of a letter are not known to be equal.
        """
        self.check_ranks()
        sizes = dict(zip(self.first, self.a.dims(), strict=True))
        for letter, size in zip(self.second, self.b.dims(), strict=True):
            if letter in sizes and (size is None or sizes[letter] != size):
                raise Decline("the sizes {} and {} of index {} are not known to be equal", sizes[letter], size, letter)
            sizes[letter] = size
        return sizes

    def as_product(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """The letters of each axis of both operands and the result, if the sum is one matrix product.

        Several letters mean a merged axis, no letters an axis of size 1. Rows stay separate if there is no batch, since
        `MatMul` multiplies any number of leading axes by one matrix.

        Raises:
            Decline: it is no matrix product.
        """
        a, b, out = self.first, self.second, self.out
        batch = "".join(letter for letter in out if letter in a and letter in b)
        inner = "".join(dict.fromkeys(letter for letter in a if letter in b and letter not in out))
        rows = "".join(letter for letter in out if letter in a and letter not in b)
        columns = "".join(letter for letter in out if letter in b and letter not in a)
        if sorted(a) != sorted(batch + inner + rows) or sorted(b) != sorted(batch + inner + columns):
            raise Decline("{},{}->{} repeats an index, or sums over an index of only one operand", a, b, out)
        if not inner or sorted(out) != sorted(batch + rows + columns):
            raise Decline("{},{}->{} is not a matrix product", a, b, out)
        lines = tuple(rows) if rows and not batch else (rows,)
        return (*batch, *lines, inner), (*batch, inner, columns), (*batch, *lines, columns)
