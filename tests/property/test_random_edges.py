"""Golden cases with one thing changed still give the same results: the edges of what each pass recognizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from graphopt.fuzzing.building import Sample
from graphopt.fuzzing.subjects import OwnSubject
from graphopt.fuzzing.variants import KINDS, variant
from graphopt.fuzzing.verdicts import Judge, NotUsableError
from graphopt.manager import PassManager
from graphopt.pipeline import registry
from graphopt.results import Result
from graphopt.testing import Case, cases
from graphopt.verify import compare
from graphopt.verify.numerics import compare_arrays
from graphopt.verify.runners import CannotLoadError, RunError, Runner, open_runner
from graphopt.verify.source import Source, all_nodes
from graphopt.verify.structure import leaves
from tests.versions import sound_inference

pytestmark = sound_inference

GOLDEN = Path(__file__).parents[1] / "golden"
FAMILIES = ("elimination", "folding", "fusion")
QUANTIZED = ("int8", "integer", "qdq", "quantize")
FINITE = frozenset({each.name for each in registry().rules() if each.finite})
"""Passes that say that infinities and NaN may change places: ADR 15 and ADR 1."""
Feed = dict[str, np.ndarray]
Run = tuple[str, Feed, list[np.ndarray]]

SETS = ("special", "ordinary", "edges")
"""What inputs hold: NaN and infinities; ordinary numbers; denormals, zeros of both signs and, where nothing is added up,
the ends of the range."""

BOUNDS = frozenset(
    {"fuse_relu_into_clip", "fuse_min_max_into_clip", "fuse_consecutive_clips", "fuse_consecutive_min_max"}
)
"""Passes of which even at the ends of the range nothing may overflow on another way."""


@lru_cache(maxsize=1)
def sources() -> list[tuple[str, Case]]:
    """Every golden case in which a pass fires, and runs; layouts, algorithms and quantized models have tests of their own."""
    names = [name for name in registry().names() if registry().rule_class(name).family in FAMILIES]
    names = [name for name in names if not any(word in name for word in QUANTIZED)]
    paths = [path for name in names for path in cases(GOLDEN / name)]
    found = [(f"{path.parent.name}/{path.stem}", Case.read(path)) for path in paths]
    return [(name, case) for name, case in found if "FIRES" in case.head and "NOT RUN" not in case.head]


@lru_cache(maxsize=256)
def manager(passes: str, target: str | None) -> PassManager:
    if passes in ("basic", "extended"):
        return PassManager(passes, strict=True, check=True)
    return PassManager(passes=passes, target=target, numerics="fast", strict=True, check=True)


def sizes_of(info: onnx.ValueInfoProto, named: int) -> tuple[int, ...]:
    return tuple(dim.dim_value if dim.HasField("dim_value") else named for dim in info.type.tensor_type.shape.dim)


def feed_of(model: onnx.ModelProto, kind: str, named: int, seed: int, *, largest: bool) -> Feed | None:
    """Inputs of a model; None where one is no tensor of numbers."""
    rng = np.random.default_rng(seed)
    feed: Feed = {}
    defaults = {tensor.name for tensor in model.graph.initializer}
    for info in model.graph.input:
        if info.type.WhichOneof("value") != "tensor_type":
            return None
        try:
            dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type))
        except KeyError:
            return None
        if info.name in defaults and rng.random() < 0.5:
            continue
        feed[info.name] = numbers(rng, dtype, sizes_of(info, named), kind, largest=largest)
    return feed


def numbers(
    rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...], kind: str, *, largest: bool
) -> np.ndarray:
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    if dtype.kind in "iu":
        return np.asarray(rng.integers(0 if dtype.kind == "u" else -3, 4, shape)).astype(dtype)
    values = np.asarray(np.round(rng.standard_normal(shape) * 2, 2)).astype(dtype)
    info = np.finfo(dtype) if dtype.kind == "f" and dtype.isbuiltin == 1 else None
    if kind == "ordinary" or info is None:
        return values
    chosen = [np.nan, np.inf, -np.inf] if kind == "special" else [info.tiny / 8, -info.tiny / 8, 0.0, -0.0]
    if kind == "edges" and largest:
        chosen += [info.max, info.min]
    lot = np.asarray(rng.random(shape) < (0.15 if kind == "special" else 0.5))
    return np.where(lot, np.asarray(rng.choice(np.array(chosen, dtype), shape)), values).astype(dtype)


def fits(declared: list[int | None] | None, shape: tuple[int, ...]) -> bool:
    """Whether an output has the shape that inference gives it; runtimes have errors too."""
    if declared is None:
        return True
    return len(declared) == len(shape) and all(a in (None, b) for a, b in zip(declared, shape, strict=True))


def run(runner: Runner, model: onnx.ModelProto, feed: Feed) -> list[np.ndarray] | None:
    """The outputs, None where the model does not run, or not as it says, or gives others each time."""
    tensors = [info.type.tensor_type for info in model.graph.output]
    declared = [
        [dim.dim_value if dim.HasField("dim_value") else None for dim in each.shape.dim]
        if each.HasField("shape")
        else None
        for each in tensors
    ]
    try:
        first, second = ([np.asarray(leaf) for out in runner.run(feed) for _, leaf in leaves(out)] for _ in range(2))
    except RunError:
        return None
    if any(not fits(shape, array.shape) for shape, array in zip(declared, first, strict=False)):
        return None
    same = all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True) if a.dtype != object)
    return first if same else None


def aborts(model: onnx.ModelProto) -> bool:
    """Whether the runtime may end the process: some operators do so when there is nothing to go through."""
    fragile = any(
        node.op_type in ("Einsum", "GRU", "LSTM", "RNN", "STFT", "Scan") for node in all_nodes(model.graph.node)
    )
    return fragile and any(dim.dim_value < 1 for info in model.graph.input for dim in info.type.tensor_type.shape.dim)


def unset(arrays: list[np.ndarray]) -> None:
    """Leave NaN in the memory that the next run is given."""
    for array in arrays:
        for _ in range(4):
            np.full(array.nbytes + 64, 0xFF, np.uint8)


_NO_ROUNDING = "which no rounding explains"


def wrong(old: np.ndarray, new: np.ndarray, numerics: str, kind: str, *, strict: bool, zeros: bool) -> str | None:
    """How an output differs that should not; `strict` at the ends of the range too, `zeros` in their sign too."""
    if old.dtype.kind == "f" and old.shape == new.shape and numerics != "exact":
        odd = ~np.isfinite(old) | ~np.isfinite(new)
        different = odd & ~((old == new) | (np.isnan(old) & np.isnan(new)))
        if different.any() and (kind != "edges" or strict):
            return f"{kind}: {old[different][0]} is {new[different][0]}, {_NO_ROUNDING}"
        old, new = np.where(odd, 0, old), np.where(odd, 0, new)
    if old.dtype.kind == "f" and not zeros:
        old, new = old + old.dtype.type(0), new + old.dtype.type(0)
    report = compare_arrays("", old, new, numerics)
    return f"{kind}: {report.detail}" if report.status == "mismatch" else None


def numerics_of(result: Result, plan: PassManager) -> str:
    return str(max(type(plan.plan.rule(name)).numerics for name in result.hits))


def problem(case: Case, seed: int, level: str | None = None) -> tuple[str, str | None]:
    """What kind of variant a seed gives, empty where it is none that runs; and what is wrong with its result."""
    made = variant(case.model(), seed)
    if made is None:
        return "", None
    kind, model = made
    if aborts(model):
        return "", None
    try:
        onnx.checker.check_model(model, full_check=True)
        before = open_runner(Source(model, "original"), ("onnxruntime",))
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, CannotLoadError, ValueError):
        return "", None
    runs = list(_runs(before, model, seed, largest=set(case.passes.split(",")) <= BOUNDS))
    if not runs:
        return "", None
    plan = manager(level or case.passes, case.target)
    result = plan.run(model)
    if not result.events:
        return kind, None
    strict = set(result.hits) <= BOUNDS
    found = _judged(model, result, runs, numerics_of(result, plan), strict=strict)
    if found is None or strict:
        return kind, found
    subject = OwnSubject(level) if level else OwnSubject(passes=case.passes, target=case.target)
    return kind, None if _is_granted(subject, Sample(model, [feed for _, feed, _ in runs])) else found


def _is_granted(subject: OwnSubject, sample: Sample) -> bool:
    """Whether the judge of random models, which knows more of the runtime, finds no fault, or does not take the model."""
    try:
        judge = Judge(sample)
    except NotUsableError:
        return True
    return judge.of(subject, subject.optimize(sample.model), again=False, once_more=False) is None


def _runs(runner: Runner, model: onnx.ModelProto, seed: int, *, largest: bool) -> Iterator[Run]:
    """What each set of inputs gives, where axes that have names are as long as it runs with."""
    sizes = [3, 2, 4, 1, 0]
    for number, name in enumerate(SETS):
        for named in sizes:
            feed = feed_of(model, name, named, seed + number, largest=largest)
            outputs = run(runner, model, feed) if feed is not None else None
            if feed is not None and outputs is not None:
                sizes = [named]
                yield name, feed, outputs
                break
        else:
            return


def _has_halves(model: onnx.ModelProto) -> bool:
    return any(info.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16 for info in model.graph.input)


def _judged(
    model: onnx.ModelProto,
    result: Result,
    runs: list[Run],
    numerics: str,
    *,
    strict: bool,
) -> str | None:
    try:
        onnx.checker.check_model(result.model, full_check=True)
        after = open_runner(Source(result.model, "result"), ("onnxruntime",))
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, CannotLoadError) as error:
        return f"the result does not load: {error}"
    # Which of two zeros is the larger, and where half a number is rounded, is up to the path in the kernel.
    zeros = not any(node.op_type in ("Max", "Min") for node in model.graph.node)
    if numerics == "exact" and _has_halves(model):
        numerics = "rounding"
    if numerics == "fast":
        runs = [entry for entry in runs if entry[0] == "ordinary"]
    elif FINITE & set(result.hits):
        runs = [entry for entry in runs if entry[0] != "special"]
    for name, feed, old in runs:
        unset(old)
        try:
            new = [np.asarray(leaf) for out in after.run(feed) for _, leaf in leaves(out)]
        except RunError as error:
            return f"{name}: the result does not run: {error}"
        if len(old) != len(new):
            return f"{len(old)} outputs are {len(new)}"
        each = (wrong(a, b, numerics, name, strict=strict, zeros=zeros) for a, b in zip(old, new, strict=True))
        found = next((text for text in each if text is not None), None)
        if found is None:
            continue
        if (
            numerics != "exact"
            and not found.endswith(_NO_ROUNDING)
            and compare(model, result.model, numerics=numerics, inputs=feed).ok
        ):
            continue
        return f"{list(result.hits)} {numerics} {found}"
    return None


def check(first: int, last: int, every: int = 1, level: str | None = None) -> Counter[str]:
    """Try seeds from `first` up to `last` on each case, or on one in `every`; how many variants of each kind ran."""
    counts: Counter[str] = Counter()
    problems = []
    for number, (name, case) in enumerate(sources()):
        for seed in range(first, last) if (number - first) % every == 0 else ():
            kind, found = problem(case, 10_000 * seed + number, level)
            counts[kind] += 1
            if found is not None:
                problems.append(f"{name}, seed {10_000 * seed + number}, {kind}: {found}")
    assert not problems, "\n\n".join(problems)
    del counts[""]
    return counts


@pytest.mark.parametrize("first", range(4))
def test_variants_give_the_same_results(first: int) -> None:
    counts = check(first, first + 1, every=8)
    assert counts.total() > 20


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10, 50, 4))
def test_many_variants_give_the_same_results(first: int) -> None:
    counts = check(first, first + 4)
    assert set(counts) == set(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["basic", "extended"])
def test_variants_give_the_same_results_at_a_level(level: str) -> None:
    counts = check(50, 52, level=level)
    assert set(counts) == set(KINDS)
