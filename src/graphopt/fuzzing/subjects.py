"""What is put to the test: graphopt at a level or with a pipeline, or another optimizer in a process of its own."""

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
"""In place of a level: the passes whose golden cases a model begins with, without all others."""

DEFAULT = (*LEVELS, ALONE)

CONVERT = "convert"
"""In place of a level: bringing the model to another opset, or refusing to."""

_OPTIMIZING = (*LEVELS, "layout")
KNOWN = (*_OPTIMIZING, ALONE, CONVERT)
"""What may be named as a level."""


@dataclass(slots=True)
class Optimized:
    """What a subject made of a model.

    Attributes:
        model: the result; None when there is none.
        fault: `crashed`, `hung` or `raised` when there is none, or a pass had to be undone.
        message: what was said.
        numerics: how exact the result promises to be.
        hits: how often each pass fired, where that is known.
        stepwise: whether quantized numbers may be one step apart, being rounded once where they were twice.
        finite: whether infinities and NaN may have changed places, as passes that fired say of themselves.
        largest: up to what magnitude of values on the way its numbers are promised.
        ties: whether positions of extremes may differ.
        keeps: whether it promises to keep the interface, so that nothing else is looked at where it does not.
        portable: whether it may be for other runtimes, so that operators without a kernel here are no fault.
        reasons: why passes declined, where that is asked for, and what the nodes make at which they did.
        places: what the nodes made at which passes fired.
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
        """Whether a sample is for it; told before each one."""
        return True

    @abstractmethod
    def optimize(self, model: onnx.ModelProto) -> Optimized:
        """Optimize a model, which stays as it is; whatever goes wrong is in the outcome."""

    def close(self) -> None:  # noqa: B027  # most hold nothing
        """End what it holds."""


_LARGEST = 1e24
"""With more than that, weights of up to 1e-31 make more than rounding changes: bounds are for values of magnitude 1."""


TIES = frozenset({"eliminate_nop_monotone_argmax"})
"""Passes after which another of several largest values may be found, which rounding had made equal."""

EXACTER = frozenset({"convert_dft_to_product", "convert_stft_to_product"})
"""Passes of numerics `fast` whose originals the runtime computes far less exactly than what they write, so that it
cannot be the judge; tests/passes compare them with the true spectrum."""

SPECTRA = frozenset({"DFT", "STFT"})
"""Their operators, which conversion writes out as those passes do."""

STEPWISE = frozenset({"fuse_qdq_into_op", "convert_quantized_weights", "fuse_qdq_into_split"})
"""Passes after which a number halfway between two integers may be rounded to the other."""


GOING_ON = {"convert_signed_operators": "convert_int8_to_uint8"}
"""Passes that are for pipelines which go on with another one, before fusions write what they were given again."""


def kin(rule: type[Rule]) -> tuple[Any, ...]:
    """What the results of a pass are judged by; passes of which it is equal do not weaken each other's judgement."""
    special = tuple(rule.name in names for names in (TIES, STEPWISE))
    return rule.numerics, rule.level >= Level.LAYOUT, rule.finite, *special


class OwnSubject(Subject):
    """graphopt, in this process.

    Args:
        level: a level.
        passes: a pipeline that takes its place, or passes, which are repeated until nothing changes.
        explain: collect why passes declined.
        numerics: the ceiling for passes of a level.
        target: the machine that layout passes write for; the present one when "".
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
        """Optimize; a pass that raises is a fault, although its work is undone."""
        try:
            result = self.manager.run(model)
            optimized = result.model
        except Exception as error:  # whatever escapes is the finding
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
    """The passes whose golden cases a model begins with, by themselves: those of levels may leave nothing for them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__("basic", **settings)
        self.name = f"graphopt {ALONE}"
        self.settings["numerics"] = Numerics.FAST
        self._sown: tuple[Sequence[str], str] = (), ""

    def takes(self, sample: Sample) -> bool:
        """Whether it begins with golden cases."""
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
        """Optimize for the target of the golden cases, and where its blocks are not those of this machine, for this."""
        outcome = super().optimize(model)
        if outcome.model is None or runs_here(outcome.model):
            return outcome
        self.manager = self._manager("host")
        return super().optimize(model)


_STALE = "no longer in the graph"
"""Refused because of this, a model had what a step goes on with taken away by another step."""


class Converter(Subject):
    """Bringing a model to another opset, up or down, by `graphopt.convert`. Refusing for what it holds is no fault.

    Args:
        opset: the opset; chosen anew for each sample.
    """

    name = f"graphopt {CONVERT}"
    settles = True

    def __init__(self, opset: int = OPSETS[0]) -> None:
        self.opset = opset

    def takes(self, sample: Sample) -> bool:
        """Choose the opset, by what the sample was made from."""
        self.opset = Draw(f"{sample.seed}/opset").one(OPSETS)
        # In inference the masks of the standard are true, those of the runtime before opset 12 false.
        return not any(node.op_type == "Dropout" and len(node.output) > 1 for node in sample.model.graph.node)

    def optimize(self, model: onnx.ModelProto) -> Optimized:
        """Convert; where that is refused, the model is the result."""
        try:
            made = convert(model, self.opset)
        except ConversionError as refusal:
            if _STALE in str(refusal):
                return Optimized(None, "raised", str(refusal))
            return Optimized(model)
        except Exception as error:  # whatever else escapes is the finding
            return Optimized(None, "raised", f"{type(error).__name__}: {error}")
        before, after = (set(_op_types(each.graph.node)) for each in (model, made))
        numerics = "fast" if SPECTRA & (before - after) else "rounding"
        # What is written out may differ in infinities, and the runtime has not every version of an operator.
        return Optimized(made, numerics=numerics, finite=before != after, portable=True)


def _op_types(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """The operators of nodes and of their bodies."""
    for node in nodes:
        yield node.op_type
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _op_types(graph.node)


NO_PASS = "no pass: reading and writing the model"
"""The cause of what a peer does with every pass off."""


class PeerSubject(Subject):
    """Another optimizer, in a process that is kept from model to model.

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
        """Hand the model over as a file; a crash or a hang costs the process alone."""
        return self._outcome(model, None)

    def run_pass(self, model: onnx.ModelProto, name: str) -> Optimized:
        """Let it run one of its passes, or none for `NOTHING`."""
        return self._outcome(model, name)

    def passes(self) -> tuple[str, ...]:
        """The passes that it runs by itself, as far as they run alone."""
        if self._passes is None:
            try:
                self._passes = tuple(n for n in self.peer.usual_passes() if n not in OTHER_PURPOSE)
            except UsageError:
                self._passes = ()
        return self._passes

    def names(self, cause: str) -> bool:
        """Whether a cause is one of its passes, or that there is none."""
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
        except Exception as error:  # a peer's file may be anything
            return Optimized(None, "invalid", f"its output cannot be read: {error}")

    def close(self) -> None:
        """End its process."""
        self._stack.close()


def subject_of(name: str, **settings: Any) -> Subject:
    """The subject of a name: `graphopt LEVEL`, `graphopt PIPELINE`, or a peer's.

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
