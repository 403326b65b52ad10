"""Every operator case of the standard's backend suite that the runtime supports, converted to every opset and compared.

A conversion is *right* if both models give the same outputs in ONNX Runtime with its optimizations off; *refused* if
the converter rejects it; *unrunnable* if the result is valid and the runtime has no kernel for it; *wrong* if outputs
differ, or the result is an invalid model; *crashed* if the converter failed.
"""

from __future__ import annotations

import importlib.metadata
import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.conversion_ledger import Ledger, digest
from benchmarks.conversion_peer import Peer, PeerError
from benchmarks.results import RESULTS
from graphopt import operators as operator_views
from graphopt import opsets
from graphopt.errors import GraphoptError
from graphopt.opsets import ConversionError, convert
from graphopt.opsets.changes import all_changes
from graphopt.opsets.meanings import _enter_all, registry
from graphopt.verify.numerics import compare_arrays
from graphopt.verify.report import worst
from graphopt.verify.runners import CannotLoadError, RunError, open_runner
from graphopt.verify.source import Source
from graphopt.verify.structure import leaves
from tests.backend_models import backend_cases

RESULT = RESULTS / "conversion.json"
DOCS = Path(__file__).parents[1] / "docs"
MARK = "<!-- written by `python -m benchmarks conversion` -->"

NEWEST_RUN = 26
"""The newest opset that the runtime supports."""

LOWEST = 7
KINDS = ("right", "refused", "unrunnable", "wrong", "crashed")
TOOLS = ("graphopt", "onnx", "onnxscript")

_NO_KERNEL = re.compile(r"NOT_IMPLEMENTED|Could not find an implementation|not implemented|is not supported", re.I)


@dataclass(frozen=True)
class Case:
    """A case with its outputs at its own opset."""

    name: str
    model: onnx.ModelProto
    feed: dict[str, Any]
    outputs: list[Any]

    @property
    def opset(self) -> int:
        """The opset that it was written for."""
        return _opset_of(self.model)

    @property
    def ops(self) -> str:
        """Its operators, the case's own first."""
        return self.model.graph.node[-1].op_type if self.model.graph.node else ""


def _opset_of(model: onnx.ModelProto) -> int:
    return next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)


def run_model(model: onnx.ModelProto, feed: dict[str, Any]) -> list[Any]:
    """The outputs of a model in the runtime, without optimizations."""
    return list(open_runner(Source(model, "model"), ("onnxruntime",)).run(feed))


@lru_cache(maxsize=1)
def _found() -> dict[str, Any]:
    """The cases of the suite that import the standard's operators, by name."""
    known = (case for case in backend_cases() if case.model is not None and case.data_sets)
    return {case.name: case for case in known if any(o.domain in ("", "ai.onnx") for o in case.model.opset_import)}


def names() -> list[str]:
    """The names of the cases."""
    return list(_found())


def case_model(name: str) -> onnx.ModelProto:
    """The model of a case, whether or not the runtime supports it."""
    model: onnx.ModelProto = _found()[name].model
    return model


def feed_of(name: str) -> dict[str, Any]:
    """The inputs of a case."""
    found = _found()[name]
    feed = dict(zip((v.name for v in found.model.graph.input), found.data_sets[0][0], strict=False))
    given = {key: value for key, value in feed.items() if value is not None}
    return {key: np.asarray(value) if isinstance(value, np.generic) else value for key, value in given.items()}


def case_outputs(name: str) -> list[Any]:
    """The outputs of a case, as the suite states them."""
    return list(_found()[name].data_sets[0][1])


@cache
def case_of(name: str) -> Case | None:
    """A case; None if the runtime does not support it, or gives other outputs the second time."""
    found, feed = _found()[name], feed_of(name)
    try:
        outputs = run_model(found.model, feed)
        same = differs(outputs, run_model(found.model, feed)) is None
    except (CannotLoadError, RunError, GraphoptError):
        return None
    return Case(name, found.model, feed, outputs) if same else None


def pairs() -> Iterator[tuple[str, int]]:
    """Every case with every opset to convert it to."""
    for name in names():
        for target in targets(_opset_of(_found()[name].model)):
            yield name, target


def differs(expected: list[Any], actual: list[Any]) -> str | None:
    """The difference between two lists of outputs; None if there is none."""
    if len(expected) != len(actual):
        return f"{len(actual)} outputs"
    for number, (one, two) in enumerate(zip(expected, actual, strict=True)):
        a, b = leaves(one), leaves(two)
        if [path for path, _ in a] != [path for path, _ in b]:
            return f"output {number} has other parts"
        for (_, left), (_, right) in zip(a, b, strict=True):
            report = compare_arrays(str(number), left, right, "rounding")
            if worst([report.status]) == "mismatch":
                return f"output {number}: {report.detail}"
    return None


def judged(case: Case, converted: onnx.ModelProto) -> tuple[str, str]:
    """The verdict on a converted model, and its reason."""
    try:
        onnx.checker.check_model(converted)
    except Exception as error:
        return "wrong", f"no valid model: {str(error).splitlines()[0]}"
    try:
        difference = differs(case.outputs, run_model(converted, case.feed))
    except CannotLoadError as error:
        return ("unrunnable" if _NO_KERNEL.search(str(error)) else "wrong"), str(error)
    except RunError as error:
        return ("unrunnable" if _NO_KERNEL.search(str(error)) else "wrong"), str(error)
    return ("right", "") if difference is None else ("wrong", difference)


def attempt(case: Case, target: int, peer: Peer | None = None, ledger: Ledger | None = None) -> tuple[str, str]:
    """Convert a case, by graphopt or another converter, and judge it; a verdict in the ledger is reused."""
    if ledger is None:
        return _attempt(case, target, peer)
    key = _key("graphopt" if peer is None else peer.tool, case.name, target)
    kind, why = ledger.find(key) or ledger.keep(key, _attempt(case, target, peer))
    return kind, why


def _key(tool: str, name: str, target: int) -> str:
    version = own_code() if tool == "graphopt" else importlib.metadata.version(tool)
    return f"{tool} {version} {name} {target}"


@cache
def own_code() -> str:
    """A digest of the converter's sources."""
    return digest(b"".join(path.read_bytes() for path in sorted(Path(opsets.__file__).parent.rglob("*.py"))))


def _attempt(case: Case, target: int, peer: Peer | None) -> tuple[str, str]:
    try:
        converted = convert(case.model, opset=target) if peer is None else peer.convert(case.model, target)
    except ConversionError as error:
        if error.__cause__ is not None:
            return "crashed", str(error)
        if not error.refusals:  # the refusal is for the whole model
            return "refused", f"|{str(error).partition(': ')[2]}|"
        refusal = error.refusals[0]
        return "refused", f"{refusal.op}|{refusal.reason}|{refusal.nearest}"
    except PeerError as error:
        return "refused", " ".join(str(error).split())[:200]
    except Exception as error:
        return "crashed", f"{type(error).__name__}: {error}"
    if _opset_of(converted) != target:
        return "refused", f"the result has opset {_opset_of(converted)}"
    return judged(case, converted)


def targets(opset: int) -> list[int]:
    """The opsets to which a model of the given opset is converted."""
    newest = min(NEWEST_RUN, onnx.defs.onnx_opset_version())
    return [target for target in range(LOWEST, newest + 1) if target != opset]


def sampled(count: int) -> list[tuple[str, int]]:
    """All pairs, or `count` of them in a fixed random order: a larger sample contains a smaller one."""
    known = list(pairs())
    if not count:
        return known
    random.Random(18).shuffle(known)
    return known[:count]


def run(tools: Iterable[str], wanted: Iterable[int], sample: int, *, kept: bool = False) -> dict[str, Any]:
    """Judge the tools on every case, or on a sample, and store the counts in `results/conversion.json`.

    With `kept` nothing is judged: only cases with stored verdicts of all tools are counted.
    """
    chosen = set(wanted)
    todo = [pair for pair in sampled(sample) if not chosen or pair[1] in chosen]
    found: dict[str, Any] = {"opsets": sorted(chosen), "sample": sample, "tools": {}, "refusals": []}
    ledger = Ledger("cases")
    if kept:
        todo = [pair for pair in todo if all(ledger.find(_key(tool, *pair)) for tool in tools)]
        found["sample"] = len(todo)
    for tool in tools:
        peer = None if tool == "graphopt" else Peer(tool)
        counts: dict[str, Counter[str]] = {"up": Counter(), "down": Counter()}
        refusals: Counter[str] = Counter()
        for name, target in todo:
            verdict = ledger.find(_key(tool, name, target))
            if verdict is None and (case := case_of(name)) is not None:
                verdict = attempt(case, target, peer, ledger)
            if verdict is None:
                continue
            kind, why = verdict
            direction = "up" if target > _opset_of(_found()[name].model) else "down"
            counts[direction][kind] += 1
            if peer is None and kind == "refused":
                refusals[f"{direction}|{why}"] += 1
            elif peer is None and kind != "right":
                print(f"{name} to {target}: {kind}: {why}", flush=True)
        if peer is None:
            found["refusals"] = [[*key.split("|"), count] for key, count in sorted(refusals.items())]
        else:
            peer.close()
        found["tools"][tool] = {direction: dict(each) for direction, each in counts.items()}
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    return found


def tables(found: dict[str, Any]) -> str:
    """The counts and the refusals as Markdown."""
    opsets = ", ".join(map(str, found["opsets"])) or f"{LOWEST} to {NEWEST_RUN}"
    share = f": {found['sample']} conversions drawn at random" if found["sample"] else ""
    lines = [
        f"Operator cases of onnx {onnx.__version__} to opset {opsets}{share}.", "",
        "| converter | direction | " + " | ".join(KINDS) + " |", "|---|---|" + "---:|" * len(KINDS),
    ]  # fmt: skip
    for tool, directions in found["tools"].items():
        for direction, counts in directions.items():
            lines.append(f"| {tool} | {direction} | " + " | ".join(str(counts.get(k, 0)) for k in KINDS) + " |")
    lines += ["", _code()]
    lines += [
        "",
        "## What is refused",
        "",
        "| operator | direction | reason | nearest opset | cases |",
        "|---|---|---|---|---:|",
    ]
    merged: Counter[tuple[str, ...]] = Counter()
    for direction, op, reason, nearest, count in found["refusals"]:
        merged[op, direction, _general(reason), nearest] += count
    lines += [f"| {op} | {way} | {why} | {near} | {count} |" for (op, way, why, near), count in sorted(merged.items())]
    return "\n".join(lines) + "\n"


def _code() -> str:
    """The size of the definitions besides the standard's schemas, in lines and operators."""
    _enter_all()
    stated = {key for table in (registry.UP, registry.DOWN, registry.AT_LAST) for key in table}
    operators = {name for name, _ in stated}
    known = {change.op_type for change in all_changes()}
    by_schema = sum((change.op_type, change.version) not in stated for change in all_changes())
    own = Path(opsets.__file__).parent
    lines = [_lines(folder.glob("*.py")) for folder in (Path(operator_views.__file__).parent, own, own / "meanings")]
    return (
        f"The operator views have {lines[0]:,} lines, the converter {lines[1]:,}, and the steps of single operators "
        f"{lines[2]:,}. "
        f"{by_schema} of {len(all_changes())} changes follow from the schemas and the views alone; {len(operators)} of "
        f"the {len(known)} operators that ever changed need a step of their own."
    )


def _lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def _general(reason: str) -> str:
    """A reason without the names of a model."""
    reason = re.sub(r"^\S+ has shape", "a result has shape", reason)
    return (
        re.sub(r"(the (?:rank|shape|size|element types?) (?:of|of axis \S+ of) )\S+", r"\1an operand", reason)
        if ("known" in reason)
        else re.sub(r"^\S+ is not constant", "an operand is not constant", reason)
    )


def write(found: dict[str, Any]) -> None:
    """Put the tables into docs/convert.md, after the marker line."""
    page = DOCS / "convert.md"
    head, mark, _ = page.read_text().partition(MARK)
    page.write_text(head + mark + "\n\n" + tables(found))
