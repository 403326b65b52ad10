"""Sizes as expressions: normal forms, proofs, and what must stay unknown."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphopt.analysis.shapes import Expr, Symbols, at_least, bounds, divide, equal, less
from graphopt.analysis.shapes.dim import MAX_DEGREE, MAX_TERMS, TooComplexError, vanishes_with


@pytest.fixture(name="s")
def symbols() -> Symbols:
    return Symbols()


def test_two_unknowns_are_not_equal(s: Symbols) -> None:
    assert s.fresh() != s.fresh()
    assert equal(s.fresh(), s.fresh()) is None
    assert equal(s.named("N"), s.fresh()) is None
    assert equal(s.named("N"), s.named("M")) is None


def test_equal_names_are_equal(s: Symbols) -> None:
    assert s.named("N") == s.named("N")
    assert equal(s.named("N") * 2 + 1, 1 + 2 * s.named("N")) is True


def test_nothing_is_learnt_from_broadcasting(s: Symbols) -> None:
    n, m = s.named("N"), s.named("M")
    joined = s.broadcast(n, m)
    assert joined not in (n, m)
    assert joined == s.broadcast(m, n)
    assert s.broadcast(n, 1) == n
    assert s.broadcast(n, 7) == 7
    assert s.broadcast(n, 0) == 0
    assert s.broadcast(3, 4) is None
    assert s.broadcast(n, n + 2) == n + 2
    assert s.broadcast(n, n + 1) not in (n, n + 1)


def test_a_table_cut_to_the_sequence_broadcasts_to_it(s: Symbols) -> None:
    n, m = s.named("N"), s.named("M")
    assert s.broadcast(s.minimum(n, 256), n) == n
    assert s.broadcast(s.minimum(n, m), n) != n
    assert s.broadcast(s.minimum(n, 1), n) == n


def test_comparisons_are_proved_or_unknown(s: Symbols) -> None:
    n = s.named("N")
    assert equal(n, -1) is False
    assert equal(n, 0) is None
    assert equal(n + 1, n) is False
    assert less(n, n + 1) is True
    assert less(n, 0) is False
    assert less(n, 5) is None
    assert less(s.fresh(None), 0) is None
    assert at_least(n + 1, 1)
    assert not at_least(n - 1, 0)
    assert bounds(3 - n) == (None, 3)


def test_division_is_exact_only_when_provable(s: Symbols) -> None:
    n, m = s.named("N"), s.named("M")
    assert divide(n * m * 768, n * 64) == m * 12
    assert divide(n * 3, 2) is None
    assert divide(n, m) is None
    assert divide(n + 1, n) is None
    assert divide(5, n) is None
    assert divide(0, n) == 0
    assert divide(n, 0) is None
    assert divide((n + 1) * (m + 2), m + 2) == n + 1
    assert divide((n + 1) * (m + 2) + 1, m + 2) is None


def test_divisions_compose(s: Symbols) -> None:
    n = s.named("N")
    assert s.floor_div(n * 4 + 7, 4) == n + 1
    assert s.floor_div(s.floor_div(n, 2), 3) == s.floor_div(n, 6)
    assert s.floor_div(n * 2 + 1, 4) == s.floor_div(n, 2)
    assert s.ceil_div(n, 2) == s.floor_div(n + 1, 2)
    assert s.modulo(n * 6 + 5, 3) == 2
    assert s.floor_div(n, 2) != s.floor_div(n, 3)


def test_minimum_and_maximum(s: Symbols) -> None:
    n, m = s.named("N"), s.named("M")
    assert s.minimum(n, n + 1) == n
    assert s.maximum(n, n + 1) == n + 1
    assert s.maximum(n, 0) == n
    assert s.minimum(n, -1) == -1
    assert s.minimum(s.minimum(n, m), n) == s.minimum(m, n)
    assert s.minimum(n, m) not in (n, m)


def test_a_product_vanishes_only_with_its_own_factors(s: Symbols) -> None:
    n, m = s.named("N"), s.named("M")
    assert vanishes_with(n * m, n)
    assert not vanishes_with(n, n * m)
    assert not vanishes_with(n * m + 1, n)
    assert vanishes_with(m, n + 1)
    assert not vanishes_with(m, n - 1)


def test_what_grows_too_large_is_refused(s: Symbols) -> None:
    names = [s.named(str(k)) for k in range(40)]
    with pytest.raises(TooComplexError):
        sum(names[: MAX_TERMS + 1], start=0)
    with pytest.raises(TooComplexError):
        math.prod([names[0]] * (MAX_DEGREE + 1))


def value(size: int | Expr, given: dict[str, int]) -> int:
    if isinstance(size, int):
        return size
    return size.const + sum(
        factor * math.prod(given[a.name] if a.name is not None else derived(a, given) for a in product)
        for product, factor in size.terms
    )


def derived(atom, given: dict[str, int]) -> int:
    args = [value(a, given) for a in atom.args]
    return args[0] // args[1] if atom.kind == "div" else min(args) if atom.kind == "min" else max(args)


@given(st.integers(0, 1 << 32))
def test_every_normal_form_has_the_value_of_its_operations(seed: int) -> None:
    rng, s = random.Random(seed), Symbols()
    points = [dict(zip("NM", p, strict=True)) for p in itertools.product((0, 1, 2, 3, 7, 10), repeat=2)]
    pool = [(s.named(n), [p[n] for p in points]) for n in "NM"] + [(k, [k] * len(points)) for k in (1, 2, 3)]
    operations = {
        "add": (lambda a, b, k: a + b, lambda x, y, k: x + y),
        "subtract": (lambda a, b, k: a - b, lambda x, y, k: x - y),
        "multiply": (lambda a, b, k: a * b, lambda x, y, k: x * y),
        "floor": (lambda a, b, k: s.floor_div(a, k), lambda x, y, k: x // k),
        "ceil": (lambda a, b, k: s.ceil_div(a, k), lambda x, y, k: -(-x // k)),
        "modulo": (lambda a, b, k: s.modulo(a, k), lambda x, y, k: x % k),
        "minimum": (lambda a, b, k: s.minimum(a, b), lambda x, y, k: min(x, y)),
        "maximum": (lambda a, b, k: s.maximum(a, b), lambda x, y, k: max(x, y)),
    }
    for _ in range(8):
        (a, left), (b, right), k = rng.choice(pool), rng.choice(pool), rng.randint(1, 4)
        symbolic, plain = operations[rng.choice(list(operations))]
        try:
            made = symbolic(a, b, k)
        except TooComplexError:
            continue
        expected = [plain(x, y, k) for x, y in zip(left, right, strict=True)]
        assert [value(made, p) for p in points] == expected
        low, high = bounds(made)
        assert low is None or low <= min(expected)
        assert high is None or high >= max(expected)
        exact = divide(made, b)
        if exact is not None:
            assert all(value(exact, p) * y == x for p, x, y in zip(points, expected, right, strict=True))
        for other, values in pool:
            same = equal(made, other)
            if same is not None:
                assert all((x == y) is same for x, y in zip(expected, values, strict=True))
        pool.append((made, expected))
