"""`PassManager`: optimize a model, report the changes, and compare with other optimizers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from os import PathLike
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, overload

import onnx

from graphopt.errors import ModelError, UsageError, VerificationError
from graphopt.ir import ExternalData, Model, Source, paused_gc
from graphopt.ir.external import check_opaque
from graphopt.ir.foreign import as_ir_model, is_program
from graphopt.ir.foreign import write as write_foreign
from graphopt.ir.interface import load_fixed, restored_on_error
from graphopt.ir.model import IrModel, Program
from graphopt.pipeline import INLINE, Pipeline, Plan, execute, pipeline_of
from graphopt.printable import counted
from graphopt.results import Census, Result
from graphopt.rewrite import Level, Log, Numerics, Options, Target
from graphopt.system.collector import make_room, weigh
from graphopt.system.machine import METADATA_KEY

if TYPE_CHECKING:
    from logging import Logger

    from graphopt.audit import Audit
    from graphopt.audit.comparison import AuditSettings
    from graphopt.verify import Feed, Report


def _logger() -> Logger | None:
    """The logger of runs; None while `logging` is not imported, so that there can be no handler."""
    if "logging" not in sys.modules:
        return None
    import logging

    found = logging.getLogger("graphopt")
    if not found.handlers:
        found.addHandler(logging.NullHandler())  # silent until the program adds a handler
    return found


class RunSettings(TypedDict, total=False):
    """The keyword arguments of a run, which `PassManager` documents."""

    passes: str | Iterable[str] | None
    skip: Iterable[str] | None
    numerics: str | Numerics
    target: str | Target | None
    verify: bool
    strict: bool
    explain: bool
    profile: bool
    check: bool
    limit: int | None
    options: Options | None
    shapes: Mapping[str, Sequence[int]] | None
    dims: Mapping[str, int] | None
    inline_functions: bool
    opset: int | None
    opaque_weights: str | None
    constant_initializers: bool


class PassManager:
    """A choice of passes, ready to run over models.

    Args:
        level: `basic` (standard operators at the model's opset), `extended` (adds `com.microsoft`, inlines functions,
            converts the model to opset 17 if it contains layer normalizations),
            `layout` or `all` (adds the blocked NCHWc layout for one target).
        passes: a pipeline as text, or pass names in order; it replaces that of the level.
        skip: names of passes to leave out.
        numerics: `exact`, `rounding` (the default) or `fast`: the ceiling for passes that are not named individually.
        target: `host`, or the instruction set that layout passes write for.
        verify: run the original and the result on generated inputs and raise if they differ. After layout passes
            inputs with NaN and infinities are left out: the runtime's blocked max pools treat them differently.
            Differences on them do not count after passes that are correct for finite numbers only.
        strict: re-raise exceptions of passes, instead of undoing the pass and reporting the failure.
        explain: collect the reasons of near misses.
        profile: time every attempt of every rule.
        check: verify the view after every rewrite (slow).
        limit: stop after this many rewrites.
        shapes: fixed shapes for inputs, by name; outputs and symbols follow.
        dims: fixed sizes for symbolic dimensions, by name.
        inline_functions: replace calls of model-local functions with their bodies, before anything else. Levels above
            `basic` always do, unless `skip` names that pass.
        opset: first convert the model to this version of the standard's operators, and keep it; see
            `graphopt.convert`. Without it, levels above `basic` may convert the model to opset 17.
        opaque_weights: leave weights in external files unread, and keep the references to them: `missing` for those
            whose file is missing, `all` for all. Passes that need their bytes decline.
        constant_initializers: treat initializers that are also inputs as constants, as ONNX Runtime does before IR
            version 4: they are no longer inputs of the result, and passes read them. Otherwise they stay inputs, and
            passes read nothing of them but sizes below IR version 4.
        options: further settings for passes; its `target` is replaced if `target` is given.

    Raises:
        UsageError: an argument is not valid.
    """

    def __init__(
        self, level: str | Level = Level.BASIC, *, passes: str | Iterable[str] | None = None,
        skip: Iterable[str] | None = None, numerics: str | Numerics = Numerics.ROUNDING,
        target: str | Target | None = None, verify: bool = False, strict: bool = False, explain: bool = False,
        profile: bool = False, check: bool = False,
        limit: int | None = None, options: Options | None = None, shapes: Mapping[str, Sequence[int]] | None = None,
        dims: Mapping[str, int] | None = None, inline_functions: bool = False, opset: int | None = None,
        opaque_weights: str | None = None, constant_initializers: bool = False,
    ) -> None:  # fmt: skip
        _check_kinds(target=target, limit=limit, options=options, shapes=shapes, dims=dims, skip=skip)
        self.level = Level.of(level)
        self.numerics = Numerics.of(numerics)
        self.target = Target.parse(target) if isinstance(target, str) else target
        self.verify, self.strict, self.explain = verify, strict, explain
        self.profile, self.check, self.limit, self.opset = profile, check, limit, opset
        self.shapes, self.dims = dict(shapes or {}), dict(dims or {})
        self.opaque_weights, self.constant_initializers = check_opaque(opaque_weights), constant_initializers
        self.options = _with_stated(options or Options(), self.target, opset)
        pipeline = Pipeline.of_level(self.level) if passes is None else pipeline_of(passes)
        if inline_functions or self.options.inline_functions:
            pipeline = pipeline.preceded_by(INLINE)
        skipped = [skip] if isinstance(skip, str) else [] if skip is None else list(skip)
        for name in skipped:
            if not isinstance(name, str):
                raise UsageError(f"skip: expected pass names, found {name!r}")
        self.plan = Plan.shared(pipeline, self.numerics, frozenset(skipped))

    def run(self, source: Source | Model, *, inplace: bool = False) -> Result:
        """Optimize a model.

        Args:
            source: a path, serialized bytes, a `ModelProto`, or a view, which is changed.
            inplace: change the given `ModelProto` instead of making a new one; `Result.model` is then that proto.

        Returns:
            The result: the model, the events, the time of each pass.

        Raises:
            ModelError: the model cannot be read, was written for another target, or cannot be converted to the
                requested opset.
            UsageError: a setting that applies when a model is loaded is stated for a view.
            VerificationError: with `verify=True`, the result differs from the original.
        """
        start = perf_counter()
        make_room()
        with paused_gc(), restored_on_error(source if inplace else None):
            model = self._load(source, inplace=inplace and not self.verify)
            # Without a comparison, nobody reads the original, and a view need not be copied.
            given = source if not isinstance(source, Model) else _copy(model) if self.verify else b""
            self._check_target(model)
            before = Census.of(model)
            if self.opset is not None:
                from graphopt.opsets import convert_loaded

                convert_loaded(model, self.opset)
            weigh(model, 2 * before.bytes + 3000 * before.nodes)  # with weights that are computed, and the view
            log = Log(listen=self.explain, profile=self.profile, limit=self.limit)
            execute(self.plan, model, log, strict=self.strict, check=self.check, options=self.options)
            result = Result(model, log, before, perf_counter() - start, str(self.plan.pipeline))
        self._tell(result)
        if self.verify:
            self._verify(given, result)
            if inplace and isinstance(source, onnx.ModelProto):
                source.CopyFrom(result.model)
                result.model = source
        return result

    def _tell(self, result: Result) -> None:
        """Log warnings about the run, and what it did."""
        logger = _logger()
        if logger is None:
            return
        for failure in result.failures:
            logger.warning("pass %s failed at %s and was undone: %s", failure.rule, failure.node, failure.error)
        if result.log.unsettled:
            logger.warning("passes were still changing the model after the maximum number of rounds")
        if result.log.full:
            logger.warning("stopped after %d rewrites, as requested; there may be more to do", len(result.events))
        if result.unread.tensors:
            logger.warning("%s", result.unread)
        if not result.changed:
            logger.info("no pass found anything to do")
        else:
            done = result.before.nodes, result.after.nodes, counted(len(result.events), "rewrite"), result.seconds
            logger.info("%d -> %d nodes, %s in %.2f s", *done)
        for name, hits in result.hits.items():
            logger.debug("%s: %d", name, hits)

    def _load(self, source: Source | Model, *, inplace: bool) -> Model:
        if isinstance(source, Model):
            stated = self.shapes, self.dims, self.constant_initializers, self.opaque_weights
            if any(stated[:3]) or stated[3] not in (None, source.opaque):
                names = "shapes, dims, constant_initializers and opaque_weights"
                raise UsageError(f"{names} apply when a model is loaded, found a view, which is loaded already")
            return source
        return load_fixed(
            source, self.shapes, self.dims, inplace=inplace, opaque=self.opaque_weights,
            constant_initializers=self.constant_initializers,
        )  # fmt: skip

    def as_optimized(self, source: Source) -> Source:
        """The model to compare the result with: the source, with the requested shapes and constants.

        Args:
            source: a path, serialized bytes, or a `ModelProto`, which is not changed.
        """
        as_given = not (self.shapes or self.dims or self.opaque_weights or self.constant_initializers)
        return source if as_given else self._load(source, inplace=False).flush()

    def prepared(self, source: Source) -> Source:
        """The model that the passes start from: with the requested shapes, at the requested opset.

        Args:
            source: a path, serialized bytes, or a `ModelProto`, which is not changed.

        Raises:
            ConversionError: it cannot be converted to the opset.
        """
        before = self.as_optimized(source)
        if self.opset is None:
            return before
        from graphopt.opsets import convert_loaded

        model = Model.load(before, opaque=self.opaque_weights)
        convert_loaded(model, self.opset)
        return model.flush()

    def _check_target(self, model: Model) -> None:
        written_for = model.metadata.get(METADATA_KEY)
        if written_for is None:
            return
        target = self.target or Target.parse("host")
        if written_for != str(target):
            raise ModelError(f"the model was written for target {written_for}, this run is for {target}")

    def _verify(self, source: Source, result: Result) -> None:
        report = self.verification(source, result)
        if not report.ok:
            raise VerificationError(report.summary())
        result.verification = report

    def verification(
        self, source: Source, result: Result, *, seed: int = 0, inputs: Feed | Sequence[Feed] | None = None,
        timeout: float | None = None,
    ) -> Report:  # fmt: skip
        """Run a result and its source on the same inputs, and compare at the numerics of the passes that fired.

        Args:
            source: the model that was optimized: a path, serialized bytes, or a `ModelProto`.
            result: the result of this manager's run.
            seed: seed of the generated inputs.
            inputs: your own inputs, one feed or several, in addition to the generated ones.
            timeout: seconds after which the comparison is stopped.

        Returns:
            The report. If all passes are exact but bits differ, it is that for `rounding`: with an operand that becomes
            a visible constant, such as a weight behind an `Identity`, the runtime uses another kernel. If a pass
            fired whose numerics hold for finite numbers only, differences on NaN and infinities do not count. If
            weights were left unread, both models run with the same random ones: no pass has relied on their values.
        """
        from graphopt.verify import FINITE_SETS, SETS, compare

        before: Source = self.as_optimized(source)
        after = result.model
        if result.unread.tensors:
            from graphopt.verify.filling import both_filled

            before, after = both_filled(before, result.view)
        # ONNX Runtime's blocked max pools treat NaN and infinities differently from its plain ones.
        blocked = any(self.plan.rule(name).level >= Level.LAYOUT for name in result.hits)
        sets = FINITE_SETS if blocked else None if inputs is None else SETS
        numerics = self._numerics_used(result)
        report = compare(before, after, numerics=numerics, seed=seed, sets=sets, inputs=inputs, timeout=timeout)
        if report.status_of("special") == "mismatch" and any(self.plan.rule(name).finite for name in result.hits):
            sets = FINITE_SETS
        elif report.ok or numerics is not Numerics.EXACT:
            return report
        numerics = max(numerics, Numerics.ROUNDING)
        return compare(before, after, numerics=numerics, seed=seed, sets=sets, inputs=inputs, timeout=timeout)

    def _numerics_used(self, result: Result) -> Numerics:
        """The loosest numerics of the passes that fired."""
        fired = [self.plan.rule(name).numerics for name in result.hits]
        return max(fired, default=Numerics.EXACT)

    def compare(self, source: Source, against: Sequence[str] | None = None, **settings: Unpack[AuditSettings]) -> Audit:
        """Run this and other optimizers on a model and compare outputs, sizes and run times.

        Args:
            source: the model.
            against: names of peers; all that are installed if None.
            **settings: see `graphopt.audit.audit`.
        """
        from graphopt.audit import audit

        return audit(source, managers={str(self.level): self}, against=against, **settings)


def _copy(view: Model) -> onnx.ModelProto:
    """The present model of a view; what `flush` returns may be changed with the view."""
    proto = onnx.ModelProto()
    proto.CopyFrom(view.flush())
    return proto


def _check_kinds(**arguments: Any) -> None:
    """Refuse arguments of a wrong type before anything runs."""
    kinds: dict[str, tuple[Any, str]] = {
        "target": (str | Target, "a name or a Target"), "limit": (Integral, "a whole number"),
        "options": (Options, "Options"),
        "shapes": (Mapping, "a mapping from inputs to shapes"), "dims": (Mapping, "a mapping from symbols to sizes"),
        "skip": (Iterable, "pass names"),
    }  # fmt: skip
    for name, value in arguments.items():
        kind, expected = kinds[name]
        if value is not None and not isinstance(value, kind):
            raise UsageError(f"{name}: expected {expected}, found {type(value).__name__}")
    if (arguments["limit"] or 0) < 0:
        raise UsageError(f"limit: expected a number >= 0, found {arguments['limit']}")


def _with_stated(options: Options, target: Target | None, opset: int | None) -> Options:
    """Options with the target of a run; a requested opset is kept."""
    from dataclasses import replace

    return replace(options, target=target or options.target, keep_opset=options.keep_opset or opset is not None)


Whole = TypeVar("Whole", bound=IrModel | Program)
"""Sources whose result has the same type: an `onnx_ir.Model`, or an `ONNXProgram` of torch."""


@overload
def optimize(
    source: Whole, level: str | Level = ..., *, inplace: bool = ..., **settings: Unpack[RunSettings]
) -> Whole: ...


@overload
def optimize(
    source: str | PathLike[str] | bytes | onnx.ModelProto, level: str | Level = ..., *, inplace: bool = ...,
    **settings: Unpack[RunSettings],
) -> onnx.ModelProto: ...  # fmt: skip


def optimize(
    source: Source, level: str | Level = Level.BASIC, *, inplace: bool = False, **settings: Unpack[RunSettings]
) -> Any:
    """Optimize a model.

    Args:
        source: a path, serialized bytes, a `ModelProto`, an `onnx_ir.Model`, or the `ONNXProgram` that
            `torch.onnx.export` returns. It is not changed unless `inplace`.
        level: `basic`, `extended`, `layout` or `all`.
        inplace: change the given `ModelProto` or `ONNXProgram` instead of making a new one.
        **settings: see `PassManager`.

    Returns:
        The optimized model: an `onnx_ir.Model` or `ONNXProgram` if that was given, otherwise a `ModelProto`. The former
        two share large weights with the source.

    Examples:
        >>> from graphopt import demo, optimize
        >>> model = demo.conv_maxpool()
        >>> len(optimize(model).graph.node) <= len(model.graph.node)
        True
    """
    foreign = as_ir_model(source)
    result = PassManager(level, **settings).run(source, inplace=inplace)
    if foreign is None:
        return result.model
    if inplace and is_program(source):
        source.model = write_foreign(result.view, foreign)
        return source
    return write_foreign(result.view, source)


def optimize_file(
    source: Source, destination: str | PathLike[str], level: str | Level = Level.BASIC,
    *, external_data: ExternalData | None = None, **settings: Unpack[RunSettings],
) -> Result:  # fmt: skip
    """Optimize from file to file: weights that no pass touches are copied without being loaded.

    Args:
        source: the model to read, usually a path.
        destination: the file to write, atomically.
        level: `basic`, `extended`, `layout` or `all`.
        external_data: how to lay out external weights; as in the source if None.
        **settings: see `PassManager`.
    """
    result = PassManager(level, **settings).run(source)
    result.save(destination, external_data)
    return result
