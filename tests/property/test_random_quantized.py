"""Grown quantized networks give the same results after optimization, and a second run has nothing to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from graphopt.fuzzing.differences import first_difference
from graphopt.fuzzing.quantized import Grown, random_dynamic, random_operators, random_qdq, random_single
from graphopt.fuzzing.stepwise import after_steps
from graphopt.manager import PassManager
from graphopt.verify import compare
from graphopt.verify.inputs import Generator
from graphopt.verify.report import CaseReport

LEVELS = ("basic", "extended", "all")
Feed = dict[str, np.ndarray]


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def feeds(model: onnx.ModelProto, sizes: dict[str, int], seed: int) -> list[Feed]:
    """Ordinary numbers that quantization makes exact, and a mixture of zeros, ties, tiny and huge ones."""
    rng = np.random.default_rng(seed)
    odd = [0.0, -0.0, 0.5, -0.5, 1e30, -1e30, 3.0, -3.0, 1e-6]
    found: list[Feed] = [{}, {}]
    for info in model.graph.input:
        tensor = info.type.tensor_type
        shape = [dim.dim_value or sizes[dim.dim_param] for dim in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype.kind == "f":
            found[0][info.name] = (rng.integers(-640, 640, shape) / 64).astype(dtype)
            found[1][info.name] = rng.choice(odd, shape).astype(dtype)
        else:
            ends = np.iinfo(dtype)
            for feed in found:
                feed[info.name] = rng.integers(ends.min, ends.max, shape, dtype, endpoint=True)
    return found


def differences(original: onnx.ModelProto, result: onnx.ModelProto, inputs: list[Feed]) -> list[np.ndarray]:
    """How far the outputs of two models are apart, on each of the inputs."""
    before, after = session(original), session(result)
    found = []
    for feed in inputs:
        for a, b in zip(before.run(None, feed), after.run(None, feed), strict=True):
            assert a.shape == b.shape
            assert a.dtype == b.dtype
            found.append(np.where(a == b, 0.0, np.abs(a.astype(np.float64) - b.astype(np.float64))))
    return found


def runs(model: onnx.ModelProto, feed: Feed) -> bool:
    """Whether the runtime runs a model at all."""
    try:
        session(model).run(None, feed)
    except Exception:  # the exceptions of a native library share no base class
        return False
    return True


def state(model: onnx.ModelProto) -> bytes:
    return model.SerializeToString(deterministic=True)


def problems(build: Callable[[int], Grown], seed: int, check: Callable[..., str | None], numerics: str) -> list[str]:
    """What is wrong with the results of one seed."""
    source, sizes = build(seed)
    found, results = [], {}
    if not runs(source, feeds(source, sizes, seed)[0]):
        return []  # the runtime gives a buffer of one size to an Expand of another, where one has a name
    managers = {level: PassManager(level, numerics=numerics, strict=True, check=True) for level in LEVELS}
    for level, manager in managers.items():
        result = results[level] = manager.run(source).model
        problem = check(source, result, sizes, seed)
        if problem is not None:
            found.append(f"seed {seed}, {level}: {problem}")
        again = manager.run(result)
        if again.events or state(again.model) != state(result):
            found.append(f"seed {seed}, {level}: a second run did {list(map(str, again.events))}")
    for low, high in (("basic", "extended"), ("basic", "all"), ("extended", "all")):
        both = managers[high].run(results[low]).model
        kinds = [sorted(node.op_type for node in model.graph.node) for model in (both, results[high])]
        if kinds[0] != kinds[1]:
            found.append(f"seed {seed}: {low} then {high} gives {kinds[0]}, {high} alone {kinds[1]}")
    return found


def same(source: onnx.ModelProto, result: onnx.ModelProto, sizes: dict[str, int], seed: int) -> str | None:
    """Every bit is equal: scales are powers of two, and sums fit into floats."""
    apart = [d.max(initial=0) for d in differences(source, result, feeds(source, sizes, seed))]
    return f"differs by {max(apart)}" if any(apart) else None


def close(source: onnx.ModelProto, result: onnx.ModelProto, sizes: dict[str, int], seed: int) -> str | None:
    """As the verification sees it: no further apart than the original is from itself with its last bits moved.

    What lies halfway between two integers may be rounded to the other one. Where that is all, as the original cut at
    these integers tells, and all that follows from it, nothing is wrong.
    """
    named = {dim.dim_param for info in source.graph.input for dim in info.type.tensor_type.shape.dim}
    known = {name: size for name, size in sizes.items() if name in named}
    report = compare(source, result, numerics="rounding", seed=seed, dims=known)
    if report.ok or str(report.status) == "inconclusive":
        return None
    wrong = [case for case in report.cases if case.status == "mismatch"]
    generator = Generator(source, seed, known)
    if wrong and all(_is_steps(source, result, feed) for case in wrong for feed in _feeds_of(generator, case)):
        return None
    return report.summary()


def _feeds_of(generator: Generator, case: CaseReport) -> Iterator[Feed]:
    """What the verification ran the models on."""
    plan = next(plan for plan in generator.plans() if plan.sizes == case.sizes)
    yield from generator.feeds(case.set, plan)


def _is_steps(source: onnx.ModelProto, result: onnx.ModelProto, feed: Feed) -> bool:
    """Whether both models agree on a feed but for steps of integers, and what the original makes of those."""
    before, after = (session(model).run(None, feed) for model in (source, result))
    if first_difference(before, after, "rounding") is None:
        return True
    pair = after_steps(source, result, feed)
    return pair is not None and first_difference(*pair, "rounding") is None


def one_step(source: onnx.ModelProto, result: onnx.ModelProto, sizes: dict[str, int], seed: int) -> str | None:
    """After a single operator on quantized values the integers differ by one at most."""
    apart = [d.max(initial=0) for d in differences(source, result, feeds(source, sizes, seed))]
    return f"differs by {max(apart)}" if max(apart) > 1 else None


KINDS: dict[str, tuple[Callable[[int], Grown], Callable[..., str | None]]] = {
    "exact": (lambda seed: random_qdq(seed, exact=True), same),
    "any scales": (lambda seed: random_qdq(seed, exact=False), close),
    "one operator": (random_single, one_step),
    "exact operators": (lambda seed: random_operators(seed, exact=True), same),
    "operators": (lambda seed: random_operators(seed, exact=False), close),
    "dynamic": (random_dynamic, close),
}


@pytest.mark.parametrize("kind", KINDS)
def test_results_stay_and_one_run_settles(kind: str) -> None:
    build, check = KINDS[kind]
    found = [problem for seed in range(10) for problem in problems(build, seed, check, "rounding")]
    assert not found, "\n\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("numerics", ["rounding", "fast"])
@pytest.mark.parametrize("kind", KINDS)
def test_many_results_stay(kind: str, numerics: str) -> None:
    build, check = KINDS[kind]
    found = [problem for seed in range(100, 300) for problem in problems(build, seed, check, numerics)]
    assert not found, "\n\n".join(found)
