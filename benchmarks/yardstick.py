"""Known faults of other optimizers as a benchmark: do they still exist, and does `graphopt fuzz` find them by itself?

python -m benchmarks.yardstick [SESSION_FOLDER...]

Each model of known_faults.txt is judged with its optimizer, as in the fuzzer. For those that still show a fault, the
sessions tell which were found in random models, and after how many of these.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from graphopt.fuzzing.building import Sample
from graphopt.fuzzing.drawing import Draw
from graphopt.fuzzing.embedding import numbers_for
from graphopt.fuzzing.field import harden
from graphopt.fuzzing.subjects import Subject, subject_of
from graphopt.fuzzing.verdicts import Judge, NotUsableError

FILE = Path(__file__).with_name("known_faults.txt")
METADATA = "METADATA"


@dataclass(frozen=True, slots=True)
class Known:
    """A known fault.

    Attributes:
        tool: the optimizer.
        kinds: verdicts that it may show as.
        rule: the optimizer's pass, `-` if none is known.
        words: texts that its findings have in the model or message.
        what: a description.
        text: a model that shows it.
    """

    tool: str
    kinds: tuple[str, ...]
    rule: str
    words: tuple[str, ...]
    what: str
    text: str

    def sample(self) -> Sample:
        """The model with inputs."""
        model = onnx.parser.parse_model(self.text.replace(METADATA, ""))
        if METADATA in self.text:
            model.metadata_props.add(key="author", value="somebody")
        sample = Sample(model, [numbers_for(model, Draw(f"{self.what}/{n}")) for n in range(3)])
        harden(sample, Draw(self.what), as_it_is=True)
        return sample

    def shown_by(self, finding: dict[str, Any]) -> bool:
        """Whether a finding of a session is this fault."""
        if finding["subject"] != self.tool or finding["kind"] not in self.kinds:
            return False
        if self.rule != "-" and self.rule in finding["cause"]:
            return True
        told, ops = f"{finding['message']} {finding['cause']}", operators(finding["text"])
        if finding["kind"] == "lost":
            return all(word in told for word in self.words)
        few = len(ops) <= len(operators(self.text)) + 1
        return few and all(word in told or any(op.startswith(word) for op in ops) for word in self.words)


def operators(text: str) -> set[str]:
    """The operators in a model's text."""
    return set(re.findall(r"= ([A-Z]\w+) [(<]", text))


def known_faults() -> Iterator[Known]:
    """The faults of the file."""
    for part in FILE.read_text().split("\n== ")[1:]:
        head, _, text = part.partition("\n")
        tool, kinds, rule, words, what = (each.strip() for each in head.split("|"))
        yield Known(tool, tuple(kinds.split("/")), rule, tuple(words.split()), what, text.strip())


def verdict(known: Known, subject: Subject) -> str:
    """The optimizer's verdict on the model: the kind of fault, or none."""
    try:
        judge = Judge(known.sample())
    except NotUsableError as reason:
        return f"the model says nothing: {reason}"
    found = judge.of(subject, subject.optimize(judge.model), again=False, once_more=False)
    return "right" if found is None else found.kind


def main() -> None:
    """Write the table to standard output."""
    reports = [json.loads((Path(folder) / "session.json").read_text())["report"] for folder in sys.argv[1:]]
    sys.stdout.write("\n".join(table(reports)) + "\n")


def table(reports: list[dict[str, Any]]) -> list[str]:
    """Which of the known faults still exist, and which of them sessions found."""
    findings = [(finding, report["models"]) for report in reports for finding in report["findings"]]
    subjects: dict[str, Subject] = {}
    lines, there, found = [], 0, 0
    for known in known_faults():
        subject = subjects.setdefault(known.tool, subject_of(known.tool))
        now = verdict(known, subject)
        still = now in known.kinds
        numbers = [finding["index"] for finding, _ in findings if known.shown_by(finding)]
        there += still
        found += still and bool(numbers)
        first = str(min(numbers)) if numbers else ""
        lines.append(f"| {known.tool} | {known.rule} | {known.what} | {now} | {first} |")
    for subject in subjects.values():
        subject.close()
    models = sum(report["models"] for report in reports)
    seconds = sum(report["seconds"] for report in reports)
    return [
        f"{there} of {len(lines)} known faults show in these versions. In {models} random models, {seconds:.0f} s, "
        f"the fuzzer found {found} of them.",
        "",
        "| optimizer | pass | fault | verdict | first model |",
        "|---|---|---|---|--:|",
        *lines,
    ]


if __name__ == "__main__":
    main()
