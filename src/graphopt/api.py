"""The tasks of graphopt, one function each.

All of them accept a model as a path, serialized bytes, a `ModelProto`, an `onnx_ir.Model`, or the `ONNXProgram` that
`torch.onnx.export` returns. Their results can be printed, shown in a notebook, and converted to JSON and HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from graphopt.audit.comparison import audit
from graphopt.audit.inspecting import inspect
from graphopt.errors import UsageError
from graphopt.ir import Source
from graphopt.manager import PassManager, RunSettings, optimize, optimize_file
from graphopt.rewrite import Level, Numerics
from graphopt.verify import Feed
from graphopt.verify.interface import Shapes

if TYPE_CHECKING:
    from graphopt.audit.bisection import Fault
    from graphopt.audit.explaining import Explanation
    from graphopt.audit.profile import Profile
    from graphopt.verify import Report

__all__ = ["audit", "bisect", "explain", "inspect", "optimize", "optimize_file", "profile", "verify"]

Progress = Callable[[str, float], None]


def _ignore(what: str, part: float) -> None:
    pass


def verify(
    original: Source, result: Source, *, numerics: str | Numerics = Numerics.ROUNDING, seed: int = 0,
    sets: Sequence[str] | None = None, inputs: Feed | Sequence[Feed] | None = None, shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None, timeout: float | None = None,
) -> Report:  # fmt: skip
    """Run two models on inputs that expose errors, with the runtime's optimizations off, and compare their outputs.

    Args:
        original: the original model.
        result: the model to check.
        numerics: how close results must be: `exact`, `rounding` or `fast`.
        seed: seed of the generated inputs.
        sets: kinds of inputs; all that apply if None. See `graphopt.verify.SETS`.
        inputs: your own inputs, one feed or several; generated ones are then run only if `sets` names them.
        shapes: shapes of inputs, by name.
        dims: sizes of symbolic dimensions, by name.
        timeout: seconds after which the comparison is stopped.

    Raises:
        ModelError: a file cannot be read or is not a model.
        UsageError: a level of numerics or kind of inputs is unknown.
    """
    from graphopt.verify import compare

    return compare(
        original, result, numerics=str(Numerics.of(numerics)), seed=seed, sets=sets, inputs=inputs, shapes=shapes,
        dims=dims, timeout=timeout,
    )  # fmt: skip


def explain(source: Source, level: str | Level = Level.BASIC, **settings: Unpack[RunSettings]) -> Explanation:
    """Run passes over a model and report what they did, in order, and where and why they declined.

    Args:
        source: the model.
        level: `basic`, `extended`, `layout` or `all`.
        **settings: see `PassManager`.

    Raises:
        ModelError: the model cannot be read.
        UsageError: a setting is not known.
    """
    from graphopt.audit.explaining import explain as explained

    manager = PassManager(level, **settings)
    return explained(manager.prepared(source), manager)


def bisect(
    source: Source, level: str | Level = Level.BASIC, *, seed: int = 0, inputs: Feed | None = None,
    timeout: float | None = None, progress: Progress = _ignore, **settings: Unpack[RunSettings],
) -> Fault | None:  # fmt: skip
    """Find the rewrite that makes the results of a model differ, and the smallest model that shows it.

    Args:
        source: the model.
        level: `basic`, `extended`, `layout` or `all`.
        seed: seed of the generated inputs.
        inputs: your own inputs on which the results differ.
        timeout: seconds for each comparison.
        progress: called with the current step and the fraction that is done.
        **settings: see `PassManager`; `numerics` also states how close results must be.

    Returns:
        The fault, or None if the results agree.

    Raises:
        ModelError: the model cannot be read.
        UsageError: a setting is not known.
    """
    from graphopt.audit.bisection import bisect as search

    manager = PassManager(level, **settings)
    if manager.opaque_weights is not None:
        raise UsageError("bisect runs the model: it needs all weights")
    return search(
        manager.prepared(source), manager, numerics=str(manager.numerics), seed=seed, feed=inputs, timeout=timeout,
        progress=progress,
    )  # fmt: skip


def profile(
    source: Source, *, parts: Sequence[str] | None = None, threads: int = 1,
    thread_counts: Sequence[int] | None = None, graphopt: bool = True, top: int = 12, rounds: int = 15,
    budget: float = 6.0, shapes: Shapes | None = None, dims: Mapping[str, int] | None = None,
    inputs: Mapping[str, Any] | None = None, seed: int = 0, progress: Progress = _ignore,
) -> Profile:  # fmt: skip
    """Measure a model's run time by operator, at each optimization level of the runtime.

    Args:
        source: the model.
        parts: some of `levels`, `alone`, `denormals` and `threads`; all if None.
        threads: number of threads, except for the thread table.
        thread_counts: thread counts of that table; 1, all cores and twice as many if None.
        graphopt: also profile graphopt's result at level `all`.
        top: number of operators to time alone.
        rounds: most interleaved rounds under the profiler.
        budget: seconds of these rounds for each level, and of each further measurement.
        shapes: shapes of inputs, by name.
        dims: sizes of symbolic dimensions, by name.
        inputs: your own inputs.
        seed: seed of generated inputs.
        progress: called with the current step and the fraction that is done.

    Raises:
        ModelError: the model cannot be read or run.
        UsageError: an argument is wrong.
    """
    from graphopt.audit.profile import PARTS
    from graphopt.audit.profile import profile as measured

    return measured(
        source, parts=PARTS if parts is None else parts, threads=threads, thread_counts=thread_counts,
        graphopt=graphopt, top=top, rounds=rounds, budget=budget, shapes=shapes, dims=dims, data=inputs, seed=seed,
        progress=progress,
    )  # fmt: skip
