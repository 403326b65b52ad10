"""The results of a session: verdicts by optimizer, findings grouped by cause, and the files of each finding."""

from __future__ import annotations

import base64
import importlib.metadata
import json
import platform
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

import graphopt
from graphopt.fuzzing.subjects import KNOWN
from graphopt.printable import counted
from graphopt.showing import Shown
from graphopt.system.files import write_text
from graphopt.testing import canonical_text

if TYPE_CHECKING:
    from graphopt.fuzzing.working import FuzzSettings

_PACKAGES = ("onnx", "onnxruntime", "numpy", "onnxoptimizer", "onnxsim", "onnxslim", "onnxscript")


@dataclass(slots=True)
class Finding:
    """One fault of one optimizer, and how to reproduce it.

    Attributes:
        subject: the optimizer.
        kind: the verdict.
        cause: the pass, or the message if no pass is known.
        message: a description.
        index: the index of the model that shows it.
        seed: the session's seed.
        origin: how the model was made.
        nodes: nodes of the model as it was drawn.
        reduced_nodes: nodes of the reduced one.
        model: the reduced model, serialized.
        feed: the inputs that show it.
        count: how often it occurred.
        seconds: how long the reduction took.
        sown: the golden cases that its model was told to begin with.
        likeness: a further part of the key by which findings are grouped; for a peer the message without names and
            numbers.
    """

    subject: str
    kind: str
    cause: str
    message: str
    index: int
    seed: str
    origin: str = ""
    nodes: int = 0
    reduced_nodes: int = 0
    model: bytes | None = None
    feed: dict[str, Any] = field(default_factory=dict)
    count: int = 1
    seconds: float = 0.0
    sown: str = ""
    likeness: str = ""

    @classmethod
    def of(cls, told: dict[str, Any], seed: str) -> Finding:
        """From the record of a worker."""
        model = base64.b64decode(told["reduced"]) if told.get("reduced") else None
        return cls(
            told["subject"], told["kind"], told["cause"] or told["message"][:80], told["message"], told["index"], seed,
            told.get("from", ""), told.get("nodes", 0), told.get("reduced_nodes", 0), model, told.get("feed", {}),
            seconds=told.get("seconds", 0.0), sown=told.get("sown", ""),
            likeness=told.get("likeness", ""),
        )  # fmt: skip

    @property
    def key(self) -> tuple[str, ...]:
        """Findings with equal keys are merged."""
        return self.subject, self.kind, self.cause, self.likeness

    @property
    def command(self) -> str:
        """The command that reproduces it."""
        tool, _, rest = self.subject.partition(" ")
        own = f"--level {rest}" if rest in KNOWN else f"--pass {rest}"
        which = own if tool == "graphopt" else f"--level none --peer {tool}"
        sown = f" --sow {self.sown}" if self.sown else ""
        return f"graphopt fuzz --seed {self.seed} --first {self.index} --models 1 {which}{sown}"

    @property
    def text(self) -> str:
        """The reduced model as ONNX text."""
        if self.model is None:
            return ""
        return canonical_text(onnx.ModelProto.FromString(self.model))

    def golden(self) -> str:
        """The reduced model as a golden case, to be blessed once the fault is fixed."""
        return f"# RUN: {self.cause}\n{self.text}\n"

    def to_markdown(self) -> str:
        """A bug report for the optimizer's maintainers: a self-contained model, the expected and the actual result."""
        versions = ", ".join(f"{name} {version}" for name, version in versions_here().items())
        lines = [
            f"# {self.subject}: {self.kind} ({self.cause})", "", self.message, "",
            f"Met {counted(self.count, 'time')}; the model below was reduced from {self.nodes} nodes "
            f"to {self.reduced_nodes}.", "",
            "```", self.text, "```", "",
        ]  # fmt: skip
        if self.feed:
            lines += ["Inputs:", "", "```json", json.dumps(self.feed), "```", ""]
        lines += [f"Repeat with `{self.command}`.", "", f"Versions: {versions}; Python {platform.python_version()}."]
        return "\n".join(lines) + "\n"

    def write(self, folder: Path, settings: FuzzSettings) -> None:
        """Write the reduced model, the golden case and the report below a folder."""
        assert self.model is not None
        name = re.sub(r"[^\w.-]+", "_", f"{self.subject}-{self.kind}-{self.cause}")[:100]
        place = folder / f"{name}-{settings.seed}-{self.index}"
        place.mkdir(parents=True, exist_ok=True)
        (place / "model.onnx").write_bytes(self.model)
        write_text(place / "model.onnxtxt", self.text + "\n")
        write_text(place / "report.md", self.to_markdown())
        if self.subject.startswith("graphopt"):
            write_text(place / "golden.onnxtxt", self.golden())

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        model = base64.b64encode(self.model).decode() if self.model is not None else None
        return {**asdict(self), "model": model, "text": self.text, "command": self.command}


def versions_here() -> dict[str, str]:
    """The versions of all packages involved."""
    found = {"graphopt": graphopt.__version__}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


_COUNTERS = ("judged", "discarded", "ops", "fired", "forms")


@dataclass(slots=True)
class SessionReport(Shown):
    """The results of a session.

    Attributes:
        seed: the session's seed.
        subjects: the optimizers.
        models: models that were judged.
        judged: the number of models each optimizer was tried on.
        discarded: unusable samples, counted by reason.
        verdicts: faults by optimizer and kind.
        ops: the number of models with each operator.
        distinct: the number of distinct models.
        fired: the number of models on which each of our passes fired.
        forms: for each pass, the number of golden cases it fired on that differ in more than names and weights.
        declined: the number of models on which each pass declined, by reason.
        findings: one for each optimizer, kind and cause, with its smallest model.
        seconds: the duration.
        interrupted: whether it was interrupted.
        versions: versions of the packages involved.
    """

    seed: str
    subjects: tuple[str, ...]
    models: int = 0
    distinct: int = 0
    judged: Counter[str] = field(default_factory=Counter)
    discarded: Counter[str] = field(default_factory=Counter)
    verdicts: dict[str, Counter[str]] = field(default_factory=dict)
    ops: Counter[str] = field(default_factory=Counter)
    fired: Counter[str] = field(default_factory=Counter)
    forms: Counter[str] = field(default_factory=Counter)
    declined: dict[str, Counter[str]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False
    versions: dict[str, str] = field(default_factory=versions_here)

    def __rich_console__(self, *_: Any) -> Iterator[Any]:
        from graphopt.fuzzing.views import tables

        yield from tables(self)

    def to_html(self) -> str:
        """As a self-contained page: verdicts, findings with their models, operators and passes."""
        from graphopt.fuzzing.views import page

        return page(self)

    @classmethod
    def empty(cls, settings: FuzzSettings) -> SessionReport:
        """The report of a session that has not begun."""
        return cls(settings.seed, settings.subjects, verdicts={name: Counter() for name in settings.subjects})

    @property
    def ok(self) -> bool:
        """Whether graphopt had no fault; if only peers were tested, whether they had none."""
        own = [name for name in self.subjects if name.startswith("graphopt ")] or list(self.subjects)
        return not any(n for name in own for kind, n in self.verdicts[name].items() if kind != "runtime")

    def add(self, told: dict[str, Any]) -> None:
        """Add the result of a worker for one index."""
        if told.get("discarded"):
            self.discarded[told["discarded"]] += 1
        self.models += bool(told.get("made"))
        self.judged.update(told.get("judged", ()))
        self.ops.update(told.get("ops", ()))
        self.fired.update(told.get("fired", {}))
        for name, reasons in told.get("declined", {}).items():
            self.declined.setdefault(name, Counter()).update(reasons)

    def group(self, finding: Finding) -> bool:
        """Count a finding; whether it is the first with its cause, or smaller than the one kept so far."""
        self.verdicts[finding.subject][finding.kind] += 1
        for number, known in enumerate(self.findings):
            if known.key != finding.key:
                continue
            smaller = finding.model is not None and (known.model is None or finding.reduced_nodes < known.reduced_nodes)
            finding.count = known.count + 1
            if smaller:
                self.findings[number] = finding
            known.count += 1
            return smaller
        self.findings.append(finding)
        self.findings.sort(key=lambda f: (f.subject, f.kind, f.cause))
        return True

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        data = {
            name: getattr(self, name) for name in ("seed", "models", "distinct", "seconds", "interrupted", "versions")
        }
        data["subjects"] = list(self.subjects)
        data.update({name: dict(getattr(self, name)) for name in _COUNTERS})
        data["verdicts"] = {name: dict(counts) for name, counts in self.verdicts.items()}
        data["declined"] = {name: dict(counts) for name, counts in self.declined.items()}
        data["findings"] = [finding.to_dict() for finding in self.findings]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any], settings: FuzzSettings) -> SessionReport:
        """From what `to_dict` gave."""
        report = cls.empty(settings)
        report.models, report.seconds, report.distinct = data["models"], data["seconds"], data.get("distinct", 0)
        for name in _COUNTERS:
            getattr(report, name).update(data.get(name, {}))
        report.verdicts.update({name: Counter(counts) for name, counts in data["verdicts"].items()})
        report.declined.update({name: Counter(counts) for name, counts in data["declined"].items()})
        for each in data["findings"]:
            fields = {key: value for key, value in each.items() if key not in ("text", "command")}
            fields["model"] = base64.b64decode(each["model"]) if each["model"] else None
            report.findings.append(Finding(**fields))
        return report
