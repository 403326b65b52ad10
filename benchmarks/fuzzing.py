"""Sessions of random models, and the tables of docs/fuzzing.md and docs/fuzzing-passes.md from them.

python -m benchmarks.fuzzing run FOLDER --seed SEED --minutes 45   three sessions below the folder, then the tables
python -m benchmarks.fuzzing write FOLDER...                       the tables from the folders of sessions
python -m benchmarks.fuzzing keep FOLDER...                        store their counts, and write the page of passes

A repeated `run` continues where it stopped. The pages are written between lines of `<!-- ... -->`. Stored sessions are
in the table of passes, and the session `passes` continues from what they lack.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from onnx import TensorProto, defs, helper

import graphopt
from benchmarks import results, yardstick
from graphopt.fuzzing.findings import SessionReport
from graphopt.fuzzing.operators import APART, OPSETS
from graphopt.fuzzing.verdicts import KINDS
from graphopt.fuzzing.views import summary
from graphopt.pipeline import registry
from graphopt.system.sessions import open_session

DOCS = Path(__file__).parents[1] / "docs"
OWN = ("basic", "extended", "all", "convert", "alone")
PEERS = ("onnxoptimizer", "onnxsim", "onnxslim", "onnxscript", "ort-basic", "ort-extended", "ort-all")
SESSIONS: dict[str, tuple[float, dict[str, Any]]] = {
    "passes": (0.80, {"levels": OWN, "until": 2000, "thin": 32}),
    "levels": (0.06, {"levels": OWN[:4], "explain": True}),
    "field": (0.14, {"levels": (), "peers": PEERS}),
}
"""The sessions of a run, each with its fraction of the time and its settings."""


def main() -> None:
    """Run the sessions, or write the tables of given ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "write", "keep"))
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--minutes", type=float, default=45.0)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    folders = given.folders
    if given.what == "run":
        folders = [run(given.folders[0], name, given) for name in SESSIONS]
    reports = [json.loads((folder / "session.json").read_text())["report"] for folder in folders]
    if given.what == "keep":
        keep(reports)
    else:
        write(reports)


KEPT = results.RESULTS / "fuzzing"
"""The counts of sessions, each with the revision at its end."""


def keep(reports: list[dict[str, Any]]) -> None:
    """Store the counts of sessions, without their models."""
    KEPT.mkdir(exist_ok=True)
    here = results.machine()
    for report in reports:
        findings = [{**each, "model": None, "text": "", "feed": {}} for each in report["findings"]]
        told = {**report, "findings": findings, "revision": here["revision"], "processor": here["processor"]}
        (KEPT / f"{report['seed']}.json").write_text(json.dumps(told, indent=0) + "\n")
    write_passes([])


def kept(besides: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The stored sessions, and others."""
    seeds = {report["seed"] for report in besides}
    found = [json.loads(path.read_text()) for path in sorted(KEPT.glob("*.json"))]
    return [*(report for report in found if report["seed"] not in seeds), *besides]


def run(folder: Path, name: str, given: argparse.Namespace) -> Path:
    """Run one of the sessions; returns its folder."""
    part, settings = SESSIONS[name]
    place, told = folder / name, time.monotonic()

    def progress(report: SessionReport) -> None:
        nonlocal told
        if time.monotonic() - told > _TELL_SECONDS:
            told = time.monotonic()
            sys.stderr.write(f"{name}: {summary(report)}; {sum(map(Counter.total, report.verdicts.values()))} faults\n")

    minutes, seed = part * given.minutes, f"{given.seed}-{name}"
    if settings.get("until"):
        settings = {**settings, "after": [path for path in sorted(KEPT.glob("*.json")) if path.stem != seed]}
    graphopt.fuzz(minutes=minutes, seed=seed, corpus=place, jobs=given.jobs, progress=progress, **settings)
    return place


_TELL_SECONDS = 60.0


def write(reports: list[dict[str, Any]]) -> None:
    """Put the tables into the pages."""
    own = [report for report in reports if any(name.startswith("graphopt ") for name in report["subjects"])]
    field = [report for report in reports if report not in own]
    page = DOCS / "fuzzing.md"
    text = page.read_text()
    for name, lines in {
        "sessions": sessions(reports), "verdicts": verdicts(reports), "causes": causes(reports),
        "operators": operators(reports), "reduced": reduced(reports), "yardstick": yardstick.table(field),
    }.items():  # fmt: skip
        text = _between(text, name, lines)
    page.write_text(text)
    write_passes(own)


def write_passes(besides: list[dict[str, Any]]) -> None:
    """Put the table of passes into its page, from the stored sessions and others."""
    page, reports = DOCS / "fuzzing-passes.md", kept(besides)
    page.write_text(_between(page.read_text(), "passes", [*sessions(reports), "", *passes(reports)]))


def _between(text: str, name: str, lines: list[str]) -> str:
    before, begin, rest = text.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- end of {name} -->")
    if not begin or not end:
        raise ValueError(f"no place for {name!r}")
    return "".join([before, begin, "\n", *(f"{line}\n" for line in lines), "\n", end, after])


def sessions(reports: list[dict[str, Any]]) -> list[str]:
    """The list of sessions."""
    versions = ", ".join(f"{name} {version}" for name, version in reports[-1]["versions"].items())
    here = results.machine()["revision"]
    lines = [
        f"Versions: {versions}.",
        "",
        "| seed | revision | models | different | drawn again | seconds | optimizers |",
        "|---|---|--:|--:|--:|--:|---|",
    ]
    for report in reports:
        again = sum(report["discarded"].values())
        names = ", ".join(report["subjects"])
        counts = f"{report['models']} | {report.get('distinct') or ''} | {again} | {report['seconds']:.0f}"
        lines.append(f"| {report['seed']} | {report.get('revision', here)} | {counts} | {names} |")
    return lines


def verdicts(reports: list[dict[str, Any]]) -> list[str]:
    """Faults by optimizer and kind."""
    models, counts = Counter(), {}
    for report in reports:
        for name, found in report["verdicts"].items():
            models[name] += report.get("judged", {}).get(name, 0) or report["models"]
            counts.setdefault(name, Counter()).update(found)
    lines = ["| optimizer | models | " + " | ".join(KINDS) + " |", "|---|--:|" + "--:|" * len(KINDS)]
    for name, found in counts.items():
        lines.append(f"| {name} | {models[name]} | " + " | ".join(str(found[kind] or "") for kind in KINDS) + " |")
    return lines


def causes(reports: list[dict[str, Any]]) -> list[str]:
    """Findings by cause, the most frequent first."""
    rows = Counter()
    for report in reports:
        for each in report["findings"]:
            rows[each["subject"], each["kind"], each["cause"]] += each["count"]
    lines = ["| optimizer | verdict | cause | models |", "|---|---|---|--:|"]
    for (subject, kind, cause), count in sorted(rows.items(), key=lambda row: (row[0][0], -row[1])):
        lines.append(f"| {subject} | {kind} | {cause.replace('|', '¦')[:100]} | {count} |")
    return lines


def operators(reports: list[dict[str, Any]]) -> list[str]:
    """Standard operators in the models, out of those with a kernel in the runtime."""
    met = Counter()
    for report in reports:
        met.update(report["ops"])
    known = sorted(op for op in {s.name for s in defs.get_all_schemas() if not s.domain} if has_kernel(op))
    missing = [op for op in known if not met[op]]
    share = 1 - len(missing) / len(known)
    line = (
        f"Operators of the standard in these models: {len(known) - len(missing)} of the {len(known)} that the runtime "
    )
    return [line + f"has a CPU kernel for ({share:.0%}). Not met: {', '.join(missing) or 'none'}."]


def has_kernel(op: str) -> bool:
    """Whether the runtime has a CPU kernel or function for an operator at some opset and first type."""
    for opset in sorted(set(OPSETS), reverse=True):
        try:
            schema = defs.get_schema(op, opset, "")
        except defs.SchemaError:
            continue
        if schema.deprecated:
            continue
        for kind in (TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8, TensorProto.BOOL, TensorProto.STRING):
            if _loads(schema, opset, kind):
                return True
    return op in APART


def _loads(schema: defs.OpSchema, opset: int, kind: int) -> bool:
    count = max(schema.min_input, 1 if schema.inputs else 0)
    names = [f"x{i}" for i in range(count)]
    node = helper.make_node(schema.name, names, [f"y{i}" for i in range(max(schema.min_output, 1))])
    infos = [helper.make_tensor_value_info(name, kind, None) for name in names]
    outputs = [helper.make_value_info(name, helper.make_tensor_type_proto(kind, None)) for name in node.output]
    graph = helper.make_graph([node], "g", infos, outputs)
    try:
        open_session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10))
    except Exception as error:  # a native library's exceptions share no base class
        return "NOT_IMPLEMENTED" not in str(error) and "not implemented" not in str(error).lower() and _typed(error)
    return True


def _typed(error: Exception) -> bool:
    """Whether an error is about this makeshift node and not about the operator."""
    return any(
        word in str(error) for word in ("Type Error", "TypeInference", "ShapeInference", "attribute", "Attribute")
    )


def reduced(reports: list[dict[str, Any]], count: int = 10) -> list[str]:
    """A random sample of findings: their reduced size, the time for it, and the reported cause."""
    found = [each for report in reports for each in report["findings"] if each["model"] and each.get("seconds")]
    chosen = random.Random(0).sample(found, min(count, len(found)))
    lines = [
        "| optimizer | verdict | nodes | reduced to | seconds | said to be | number |",
        "|---|---|--:|--:|--:|---|--:|",
    ]
    for each in sorted(chosen, key=lambda finding: (finding["subject"], finding["index"])):
        cause = each["cause"].replace("|", "¦")[:60]
        sizes = f"{each['nodes']} | {each['reduced_nodes']} | {each['seconds']:.0f}"
        lines.append(f"| {each['subject']} | {each['kind']} | {sizes} | {cause} | {each['seed']}/{each['index']} |")
    return lines


_FIRED, _DECLINED = 2000, 200
"""How often a pass must have fired, and declined for each reason, to count as tested."""


def passes(reports: list[dict[str, Any]]) -> list[str]:
    """For each pass of graphopt the models on which it fired and declined, the reasons, and the count of the rarest."""
    fired, forms, reasons = Counter(), Counter(), {}
    for report in reports:
        fired.update(report["fired"])
        forms |= Counter(report.get("forms", {}))  # the maximum over sessions: their forms may overlap
        for name, found in report["declined"].items():
            reasons.setdefault(name, Counter()).update(found)
    names = registry().names()
    often = sum(fired[name] >= _FIRED for name in names)
    counts = [count for found in reasons.values() for count in found.values()]
    reached = sum(name in fired for name in names)
    lines = [
        f"Of {len(names)} passes {reached} fired, {often} of them in at least {_FIRED} models. Of {len(counts)} "
        f"reasons to decline that were met {sum(count >= _DECLINED for count in counts)} were in {_DECLINED} or more.",
        "",
        "| pass | fired | forms | declined | reasons | rarest |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name in names:
        found = reasons.get(name, Counter())
        rarest = min(found.values(), default=0)
        lines.append(f"| {name} | {fired[name]} | {forms[name]} | {found.total()} | {len(found)} | {rarest} |")
    return lines


if __name__ == "__main__":
    main()
