"""Conversion ends: what comes of one node is bounded, and nothing but a refusal leaves it."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date

import numpy as np
import onnx
import pytest

from benchmarks.conversion import case_model, differs, pairs, run_model
from graphopt.ir import Node
from graphopt.opsets import ConversionError, convert
from graphopt.opsets import descent as descent_module
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings import registry
from graphopt.rewrite import Rewriter

SECONDS = 20

GELU = """
<ir_version: 8, opset_import: ["" : 20]>
g (float[2,3] x) => (float[2,3] y) { a = Relu (x)  y = Gelu (a) }
"""


@contextmanager
def _in_time() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _check(chosen: list[tuple[str, int]]) -> None:
    for name, target in chosen:
        with _in_time():
            try:
                convert(case_model(name), opset=target)
            except ConversionError as refusal:
                if refusal.__cause__ is not None:
                    raise


def test_a_sample_of_the_conversions_ends_in_a_model_or_a_refusal() -> None:
    """Another sample every day, those included that the runtime does not run."""
    _check(random.Random(date.today().toordinal()).sample(list(pairs()), 200))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(8))
def test_every_conversion_ends_in_a_model_or_a_refusal(number: int) -> None:
    _check(list(pairs())[number::8])


def _meaning(monkeypatch: pytest.MonkeyPatch, meaning: registry.Meaning) -> None:
    convert(onnx.parser.parse_model(GELU), opset=19)  # enters what there is
    monkeypatch.setitem(registry.DOWN, ("Gelu", 20), (meaning,))


@pytest.mark.parametrize("times", [1, 3])
def test_what_comes_of_itself_is_refused(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    def again(node: Node, change: Change, rw: Rewriter) -> None:
        parts = [rw.op("Gelu", node.operand(0)) for _ in range(times)]
        rw.replace(node, [rw.op("Sum", *parts)])

    _meaning(monkeypatch, again)
    monkeypatch.setattr(descent_module, "MOST_NODES", 500)
    model = onnx.parser.parse_model(GELU)
    before = model.SerializeToString()
    with _in_time(), pytest.raises(ConversionError, match="Gelu 'y'.*(times over|would expand to).*nearest opset: 20"):
        convert(model, opset=19, inplace=True)
    assert model.SerializeToString() == before


def test_nodes_that_come_of_one_are_counted_over_all_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descent_module, "MOST_NODES", 20)
    with pytest.raises(ConversionError, match="Gelu 'y': it would expand to more than 20 nodes"):
        convert(onnx.parser.parse_model(GELU), opset=8)
    assert convert(onnx.parser.parse_model(GELU), opset=19).opset_import[0].version == 19


def test_an_error_in_a_meaning_is_a_refusal_that_names_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(node: Node, change: Change, rw: Rewriter) -> None:
        raise ZeroDivisionError("of nothing")

    _meaning(monkeypatch, fails)
    with pytest.raises(ConversionError, match="Gelu 'y': graphopt failed: ZeroDivisionError: of nothing") as caught:
        convert(onnx.parser.parse_model(GELU), opset=19)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_error_after_the_version_changed_is_a_refusal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(node: Node, change: Change, rw: Rewriter) -> Iterator[None]:
        yield
        raise KeyError("late")

    _meaning(monkeypatch, fails)
    with pytest.raises(ConversionError, match="KeyError"):
        convert(onnx.parser.parse_model(GELU), opset=19)


def test_a_list_that_cannot_be_stated_leaves_the_conversion_going() -> None:
    """A transform of no elements, as along an axis that is not meant, has no element and divides by none."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[2,1,3,2] x) => (float[n,m,k,l] y) { y = DFT <axis = 1, inverse = 1, onesided = 1> (x) }
    """
    model = convert(onnx.parser.parse_model(text), opset=13)
    found = run_model(model, {"x": np.ones((2, 1, 3, 2), np.float32)})
    assert differs([np.zeros((2, 0, 3, 1), np.float32)], found) is None
