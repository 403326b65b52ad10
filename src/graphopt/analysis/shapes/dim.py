"""Sizes as integer polynomials over symbols.

A size is a Python `int`, or an `Expr` if it depends on symbols. Expressions are immutable, hashable and in normal form,
so that equal expressions compare equal. `==` means *provably equal*; operations that need a new symbol (division,
minimum, an unknown) are methods of the `Symbols` table, which returns the same symbol for the same arguments.
"""

from __future__ import annotations

from math import gcd
from typing import TypeVar

MAX_TERMS = 12
"""Most terms of a sum; a longer one becomes unknown."""

MAX_DEGREE = 8
"""Most factors of a product of symbols."""


_WIDE = 1 << 31
_LARGE = 1 << 30
"""Numbers below this overflow no type in a few sums and products with sizes."""
_CONTENTS = frozenset({"content", "wrapped"})
_OF_ARGS = frozenset({"div", "min", "max"})


class TooComplexError(ArithmeticError):
    """An expression exceeds `MAX_TERMS` or `MAX_DEGREE`."""


class Atom:
    """A symbol: a dimension name of the model, an unknown, or the result of a nonlinear operation.

    Attributes:
        serial: its number in its table, which orders terms.
        name: the name in the model, None for other symbols.
        low: a lower bound, None if there is none.
        high: an upper bound, None if there is none.
        kind: `name`, `new`, `content`, `wrapped`, `div`, `min`, `max`, `broadcast`, or the name given to
            `Symbols.function`.
        args: the arguments of a derived symbol.
        fits: whether a few sums and products of it overflow no type, as is assumed of sizes.
    """

    __slots__ = ("args", "fits", "high", "kind", "low", "name", "serial")

    def __init__(self, serial: int, kind: str, low: int | None, high: int | None, *,
                 name: str | None = None, args: tuple[Size, ...] = ()) -> None:  # fmt: skip
        self.serial = serial
        self.kind = kind
        self.low = low
        self.high = high
        self.name = name
        self.args = args
        bounded = low is not None and high is not None and max(abs(low), abs(high)) < _WIDE
        ordinary = (low is None or low < _LARGE) and (high is None or high > -_LARGE)
        of_sizes = kind not in _CONTENTS and (kind not in _OF_ARGS or all(map(fits, args)))
        self.fits = bounded or (of_sizes and ordinary)

    def __repr__(self) -> str:
        if self.name is not None:
            return self.name
        if self.kind == "new":
            return f"?{self.serial}"
        return f"{self.kind}({', '.join(map(str, self.args))})"


Monomial = tuple[Atom, ...]


class Expr:
    """An integer polynomial in symbols, never a plain integer.

    Attributes:
        terms: pairs of a product of symbols and its coefficient, in a fixed order; no coefficient is 0.
        const: the constant term.
    """

    __slots__ = ("_hash", "const", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...], const: int) -> None:
        self.terms = terms
        self.const = const
        self._hash = hash((terms, const))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Expr) and self.const == other.const and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Size) -> Size:
        if isinstance(other, int):
            return Expr(self.terms, self.const + other) if other else self
        if not isinstance(other, Expr):
            return NotImplemented
        terms = dict(self.terms)
        for product, factor in other.terms:
            terms[product] = terms.get(product, 0) + factor
        return _build(terms, self.const + other.const)

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return Expr(tuple((product, -factor) for product, factor in self.terms), -self.const)

    def __sub__(self, other: Size) -> Size:
        return self + -other

    def __rsub__(self, other: Size) -> Size:
        return -self + other

    def __mul__(self, other: Size) -> Size:
        if isinstance(other, int):
            if other == 1:
                return self
            if other == 0:
                return 0
            return Expr(tuple((product, factor * other) for product, factor in self.terms), self.const * other)
        if not isinstance(other, Expr):
            return NotImplemented
        terms: dict[Monomial, int] = {}
        for left, a in _parts(self):
            for right, b in _parts(other):
                product = _times(left, right)
                terms[product] = terms.get(product, 0) + a * b
        const = terms.pop((), 0)
        return _build(terms, const)

    __rmul__ = __mul__

    @property
    def symbol(self) -> Atom | None:
        """The symbol if the expression is exactly one symbol, else None."""
        if self.const or len(self.terms) != 1:
            return None
        product, factor = self.terms[0]
        return product[0] if factor == 1 and len(product) == 1 else None

    def __repr__(self) -> str:
        parts = [
            "*".join(([str(factor)] if factor != 1 else []) + [repr(a) for a in product])
            for product, factor in self.terms
        ]
        return " + ".join(parts + ([str(self.const)] if self.const else []))


Size = int | Expr
"""A dimension, or an element of a small integer tensor."""

SizeT = TypeVar("SizeT", int, Expr)


def _parts(expr: Expr) -> list[tuple[Monomial, int]]:
    return [*expr.terms, ((), expr.const)] if expr.const else list(expr.terms)


def _times(left: Monomial, right: Monomial) -> Monomial:
    if len(left) + len(right) > MAX_DEGREE:
        raise TooComplexError("product of too many symbols")
    return tuple(sorted(left + right, key=_serial)) if left and right else left or right


def _serial(atom: Atom) -> int:
    return atom.serial


def _rank(term: tuple[Monomial, int]) -> tuple[int, list[int]]:
    return len(term[0]), [atom.serial for atom in term[0]]


def _build(terms: dict[Monomial, int], const: int) -> Size:
    items = [item for item in terms.items() if item[1]]
    if not items:
        return const
    if len(items) > 1:
        if len(items) > MAX_TERMS:
            raise TooComplexError("sum of too many terms")
        items.sort(key=_rank)
    return Expr(tuple(items), const)


def fits(size: Size) -> bool:
    """Whether it consists of sizes and ordinary numbers, which overflow no type; other contents of tensors might."""
    if isinstance(size, int):
        return True
    if abs(size.const) >= _LARGE or any(abs(factor) >= _LARGE for _, factor in size.terms):
        return False
    return all(atom.fits for product, _ in size.terms for atom in product)


def bounds(size: Size) -> tuple[int | None, int | None]:
    """A lower and an upper bound of a size, None if there is none."""
    if isinstance(size, int):
        return size, size
    low: int | None = size.const
    high: int | None = size.const
    for product, factor in size.terms:
        a, b = _product_bounds(product)
        if factor < 0:
            a, b = b, a
        low = None if low is None or a is None else low + factor * a
        high = None if high is None or b is None else high + factor * b
    return low, high


def _product_bounds(product: Monomial) -> tuple[int | None, int | None]:
    low: int | None = 1
    high: int | None = 1
    for atom in product:
        if len(product) == 1:
            return atom.low, atom.high
        if atom.low is None or atom.low < 0:
            return None, None
        low = low * atom.low if low is not None else None
        high = None if high is None or atom.high is None else high * atom.high
    return low, high


def at_least(size: Size, limit: int) -> bool:
    """Whether a size is provably at least `limit`."""
    if isinstance(size, int):
        return size >= limit
    low = bounds(size)[0]
    return low is not None and low >= limit


def equal(a: Size, b: Size) -> bool | None:
    """Whether two sizes are equal: True or False if provable, else None."""
    if a == b:
        return True
    try:
        low, high = bounds(a - b)
    except TooComplexError:
        return None
    return False if (low is not None and low > 0) or (high is not None and high < 0) else None


def less(a: Size, b: Size) -> bool | None:
    """Whether `a < b`: True or False if provable, else None."""
    try:
        low, high = bounds(a - b)
    except TooComplexError:
        return None
    if high is not None and high < 0:
        return True
    return False if low is not None and low >= 0 else None


def divide(a: Size, b: Size) -> Size | None:
    """`a / b` if it is an integer for all values of the symbols with `b != 0`, else None."""
    if isinstance(b, int):
        return None if b == 0 else _divide_int(a, b)
    if isinstance(a, int):
        return 0 if a == 0 else None
    return _divide_expr(a, b)


def _divide_int(a: Size, b: int) -> Size | None:
    if isinstance(a, int):
        return a // b if a % b == 0 else None
    if a.const % b or any(factor % b for _, factor in a.terms):
        return None
    return Expr(tuple((product, factor // b) for product, factor in a.terms), a.const // b)


def _divide_expr(a: Expr, b: Expr) -> Size | None:
    lead, by = max(_parts(b), key=_rank)
    quotient: Size = 0
    rest: Size = a
    for _ in range(MAX_TERMS):
        if isinstance(rest, int):
            return quotient if rest == 0 else None
        product, factor = max(_parts(rest), key=_rank)
        left = _without(product, lead)
        if left is None or factor % by:
            return None
        step: Size = Expr(((left, factor // by),), 0) if left else factor // by
        quotient = quotient + step
        rest = rest - step * b
    return None


def _without(product: Monomial, divisor: Monomial) -> Monomial | None:
    left = list(product)
    for atom in divisor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def vanishes_with(size: Size, factor: Size) -> bool:
    """Whether `size` is 0 whenever `factor` is: all factors of `factor` that may be 0 are factors of `size`."""
    if isinstance(factor, int):
        return factor != 0 or size == 0
    if isinstance(size, int):
        return size == 0
    if at_least(factor, 1) or size == factor:
        return True
    if len(factor.terms) != 1 or factor.const or size.const:
        return False
    atoms = {a for a in factor.terms[0][0] if a.low is None or a.low < 1}
    return all(atoms <= set(product) for product, _ in size.terms)


class Symbols:
    """The symbols of one analysis. Equal arguments give equal symbols; sizes of different tables must not be mixed.

    Attributes:
        count: the number of symbols; a new one gets the next number as its serial.
    """

    def __init__(self) -> None:
        self._atoms: dict[object, Expr] = {}
        self.count = 0

    def _make(self, kind: str, low: int | None, high: int | None, *,
              name: str | None = None, args: tuple[Size, ...] = ()) -> Expr:  # fmt: skip
        self.count += 1
        return Expr((((Atom(self.count, kind, low, high, name=name, args=args),), 1),), 0)

    def named(self, name: str) -> Expr:
        """The dimension named `name` in the model: the same symbol wherever the name is used."""
        expr = self._atoms.get(name)
        if expr is None:
            expr = self._atoms[name] = self._make("name", 0, None, name=name)
        return expr

    def fresh(self, low: int | None = 0, high: int | None = None) -> Expr:
        """An unknown that equals only itself; at least 0 by default."""
        return self._make("new", low, high)

    def content(self, low: int | None = None, high: int | None = None) -> Expr:
        """An unknown integer in a tensor, by default any number of its type."""
        return self._make("content", low, high)

    def wrapped(self, size: Size) -> Size:
        """The value as stored in its type: the size itself, unless it may have overflowed.

        Sums and products that wrap around are equal if their expressions are; but order, quotients and conversions to
        another type differ from those of the expressions.
        """
        if isinstance(size, int) or size.symbol is not None or fits(size):
            return size
        key = ("wrapped", size)
        known = self._atoms.get(key)
        if known is None:
            known = self._atoms[key] = self._make("wrapped", None, None, args=(size,))
        return known

    def floor_div(self, a: Size, k: int) -> Size:
        """`floor(a / k)` for a positive `k`."""
        if isinstance(a, int) or k == 1:
            return a // k if isinstance(a, int) else a
        whole: Size = a.const // k
        rest: list[tuple[Monomial, int]] = []
        for product, factor in a.terms:
            if factor // k:
                whole = whole + Expr(((product, factor // k),), 0)
            if factor % k:
                rest.append((product, factor % k))
        if not rest:
            return whole
        return whole + self._floor_rest(tuple(rest), a.const % k, k)

    def _floor_rest(self, terms: tuple[tuple[Monomial, int], ...], const: int, k: int) -> Size:
        common = gcd(k, *(factor for _, factor in terms))
        if common > 1:
            terms = tuple((product, factor // common) for product, factor in terms)
            const, k = const // common, k // common
        expr = Expr(terms, const)
        if len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1 and terms[0][0][0].kind == "div":
            inner, by = terms[0][0][0].args
            assert isinstance(by, int)
            return self.floor_div(inner + const * by, k * by)
        low, high = bounds(expr)
        if low is not None and high is not None and low // k == high // k:
            return low // k
        key = ("div", expr, k)
        known = self._atoms.get(key)
        if known is None:
            known = self._make("div", None if low is None else low // k, None if high is None else high // k,
                               args=(expr, k))  # fmt: skip
            self._atoms[key] = known
        return known

    def ceil_div(self, a: Size, k: int) -> Size:
        """`ceil(a / k)` for a positive `k`."""
        return self.floor_div(a + (k - 1), k)

    def modulo(self, a: Size, k: int) -> Size:
        """`a mod k` with the sign of `k`, for a positive `k`."""
        return a - self.floor_div(a, k) * k

    def minimum(self, a: Size, b: Size) -> Size:
        """The smaller of two sizes."""
        order = less(a, b)
        if order is not None or a == b:
            return a if order or a == b else b
        if less(b, a) is False:
            return a
        return self._choice("min", a, b)

    def maximum(self, a: Size, b: Size) -> Size:
        """The larger of two sizes."""
        order = less(a, b)
        if order is not None or a == b:
            return b if order else a
        if less(b, a) is False:
            return b
        return self._choice("max", a, b)

    def broadcast(self, a: Size, b: Size) -> Size | None:
        """The dimension that two dimensions broadcast to; None if that fails in every run.

        It infers nothing about the two: if it is not known which of them is 1, the result is a new symbol.
        """
        if b in (a, 1):
            return a
        if a == 1:
            return b
        if isinstance(a, int):
            return a if not isinstance(b, int) else None
        if isinstance(b, int):
            return b
        if at_least(a, 2) or _clipped(b, a):
            return a
        return b if at_least(b, 2) or _clipped(a, b) else self._choice("broadcast", a, b)

    def function(self, name: str, *args: Size) -> Expr:
        """The result, at least 0, of an unspecified function of `args`."""
        key = (name, args)
        known = self._atoms.get(key)
        if known is None:
            known = self._atoms[key] = self._make(name, 0, None, args=args)
        return known

    def _choice(self, kind: str, a: Size, b: Size) -> Expr:
        args = {*_flat(kind, a), *_flat(kind, b)}
        if len(args) > MAX_TERMS:
            raise TooComplexError(f"{kind} of too many sizes")
        key = (kind, frozenset(args))
        known = self._atoms.get(key)
        if known is None:
            low, high = _choice_bounds(kind, [bounds(x) for x in args])
            known = self._atoms[key] = self._make(kind, low, high, args=tuple(args))
        return known


def _clipped(part: Expr, whole: Expr) -> bool:
    """Whether `part` is `min(whole, k)` with `k >= 1`: if they differ, `part` is 1, or they do not broadcast.

    Position tables are sliced like this to the length of the sequence.
    """
    atom = part.symbol
    if atom is None or atom.kind != "min" or whole not in atom.args:
        return False
    return all(arg == whole or at_least(arg, 1) for arg in atom.args)


def _flat(kind: str, size: Size) -> tuple[Size, ...]:
    atom = size.symbol if isinstance(size, Expr) else None
    return atom.args if atom is not None and atom.kind == kind else (size,)


def _choice_bounds(kind: str, limits: list[tuple[int | None, int | None]]) -> tuple[int | None, int | None]:
    lows = [low for low, _ in limits if low is not None]
    highs = [high for _, high in limits if high is not None]
    every_low = min(lows) if len(lows) == len(limits) else None
    every_high = max(highs) if len(highs) == len(limits) else None
    if kind == "min":
        return every_low, min(highs, default=None)
    if kind == "max":
        return max(lows, default=None), every_high
    return every_low, every_high
