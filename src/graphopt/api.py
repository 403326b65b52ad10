"""Everything that graphopt does, one function each.

All of them take a model as a path, serialized bytes, a `ModelProto`, an `onnx_ir.Model`, or the `ONNXProgram` that
`torch.onnx.export` returns, and give a result that prints, shows itself in a notebook, and becomes JSON and HTML.
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
    """Run two models on inputs that expose errors, the runtime's optimizations off, and compare.

    Args:
        original: the model as it was.
        result: the model to judge.
        numerics: how close results must be: `exact`, `rounding` or `fast`.
        seed: seed of the generated inputs.
        sets: kinds of inputs; all that make sense when None. See `graphopt.verify.SETS`.
        inputs: inputs of your own, one feed or several; generated ones are then run only where `sets` names them.
        shapes: shapes of inputs, by name.
        dims: sizes of symbolic dimensions, by name.
        timeout: seconds after which to give up.

    Raises:
        ModelError: a file cannot be read or is no model.
        UsageError: an unknown level of numerics or kind of inputs.
    """
    from graphopt.verify import compare

    return compare(
        original, result, numerics=str(Numerics.of(numerics)), seed=seed, sets=sets, inputs=inputs, shapes=shapes,
        dims=dims, timeout=timeout,
    )  # fmt: skip


def explain(source: Source, level: str | Level = Level.BASIC, **settings: Unpack[RunSettings]) -> Explanation:
    """Run passes over a model and tell what they did, in order, and where they declined and why.

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
    """Find the one rewrite that makes a model's result differ, and the smallest model that shows it.

    Args:
        source: the model.
        level: `basic`, `extended`, `layout` or `all`.
        seed: seed of the generated inputs.
        inputs: inputs of your own on which the difference shows.
        timeout: seconds for each comparison.
        progress: told how far things are.
        **settings: see `PassManager`; `numerics` is also how close results must be.

    Returns:
        The fault, or None when the results agree.

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
    """Find out where a model's time goes, operator by operator, at each of the runtime's levels.

    Args:
        source: the model.
        parts: some of `levels`, `alone`, `denormals` and `threads`; all when None.
        threads: threads of everything but the thread table.
        thread_counts: thread counts of that table; 1, all cores and twice as many when None.
        graphopt: profile what graphopt makes at level `all` beside the runtime's levels.
        top: how many operators to time alone.
        rounds: interleaved rounds under the profiler, at most.
        budget: seconds of these for each level, and of each further measurement.
        shapes: shapes of inputs, by name.
        dims: sizes of symbolic dimensions, by name.
        inputs: inputs of your own.
        seed: seed of generated inputs.
        progress: told how far things are.

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
