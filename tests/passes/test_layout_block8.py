"""Models for machines with blocks of 8 and 4 channels, run by an emulation of the blocked operators."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, assume, given, settings

from graphopt.errors import ModelError
from graphopt.manager import PassManager
from graphopt.rewrite import Target
from graphopt.system.machine import METADATA_KEY, host
from tests.passes import layout_models as models
from tests.passes import layout_steps as steps
from tests.passes.layout_emulation import emulate

STEPS = tuple(step for step in steps.STEPS if step not in (steps._resize, steps._trim))
"""Without what the emulation or the reference evaluator of ONNX does not know."""
QUICK = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("target", ["avx2", "neon/nchwc8", "neon/nchwc4"])
@QUICK
@given(steps.graphs(STEPS))
def test_smaller_blocks_give_the_same_numbers(
    target: str, drawn: tuple[onnx.ModelProto, dict[str, np.ndarray]]
) -> None:
    model, feeds = drawn
    expected = models.run_if_finite(model, feeds)
    assume(expected is not None)
    assert expected is not None
    result = models.convert(model, target)
    assert models.blocked_ops(result.model)
    models.assert_close(expected, emulate(result.model, Target.parse(target).block, feeds))


@pytest.mark.skipif(host().block == 1, reason="no blocked kernels on this machine")
@settings(QUICK, max_examples=20)
@given(steps.graphs(STEPS))
def test_emulation_agrees_with_the_kernels(drawn: tuple[onnx.ModelProto, dict[str, np.ndarray]]) -> None:
    model, feeds = drawn
    result = models.convert(model)
    models.assert_close(models.run(result.model, feeds), emulate(result.model, host().block, feeds))


def _depthwise() -> onnx.ModelProto:
    b = models.Builder(0)
    x = b.image("x", 8, 16, 16)
    (name,) = b.op("Conv", x.name, b.random(8, 1, 3, 3), group=8)
    return b.model([b.image(name, 8, 14, 14)], 1, dynamic=False)


@pytest.mark.parametrize(
    ("target", "name", "block"),
    [
        ("avx2", "avx2", 8), ("avx512", "avx512", 16), ("avx512-xeon", "avx512", 16), ("neon", "neon", 16),
        ("neon/nchwc4", "neon", 4),
    ],
)  # fmt: skip
def test_model_names_its_target(target: str, name: str, block: int) -> None:
    result = models.convert(_depthwise(), target)
    assert {p.key: p.value for p in result.model.metadata_props}[METADATA_KEY] == f"{name}/nchwc{block}"
    assert next(i for i in result.model.graph.initializer).dims[0] == max(block, 8)


def test_model_for_another_target_is_refused() -> None:
    model = models.convert(_depthwise(), "avx2").model
    with pytest.raises(ModelError, match="written for target avx2/nchwc8"):
        PassManager(passes=models.PASS, target="avx512").run(model)


def test_machine_without_blocked_kernels_is_left_alone() -> None:
    manager = PassManager(passes=models.PASS, target=Target("riscv", 1), explain=True)
    result = manager.run(_depthwise())
    assert not result.changed
    assert [miss.reason for miss in result.near_misses] == ["target riscv has no blocked kernels"]
