"""A golden case optimized at the level of its pass is left alone by a second run at that level."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from graphopt.manager import PassManager
from graphopt.pipeline import registry
from graphopt.rewrite import Level, Numerics
from graphopt.testing import Case, cases
from tests.models.settle import SAME, verdict

GOLDEN = Path(__file__).parents[1] / "golden"
PASSES = [name for name in registry().names() if (GOLDEN / name).is_dir()]


def check(name: str, level: Level, numerics: Numerics) -> None:
    """Every case of a pass; the report names all that are not settled, with what the second run did."""
    found = []
    for path in cases(GOLDEN / name):
        case = Case.read(path)
        manager = PassManager(str(level), numerics=str(numerics), target=case.target, strict=True)
        once = manager.run(case.model()).model
        again = manager.run(once)
        if verdict(once, again.model) != SAME:
            found.append(f"{path.stem}: {again.hits}")
    assert not found, f"{name} at {level}, {numerics}: {found}"


@pytest.mark.parametrize("name", PASSES)
def test_cases_are_settled_after_one_run_at_their_level(name: str) -> None:
    rule = registry().rule_class(name)
    check(name, rule.level, max(rule.numerics, Numerics.ROUNDING))


@pytest.mark.slow
@pytest.mark.parametrize("level", [Level.BASIC, Level.EXTENDED, Level.ALL])
@pytest.mark.parametrize("name", PASSES)
def test_cases_are_settled_after_one_run_at_every_level(name: str, level: Level) -> None:
    for numerics in Numerics:
        check(name, level, numerics)


def leading_mean() -> onnx.ModelProto:
    """A mean of leading axes with an axis of size 1 before them, scaled: the product that adds it up takes the scale."""
    return onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18]>
        g (float[1,256,64,64] x) => (float[64,64] y)
        <int64[1] axes = {1}, int64[2] shape = {64, 64}>
        {
            mean = ReduceMean <keepdims = 0> (x, axes)
            y = Reshape (mean, shape)
        }
    """)


def test_what_a_slow_kernel_is_replaced_with_is_fused() -> None:
    manager = PassManager("extended", strict=True)
    result = manager.run(leading_mean())
    assert {"convert_leading_reduction_to_matmul", "fuse_scale_into_matmul"} <= result.hits.keys()
    assert not manager.run(result.model).events
