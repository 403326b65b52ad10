"""The numeric oracle: does a rewritten model give the same results as the original?

Both models run with all optimizations of the runtime switched off, on inputs made to expose errors. Nothing here
depends on the rewrite engine: the input is protos, bytes and files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TypedDict, Unpack

from graphopt.errors import ModelError, VerificationError
from graphopt.system.given import check_numbers, several
from graphopt.verify.inputs import FINITE_SETS, SETS, CannotGenerateError, Feed, Generator
from graphopt.verify.interface import Shapes
from graphopt.verify.isolation import run_isolated
from graphopt.verify.numerics import LEVELS, level_name
from graphopt.verify.oracle import Request, run_comparison
from graphopt.verify.report import CaseReport, Difference, OutputReport, Report, Status
from graphopt.verify.runners import CannotLoadError, RunError, open_runner
from graphopt.verify.source import ModelLike, Source

__all__ = [
    "FINITE_SETS",
    "LEVELS",
    "SETS",
    "CaseReport",
    "Difference",
    "Feed",
    "ModelLike",
    "OutputReport",
    "Report",
    "Status",
    "assert_equivalent",
    "compare",
    "sample_inputs",
]


def compare(
    original: ModelLike,
    result: ModelLike,
    *,
    numerics: str | Enum = "rounding",
    seed: int = 0,
    sets: Sequence[str] | None = None,
    inputs: Feed | Sequence[Feed] | None = None,
    shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None,
    timeout: float | None = None,
    isolate: bool | None = None,
) -> Report:
    """Run two models on the same inputs and report how far their outputs differ.

    Args:
        original: The reference model: a ModelProto, its bytes, or a path (external data is found next to it).
        result: The model to check.
        numerics: `exact` (every bit, NaN positions included; -0.0 is not 0.0), `rounding` (last bits may differ,
            NaN and infinities may not) or `fast` (approximations).
        seed: Seed of the generated inputs.
        sets: Which of `SETS` to generate: `ordinary`, `extreme`, `special` (NaN and infinities), `overrides` (other
            values for initializers that are inputs too). Default: all that apply; `fast` omits `special`, which has no
            infinities if the result's metadata states that negligible weights were set to zero.
        inputs: Inputs of the caller, one feed or several; generated sets are then run only if `sets` names them.
        shapes: Shapes of inputs, by name.
        dims: Sizes for symbolic dimensions, by name; `input[axis]` names a dimension without a name.
        timeout: Seconds after which the comparison is stopped; implies `isolate`.
        isolate: Run in a subprocess, so that a crash of the runtime becomes part of the report.

    Returns:
        The report; `report.ok` is True if at least one set was conclusive and all conclusive ones agreed.

    Raises:
        ModelError: A file cannot be read or is not a model.
        UsageError: A numerics level or input set is unknown.
    """
    check_numbers(whole=True, seed=seed)
    check_numbers(timeout=timeout)
    given: Any = inputs
    feeds = () if inputs is None else (dict(inputs),) if isinstance(inputs, Mapping) else several("inputs", given)
    chosen = None if sets is None else several("sets", sets)
    request = Request(level_name(numerics), seed, chosen, feeds, dict(dims or {}), dict(shapes or {}))
    if isolate if isolate is not None else timeout is not None:
        return run_isolated(original, result, request, timeout)
    return run_comparison(original, result, request)


class CompareSettings(TypedDict, total=False):
    """The keyword arguments of `compare`, which documents them."""

    numerics: str | Enum
    seed: int
    sets: Sequence[str] | None
    inputs: Feed | Sequence[Feed] | None
    shapes: Shapes | None
    dims: Mapping[str, int] | None
    timeout: float | None
    isolate: bool | None


def assert_equivalent(original: ModelLike, result: ModelLike, **options: Unpack[CompareSettings]) -> Report:
    """Run `compare`, and raise `VerificationError` with the summary unless the models were shown to agree."""
    report = compare(original, result, **options)
    if not report.ok:
        raise VerificationError(report.summary())
    return report


def sample_inputs(
    model: ModelLike, *, set_name: str = "ordinary", seed: int = 0, dims: Mapping[str, int] | None = None
) -> Feed:
    """Inputs on which a model runs, for timing or trying it.

    Args:
        model: The model.
        set_name: One of `SETS`.
        seed: Seed of the values.
        dims: Sizes for symbolic dimensions; the others are chosen by trial.

    Raises:
        ModelError: The model does not load, or fails on all inputs tried.
    """
    source = Source(model, os.fspath(model) if isinstance(model, (str, os.PathLike)) else "model")
    try:
        runner = open_runner(source)
        generator = Generator(source.proto, seed, dims or {})
        reason = "it has no inputs to choose"
        for plan in generator.plans():
            for feed in generator.feeds(set_name, plan):
                try:
                    runner.run(feed)
                except RunError as error:
                    reason = str(error)
                else:
                    return feed
    except (CannotLoadError, CannotGenerateError) as error:
        raise ModelError(f"{source.label}: {error}") from None
    finally:
        source.close()
    raise ModelError(f"{source.label}: runs on none of the generated inputs; the last error: {reason}")
