"""The optimizers under test: graphopt at a level or with a pipeline, or another optimizer in a separate process."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import onnx

from graphopt.audit.passes import OTHER_PURPOSE
from graphopt.errors import GraphoptError, UsageError
from graphopt.fuzzing.building import Sample
from graphopt.fuzzing.drawing import Draw
from graphopt.fuzzing.operators import OPSETS
from graphopt.manager import PassManager
from graphopt.opsets import ConversionError, convert
from graphopt.peers import by_name
from graphopt.peers.serving import PassServer
from graphopt.rewrite import Level, Numerics, Options, Rule
from graphopt.system.files import scratch
from graphopt.system.machine import runs_here

LEVELS = ("basic", "extended", "all")
ALONE = "alone"
"""In place of a level: only the passes whose golden cases a model begins with."""

DEFAULT = (*LEVELS, ALONE)

CONVERT = "convert"
"""In place of a level: converting the model to another opset, or refusing to."""

_OPTIMIZING = (*LEVELS, "layout")
KNOWN = (*_OPTIMIZING, ALONE, CONVERT)
"""Names that are accepted as levels."""


@dataclass(slots=True)
class Optimized:
    """The result of a subject on a model.

    Attributes:
        model: the result; None if there is none.
        fault: `crashed`, `hung` or `raised` if there is none, or if a pass had to be undone.
        message: the error message.
        numerics: how exact the result promises to be.
        hits: how often each pass fired, if known.
        stepwise: whether quantized numbers may differ by one step, being rounded once instead of twice.
        finite: whether infinities and NaN may have moved, as the passes that fired declare.
        largest: the largest magnitude of intermediate values for which its numerics hold.
        ties: whether positions of extremes may differ.
        keeps: whether it promises to keep the interface; a result that breaks this promise is judged no further.
        portable: whether it may be for other runtimes, so that operators without a kernel here are no fault.
        reasons: why passes declined, if requested, with the values that the nodes at which they did compute.
        places: the values computed by the nodes at which passes fired.
    """

    model: onnx.ModelProto | None
    fault: str = ""
    message: str = ""
    numerics: str = "rounding"
    hits: dict[str, int] = field(default_factory=dict)
    finite: bool = False
    largest: float = math.inf
    stepwise: bool = False
    ties: bool = False
    keeps: bool = True
    portable: bool = False
    reasons: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    places: dict[str, set[str]] = field(default_factory=dict)


class Subject(ABC):
    """An optimizer under test."""

    name: str
    settles: ClassVar[bool] = False
    """Whether it promises that equal models give equal results, and that a second run changes nothing."""

    def takes(self, sample: Sample) -> bool:
        """Whether a sample suits it; called before each sample."""
        return True

    @abstractmethod
    def optimize(self, model: onnx.ModelProto) -> Optimized:
        """Optimize a model, which stays unchanged; all errors are in the outcome."""

    def close(self) -> None:  # noqa: B027  # most hold nothing
        """Release its resources."""


_LARGEST = 1e24
"""Beyond it, weights of up to 1e-31 change more than rounding does: tolerances assume values of magnitude 1."""


TIES = frozenset({"eliminate_nop_monotone_argmax"})
"""Passes after which ArgMax may return the position of another maximum that rounding made equal."""

EXACTER = frozenset({"convert_dft_to_product", "convert_stft_to_product"})
"""Passes of numerics `fast` whose originals the runtime computes far less exactly than their results, so that it
cannot be the judge; tests/passes compare them with the true spectrum."""

SPECTRA = frozenset({"DFT", "STFT"})
"""Their operators, which conversion expands as those passes do."""

STEPWISE = frozenset({"fuse_qdq_into_op", "convert_quantized_weights", "fuse_qdq_into_split"})
"""Passes after which ties between two integers may be rounded the other way."""


GOING_ON = {"convert_signed_operators": "convert_int8_to_uint8"}
"""Passes for pipelines that continue with another pass, before fusion restores what they replaced."""


def kin(rule: type[Rule]) -> tuple[Any, ...]:
    """The properties by which a pass is judged; passes with equal ones do not weaken each other's judgement."""
    special = tuple(rule.name in names for names in (TIES, STEPWISE))
    return rule.numerics, rule.level >= Level.LAYOUT, rule.finite, *special


class OwnSubject(Subject):
    """graphopt, in this process.

    Args:
        level: a level.
        passes: a pipeline in place of the level, or passes, which are repeated until nothing changes.
        explain: collect why passes declined.
        numerics: the ceiling for passes of a level.
        target: the machine that layout passes write for; the present one if "".
    """

    settles = True

    def __init__(
        self, level: str = "basic", passes: str | None = None, *, explain: bool = False,
        numerics: str | Numerics = Numerics.ROUNDING, target: str = "",
    ) -> None:  # fmt: skip
        self.name = f"graphopt {passes or level}"
        self.settings: dict[str, Any] = {
            "numerics": Numerics.FAST if passes else numerics, "target": target or None, "explain": explain,
        }  # fmt: skip
        at_rest = passes if passes is None or "(" in passes else f"repeat({{{passes}}})"  # passes run once may not be
        self.manager = PassManager(level, passes=at_rest, **self.settings)

    def optimize(self, model: onnx.ModelProto) -> Optimized:
        """Optimize; a pass that raises is a fault, although it is undone."""
        try:
            result = self.manager.run(model)
            optimized = result.model
        except Exception as error:  # any exception is the finding
            return Optimized(None, "raised", f"{type(error).__name__}: {error}")
        rules = [type(self.manager.plan.rule(name)) for name in result.hits]
        numerics = max((rule.numerics for rule in rules), default=Numerics.EXACT)
        blocked = any(rule.level >= Level.LAYOUT for rule in rules)
        outcome = Optimized(optimized, numerics=str(numerics), hits=result.hits)
        outcome.finite = blocked or any(rule.finite for rule in rules)
        outcome.largest = _LARGEST if any(event.bound for event in result.events) else math.inf
        outcome.ties = bool(TIES & set(result.hits))
        outcome.stepwise = bool(STEPWISE & set(result.hits))
        for failure in result.failures:
            outcome.fault, outcome.message = "raised", str(failure)
        for miss in result.near_misses:
            outcome.reasons.setdefault((miss.rule, miss.form or miss.reason), set()).update(miss.node.outputs)
        for event in result.events:
            names = (name for note in (*event.removed, *event.changed) for name in note.outputs)
            outcome.places.setdefault(event.rule, set()).update(names)
        return outcome


class Alone(OwnSubject):
    """The passes whose golden cases a model begins with, alone: those of levels may leave them nothing to do."""

    def __init__(self, **settings: Any) -> None:
        super().__init__("basic", **settings)
        self.name = f"graphopt {ALONE}"
        self.settings["numerics"] = Numerics.FAST
        self._sown: tuple[Sequence[str], str] = (), ""

    def takes(self, sample: Sample) -> bool:
        """Whether the sample begins with golden cases."""
        sown = [rule for rule in sample.rules if rule not in EXACTER]
        rules = list(dict.fromkeys([*(GOING_ON[rule] for rule in sown if rule in GOING_ON), *sown]))
        if rules:
            self._sown = rules, sample.settings
            self.manager = self._manager(self.settings["target"] or sample.target)
        return bool(rules)

    def _manager(self, target: str) -> PassManager:
        rules, told = self._sown
        options = Options(extra=json.loads(told)) if told else None
        settings = {**self.settings, "target": target or None}
        return PassManager("basic", passes=f"repeat({{{','.join(rules)}}})", options=options, **settings)

    def optimize(self, model: onnx.ModelProto) -> Optimized:
        """Optimize for the target of the golden cases; if this machine cannot run the result, then for this machine."""
        outcome = super().optimize(model)
        if outcome.model is None or runs_here(outcome.model):
            return outcome
        self.manager = self._manager("host")
        return super().optimize(model)


class Converter(Subject):
    """Conversion to another opset, up or down, by `graphopt.convert`.

    A refusal is no fault unless graphopt itself failed.

    Args:
        opset: the opset; drawn anew for each sample.
    """

    name = f"graphopt {CONVERT}"
    settles = True

    def __init__(self, opset: int = OPSETS[0]) -> None:
        self.opset = opset

    def takes(self, sample: Sample) -> bool:
        """Draw the opset, from the sample's seed."""
        self.opset = Draw(f"{sample.seed}/opset").one(OPSETS)
        # In inference the standard's masks are true, those of the runtime before opset 12 false.
        return not any(node.op_type == "Dropout" and len(node.output) > 1 for node in sample.model.graph.node)

    def optimize(self, model: onnx.ModelProto) -> Optimized:
        """Convert; if that is refused, the model itself is the result."""
        try:
            made = convert(model, self.opset)
        except ConversionError as refusal:
            if refusal.__cause__ is not None:
                return Optimized(None, "raised", str(refusal))
            return Optimized(model)
        except Exception as error:  # any other exception is the finding
            return Optimized(None, "raised", f"{type(error).__name__}: {error}")
        before, after = (set(_op_types(each.graph.node)) for each in (model, made))
        numerics = "fast" if SPECTRA & (before - after) else "rounding"
        # Expansions may differ in infinities, and the runtime lacks some versions of operators.
        return Optimized(made, numerics=numerics, finite=before != after, portable=True)


def _op_types(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """The operators of nodes and of their subgraphs."""
    for node in nodes:
        yield node.op_type
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _op_types(graph.node)


NO_PASS = "no pass: reading and writing the model"
"""The cause if a peer shows a fault with every pass off."""


class PeerSubject(Subject):
    """Another optimizer, in a process that is reused for all models.

    Args:
        name: name of the peer.
        timeout: seconds for one model.
    """

    def __init__(self, name: str, timeout: float = 20.0) -> None:
        self.peer = by_name(name)
        if not self.peer.available():
            raise UsageError(self.peer.absent)
        self.name = name
        self.timeout = timeout
        self._passes: tuple[str, ...] | None = None
        self._stack = ExitStack()
        self._folder: Path = self._stack.enter_context(scratch())
        self._server = self._stack.enter_context(PassServer(self.peer))

    def optimize(self, model: onnx.ModelProto) -> Optimized:
        """Pass the model as a file; a crash or a hang only ends the process."""
        return self._outcome(model, None)

    def run_pass(self, model: onnx.ModelProto, name: str) -> Optimized:
        """Run one of its passes, or none for `NOTHING`."""
        return self._outcome(model, name)

    def passes(self) -> tuple[str, ...]:
        """Its default passes that can be run alone."""
        if self._passes is None:
            try:
                self._passes = tuple(n for n in self.peer.usual_passes() if n not in OTHER_PURPOSE)
            except UsageError:
                self._passes = ()
        return self._passes

    def names(self, cause: str) -> bool:
        """Whether a cause is one of its passes, or `NO_PASS`."""
        return cause == NO_PASS or cause in self.passes()

    def _outcome(self, model: onnx.ModelProto, name: str | None) -> Optimized:
        source, target = self._folder / "model.onnx", self._folder / "result.onnx"
        onnx.save(model, source)
        if name is None:
            result = self._server.optimize(source, target, timeout=self.timeout)
        else:
            result = self._server.run_pass(source, target, name, timeout=self.timeout)
        if not result.ok:
            fault = {"crashed": "crashed", "timeout": "hung"}.get(result.status, "raised")
            return Optimized(None, fault, result.message)
        try:
            return Optimized(onnx.load(target), keeps=False)
        except Exception as error:  # a peer's file may be arbitrary
            return Optimized(None, "invalid", f"its output cannot be read: {error}")

    def close(self) -> None:
        """End its process."""
        self._stack.close()


def subject_of(name: str, **settings: Any) -> Subject:
    """The subject of a name: `graphopt LEVEL`, `graphopt PIPELINE`, or the name of a peer.

    Raises:
        UsageError: there is none.
    """
    tool, _, rest = name.partition(" ")
    if tool != "graphopt":
        return PeerSubject(name, **settings)
    try:
        if rest == ALONE:
            return Alone(**settings)
        if rest == CONVERT:
            return Converter()
        if rest in _OPTIMIZING:
            return OwnSubject(rest, **settings)
        return OwnSubject(passes=rest, **settings)
    except GraphoptError as error:
        raise UsageError(str(error)) from None


__all__ = [
    "ALONE",
    "DEFAULT",
    "KNOWN",
    "LEVELS",
    "Alone",
    "Optimized",
    "OwnSubject",
    "PeerSubject",
    "Sample",
    "Subject",
    "subject_of",
]
