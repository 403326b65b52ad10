"""Each of onnxoptimizer's 48 passes fires here too, on a model where it has something to do."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import pytest

from benchmarks.onnxoptimizer_passes import Isolated, models, row
from graphopt.compat import onnxoptimizer
from graphopt.compat.interface import INTERFACE_PASSES

MODELS = models()
DIFFERENT_BY_NATURE = {"fuse_consecutive_log_softmax"}


@pytest.fixture(scope="module")
def isolated() -> Iterator[Isolated]:
    process = Isolated()
    yield process
    process.close()


def test_every_pass_has_a_model() -> None:
    original = pytest.importorskip("onnxoptimizer")
    assert set(MODELS) == set(original.get_available_passes())
    assert set(MODELS) <= set(onnxoptimizer.get_available_passes())


@pytest.mark.parametrize("name", sorted(MODELS))
def test_both_fire_and_give_the_same(name: str, isolated: Isolated) -> None:
    pytest.importorskip("onnxoptimizer")
    found = row(name, MODELS[name], isolated)
    assert found.fired == ((False, False) if name == "nop" else (True, True))
    assert found.theirs is not None
    assert found.ours <= found.theirs
    if name not in DIFFERENT_BY_NATURE:
        assert found.our_numbers in ("equal", "close", "valid")
    if name not in INTERFACE_PASSES or name.startswith(("rename", "rewrite")):
        assert found.our_numbers == found.their_numbers
    own = onnxoptimizer.optimize(MODELS[name], [name])
    if name != "lift_lexical_references":
        onnx.checker.check_model(own, full_check=True)
