"""Random spellings of patterns give the same results after each pass that knows their operators, and at each level."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import onnx
import pytest

from graphopt.manager import PassManager
from graphopt.pipeline import registry
from graphopt.rewrite import GraphPass
from graphopt.verify import compare
from graphopt.verify.runners import RunError, open_runner
from graphopt.verify.source import Source
from tests.property.random_patterns import Shape, random_pattern
from tests.property.settling import unsettled

Feed = dict[str, np.ndarray]


@lru_cache
def manager(name: str) -> PassManager:
    if name in ("basic", "extended"):
        return PassManager(name, strict=True, check=True)
    return PassManager(passes=name, strict=True, check=True)


def rules_for(model: onnx.ModelProto) -> list[str]:
    """Passes that start at one operator that the model has, and whose results need not be approximate."""
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    nodes += [node for owner in model.graph.node for a in owner.attribute for node in a.g.node]
    ops = {node.op_type for node in nodes}
    classes = {name: registry().rule_class(name) for name in registry().names()}
    return [
        name
        for name, rule in classes.items()
        if not issubclass(rule, GraphPass) and str(rule.numerics) != "fast" and ops & set(getattr(rule(), "ops", ()))
    ]


def feed_of(model: onnx.ModelProto, sizes: dict[str, Shape], seed: int) -> Feed:
    numbers = np.random.default_rng(seed)
    defaults = {tensor.name for tensor in model.graph.initializer}
    feed: Feed = {}
    for info in model.graph.input:
        kind = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        if info.name == "condition":
            feed[info.name] = np.array(seed % 2 == 0)
        elif info.name not in defaults or numbers.random() < 0.5:
            feed[info.name] = np.asarray(numbers.standard_normal(sizes[info.name]) * 2).astype(kind)
    return feed


def is_usable(model: onnx.ModelProto, feed: Feed) -> bool:
    """Whether the checker and the runtime take the model: some operators have no kernel for some types."""
    try:
        onnx.checker.check_model(model, full_check=True)
        open_runner(Source(model, "model")).run(feed)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, RunError):
        return False
    except Exception as error:
        return "NOT_IMPLEMENTED" not in str(error) and "NotImplemented" not in type(error).__name__
    return True


def problem(seed: int) -> str | None:
    """What is wrong with some result of one seed, None when nothing is."""
    source, sizes = random_pattern(seed)
    feed = feed_of(source, sizes, seed)
    if not is_usable(source, feed):
        return None
    for name in (*rules_for(source), "basic", "extended"):
        result = manager(name).run(source)
        if not result.events:
            continue
        onnx.checker.check_model(result.model, full_check=True)
        if (result.model.graph.input, result.model.graph.output) != (source.graph.input, source.graph.output):
            return f"seed {seed}, {name}: the interface changed"
        report = compare(source, result.model, numerics="rounding", inputs=feed)
        if not report.ok:
            return f"seed {seed}, {name}: {list(result.hits)}\n{report}"
        again = manager(name).run(result.model)
        if again.events and name in ("basic", "extended"):
            return f"seed {seed}, {name}: a second run did {list(map(str, again.events))[:3]}"
    return None


@pytest.mark.parametrize("start", [0, 60])
def test_results_stay(start: int) -> None:
    problems = [found for seed in range(start, start + 60) if (found := problem(seed))]
    assert not problems, "\n\n".join(problems)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 4000, 500))
def test_many_results_stay(start: int) -> None:
    problems = [found for seed in range(start, start + 500) if (found := problem(seed))]
    assert not problems, "\n\n".join(problems)


def check_settles(start: int, count: int) -> None:
    problems = []
    for seed in range(start, start + count):
        model, sizes = random_pattern(seed)
        if is_usable(model, feed_of(model, sizes, seed)):
            problems += [f"seed {seed}: {found}" for found in unsettled(model)]
    assert not problems, "\n".join(problems)


def test_every_level_settles() -> None:
    check_settles(0, 40)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(4000, 6000, 500))
def test_every_level_settles_on_many(start: int) -> None:
    check_settles(start, 500)
