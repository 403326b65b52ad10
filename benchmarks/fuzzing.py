"""The tables of docs/fuzzing.md and docs/fuzzing-passes.md, from the folders of sessions of `graphopt fuzz --corpus`.

python -m benchmarks.fuzzing FOLDER...
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from onnx import TensorProto, defs, helper

from graphopt.fuzzing.operators import APART, OPSETS
from graphopt.fuzzing.verdicts import KINDS
from graphopt.pipeline import registry
from graphopt.system.sessions import open_session


def main() -> None:
    """Write the tables to standard output."""
    reports = [json.loads((Path(folder) / "session.json").read_text())["report"] for folder in sys.argv[1:]]
    lines = [
        *sessions(reports),
        "",
        *verdicts(reports),
        "",
        *causes(reports),
        "",
        *operators(reports),
        "",
        *reduced(reports),
        "",
        *passes(reports),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def sessions(reports: list[dict[str, Any]]) -> list[str]:
    """Which sessions these are."""
    versions = ", ".join(f"{name} {version}" for name, version in reports[0]["versions"].items())
    lines = [
        f"Versions: {versions}.",
        "",
        "| seed | models | drawn again | seconds | optimizers |",
        "|---|--:|--:|--:|---|",
    ]
    for report in reports:
        again = sum(report["discarded"].values())
        names = ", ".join(report["subjects"])
        lines.append(f"| {report['seed']} | {report['models']} | {again} | {report['seconds']:.0f} | {names} |")
    return lines


def verdicts(reports: list[dict[str, Any]]) -> list[str]:
    """Faults by optimizer and kind."""
    models, counts = Counter(), {}
    for report in reports:
        for name, found in report["verdicts"].items():
            models[name] += report["models"]
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
    """Operators of the standard in the models, of those that the runtime has a kernel for."""
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
    """Whether the runtime knows a CPU kernel or function for an operator at some opset and first type."""
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
    except Exception as error:  # the exceptions of a native library share no base class
        return "NOT_IMPLEMENTED" not in str(error) and "not implemented" not in str(error).lower() and _typed(error)
    return True


def _typed(error: Exception) -> bool:
    """Whether an objection is about this makeshift node and not about the operator."""
    return any(
        word in str(error) for word in ("Type Error", "TypeInference", "ShapeInference", "attribute", "Attribute")
    )


def reduced(reports: list[dict[str, Any]], count: int = 10) -> list[str]:
    """Some findings at random: how small they became, in what time, and where the fault is said to be."""
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
"""How often a pass is to have fired, and declined for each reason, before it counts as tried."""


def passes(reports: list[dict[str, Any]]) -> list[str]:
    """In how many models each pass of graphopt fired and declined, for how many reasons, and for the rarest of them."""
    fired, reasons = Counter(), {}
    for report in reports:
        fired.update(report["fired"])
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
        "| pass | fired | declined | reasons | rarest |",
        "|---|--:|--:|--:|--:|",
    ]
    for name in names:
        found = reasons.get(name, Counter())
        rarest = min(found.values(), default=0)
        lines.append(f"| {name} | {fired[name]} | {found.total()} | {len(found)} | {rarest} |")
    return lines


if __name__ == "__main__":
    main()
