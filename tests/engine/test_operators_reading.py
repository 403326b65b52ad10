"""Shapes read from other values, and sequences as the elements they hold."""

from __future__ import annotations

import onnx
import pytest

from graphopt.errors import Decline
from graphopt.ir import Model, Value
from graphopt.operators import Elements, Reshape

WHOLE, EMPTY = ((6, 4, 5), (3, 8, 5), (120,), (6, 20)), ((0, 3), (3, 0))


def loaded(text: str, opset: int) -> dict[str, Value]:
    """The values of a graph by name."""
    return dict(
        Model.load(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {text}')).graph.values
    )


@pytest.mark.parametrize("opset", [4, 5, 9, 13, 14, 21])
@pytest.mark.parametrize(
    ("shape", "others", "settings"),
    [([0, -1], WHOLE, ""), ([4, 0, 5], WHOLE, ""), ([6, -1, 0], WHOLE, ""), ([0, 3], EMPTY, "<allowzero = 1>")],
)
def test_a_shape_is_read_from_another_value(
    opset: int, shape: list[int], others: tuple[tuple[int, ...], ...], settings: str
) -> None:
    if settings and opset < 14:
        settings, others = "", EMPTY[:1]
    listed = ", ".join(map(str, shape))
    reshape = f"Reshape <shape = [{listed}]> (x)" if opset < 5 else f"Reshape {settings} (x, s)"
    for other in others:
        text = f"(float{list(others[0])} x, float{list(other)} z) => (float[?,?] y)"
        known = loaded(f"{text} <int64[{len(shape)}] s = {{{listed}}}> {{ y = {reshape} }}", opset)
        node = known["y"].producer
        assert node is not None
        view = Reshape.of(node)
        assert view.reading(known["z"]).shape() == view.shape()


def test_a_size_that_is_not_fixed_is_copied_from_its_like_only() -> None:
    text = (
        "(float[N,6] x, float[N,3,2] same, float[M] z) => (float[?,?] y) <int64[2] s = {0, -1}> { y = Reshape (x, s) }"
    )
    known = loaded(text, 18)
    node = known["y"].producer
    assert node is not None
    reshape = Reshape.of(node)
    assert reshape.reading(known["same"]).target == (0, -1)
    with pytest.raises(Decline, match="dimension 0 is copied from x, where it is not known"):
        reshape.reading(known["z"])


def test_elements_of_sequences_are_those_of_a_list() -> None:
    text = """(float a, float b, float c, seq(float) s) => (float y) {
        all = SequenceConstruct (a, b, c)  none = SequenceEmpty ()  y = Identity (a) }"""
    known = loaded(text, 17)
    listed = [known[name] for name in "abc"]
    elements, new = Elements.of(known["all"]), known["a"]
    assert list(elements.values) == listed
    assert Elements.of(known["none"]).inserting(new, None).values == (new,)
    for position in range(-3, 3):
        assert elements.at(position) is listed[position]
        assert list(elements.inserting(new, position).values) == [*listed[:position], new, *listed[position:]]
        assert elements.erasing(position).values == tuple(v for v in listed if v is not listed[position])
    assert list(elements.inserting(new, 3).values) == [*listed, new]
    for wrong in (lambda: elements.at(3), lambda: elements.erasing(-4), lambda: elements.inserting(new, 4)):
        with pytest.raises(Decline, match="is out of range for"):
            wrong()
    with pytest.raises(Decline) as declined:
        Elements.of(known["s"])
    assert str(declined.value) == "the elements of s are not known"
