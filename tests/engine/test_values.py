"""What values say about themselves: constants that hold one number, shapes that broadcasting leaves as they are."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import pytest

from graphopt.errors import Decline
from graphopt.ir import Model, Value


def values(declared: str) -> dict[str, Value]:
    """The inputs and initializers of a graph by name."""
    text = f'<ir_version: 8, opset_import: ["" : 18]> g ({declared[: declared.index(";")]}) => (float y) '
    text += f"<{declared[declared.index(';') + 1 :]}> {{ y = Identity (x) }}"
    return dict(Model.load(onnx.parser.parse_model(text)).graph.values)


def test_constants_that_hold_one_number() -> None:
    known = values(
        "float x; float[2] a = {1, 1}, float[2] b = {1, 2}, int64[0] none = {}, bool[2] t = {1, 1}, float[1] nan = {nan},"
        'string[1] s = {"1"}, float z = {-0.0}'
    )
    assert known["a"].holds(1)
    assert known["t"].holds(True)
    assert known["z"].holds(0), "either zero is zero"
    for name, number in (("b", 1), ("b", 2), ("none", 0), ("s", 1), ("nan", float("nan")), ("x", 0)):
        assert not known[name].holds(number), name


def test_single_integers() -> None:
    known = values("float x; int64[1] one = {-3}, int32 scalar = {4}, int64[2] two = {1, 2}, float f = {1}")
    assert (known["one"].integer(), known["scalar"].integer()) == (-3, 4)
    for name, reason in (("two", "two is not a single number"), ("f", "f is not constant"), ("x", "x is not constant")):
        with pytest.raises(Decline) as declined:
            known[name].integer()
        assert str(declined.value) == reason


def test_equal_shapes() -> None:
    known = values("float[N,3] x, float[N,3] a, float[M,3] b, float[?,3] c, float[N] d, float e;")
    same = {(a, b) for a, b in product("xabcde", repeat=2) if known[a].has_shape_of(known[b])}
    assert same == {("x", "x"), ("a", "a"), ("b", "b"), ("d", "d"), ("e", "e"), ("x", "a"), ("a", "x")}


@pytest.mark.parametrize("dims", list(product((0, 1, 2, 3), repeat=2)))
def test_what_fits_leaves_the_shape_as_it_is(dims: tuple[int, int]) -> None:
    x = np.zeros(dims)
    for small in [(), *product((0, 1, 2, 3)), *product((0, 1, 2, 3), repeat=2), (1, 1, 1)]:
        try:
            kept = np.broadcast_shapes(x.shape, small) == x.shape
        except ValueError:
            continue  # no model says so
        known = values(f"float{list(dims)} x, float{list(small) if small else ''} s;")
        try:
            known["s"].check_fits(known["x"])
            fits = True
        except Decline:
            fits = False
        assert fits == kept, small


def test_what_may_not_fit() -> None:
    known = values(
        "float[N,3] x, float[N,3] same, float[M,1] other, float[1,3] row, float[?,3] any, float[1,1,1] high;"
    )
    for name in ("same", "row"):
        known[name].check_fits(known["x"])
    for name, reason in (("other", "may enlarge"), ("any", "may enlarge"), ("high", "more than the rank")):
        with pytest.raises(Decline, match=reason):
            known[name].check_fits(known["x"])
