"""Write docs/benchmarks.md from the results: `python -m benchmarks table`. Nobody edits that page by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks import dresses, first, results, stages
from benchmarks.latency import BASE
from benchmarks.optimizers import seconds
from benchmarks.profiling import totals
from benchmarks.results import HERE, TIE, geometric_mean, verdict
from benchmarks.scaling import growth
from benchmarks.tools import OPTIMIZERS, PEERS
from benchmarks.zoo import DRESSES

PAGE = HERE.parent / "docs" / "benchmarks.md"
Row = list[str]


def write() -> str:
    """Build the page from the available results; returns its path."""
    sections = (
        _optimizers, _first, _dresses, _latency, _start, _scaling, _large, _unrolling, _profile, _exports, _appendix,
    )  # fmt: skip
    parts = [_HEAD, _machine()]
    parts += [text for section in sections if (text := section())]
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n\n".join(parts).rstrip() + "\n")
    return str(PAGE)


_HEAD = f"""# Benchmarks

This page is generated from `benchmarks/results/*.json` by `python -m benchmarks table`. `make bench` measures the
figures again; `python -m benchmarks --help` lists the steps. Each tool runs in its own process; imports are timed
separately. A difference of {TIE:.0%} or less is a tie. Means over models are geometric. Models are named
`exporter/name`:
{"; ".join(f"`{dress}` is the {meaning}" for dress, meaning in DRESSES.items())}."""


def grid(head: Row, rows: Iterable[Row]) -> str:
    """A Markdown table; all columns but the first are aligned to the right."""
    lines = ["| " + " | ".join(head) + " |", "|:--" + "|--:" * (len(head) - 1) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def figure(value: float | None, digits: int = 3) -> str:
    """A number with some significant digits; a dash for None."""
    if value is None or math.isnan(value):
        return "-"
    if value >= 10**digits:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}" if value < 1 else f"{value:.{max(0, digits - 1 - int(math.log10(value)))}f}"


def _reasons() -> dict[str, str]:
    """Why a peer is faster: `kind peer model` -> reason, written by the person who investigated it."""
    path = HERE / "reasons.json"
    return json.loads(path.read_text()) if path.exists() else {}


def _machine() -> str:
    for kind in ("optimizers", "latency", "scaling", "large"):
        found = results.load(kind)
        if found:
            m = found["machine"]
            packages = ", ".join(f"{name} {version}" for name, version in m["packages"].items())
            return (
                f"Measured on {m['processor']}, {m['cores']} cores, {m['memory_gb']:.0f} GB, {m['system']}, "
                f"Python {m['python']}, with {packages}; revision {m['revision']}, {m['day']}."
            )
    return "Nothing is measured yet."


def _optimizers() -> str:
    found = results.load("optimizers")
    if not found:
        return ""
    data = found["data"]
    text = ["## Time, memory and nodes left", f"Load, optimize and save, over {len(data)} models."]
    shared = _common(data)
    text[1] += f" Means are over the {len(shared)} models that every tool can do."
    rows = []
    for tool in OPTIMIZERS:
        got = [row["tools"][tool] for row in shared]
        failures = sum("failed" in row["tools"].get(tool, {"failed": ""}) for row in data)
        if not got:
            continue
        rows.append([
            tool, figure(geometric_mean(map(seconds, got))), figure(geometric_mean(one["runs_s"][0] for one in got)),
            figure(geometric_mean(one["import_s"] for one in got)), figure(geometric_mean(o["peak_mb"] for o in got)),
            figure(geometric_mean(max(o["nodes"], 1) / row["nodes"] for o, row in zip(got, shared, strict=True))),
            str(failures),
        ])  # fmt: skip
    head = ["tool", "time, s", "first run, s", "import, s", "peak memory, MB", "nodes left / before", "failures"]
    text += [grid(head, rows), _slower(data), _failures(data)]
    return "\n\n".join(part for part in text if part)


def _common(data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    measured = {tool for row in data for tool in row["tools"]}
    return [row for row in data if all("failed" not in row["tools"].get(t, {"failed": ""}) for t in measured)]


def _slower(data: list[dict[str, Any]]) -> str:
    """Models on which a peer optimizes faster than graphopt at a comparable level."""
    pairs = [(peer, "graphopt_all" if peer == "ort_all" else "graphopt_basic") for peer in PEERS]
    lines = []
    behind: dict[str, list[tuple[float, str]]] = {}
    for peer, ours in pairs:
        ratios = {}
        for row in data:
            one, two = row["tools"].get(peer), row["tools"].get(ours)
            if one and two and "failed" not in one and "failed" not in two:
                ratios[row["model"]] = seconds(one) / seconds(two)
        if not ratios:
            continue
        verdicts = [verdict(ratio) for ratio in ratios.values()]
        behind[peer] = sorted((ratio, model) for model, ratio in ratios.items() if verdict(ratio) == "slower")
        lines.append([
            f"{ours} against {peer}", figure(geometric_mean(ratios.values())), str(verdicts.count("faster")),
            str(verdicts.count("tie")), str(verdicts.count("slower")),
        ])  # fmt: skip
    if not lines:
        return ""
    head = ["", "their time / ours", "ours faster", "ties", "ours slower"]
    return "\n\n".join([grid(head, lines), *_behind(behind, data)])


def _behind(behind: dict[str, list[tuple[float, str]]], data: list[dict[str, Any]]) -> list[str]:
    """The models on which each peer optimizes faster: by how much, where graphopt's time goes, and what more it does.

    `python -m benchmarks stages` measures where the time goes.
    """
    found = (results.load("stages") or {"data": {}})["data"]
    rows = {row["model"]: row for row in data}
    text = []
    for peer, models in behind.items():
        if not models:
            continue
        level = "all" if peer == "ort_all" else "basic"
        lines = []
        for ratio, model in models:
            ours, theirs = rows[model]["tools"][f"graphopt_{level}"], rows[model]["tools"][peer]
            measured = found.get(model, {}).get(level)
            lines.append([
                model, f"{1 / ratio:.2f}", figure(seconds(ours)), f"{ours['nodes']} / {theirs['nodes']}",
                stages.told(measured) if measured else "not measured",
            ])  # fmt: skip
        head = ["model", "ours / theirs", "ours, s", "nodes left, ours / theirs", "what takes graphopt's time"]
        text += [f"{peer} is faster on {len(models)} models:", grid(head, lines)]
    return text


def _failures(data: list[dict[str, Any]]) -> str:
    rows = [
        [tool, row["model"], got["failed"].replace("|", "/")[:160]]
        for row in data
        for tool, got in row["tools"].items()
        if "failed" in got
    ]
    return "Failures:\n\n" + grid(["tool", "model", "reason"], rows) if rows else ""


def _ahead(data: list[dict[str, Any]], threads: str) -> dict[tuple[str, str], float]:
    """(model, peer variant) -> its speed-up over graphopt's best variant, if it is faster."""
    found = {}
    for row in data:
        for name, got in row.get("latency", {}).get(threads, {}).items():
            ratio = got["to_ours"]
            if not name.startswith("graphopt") and _judge(ratio) == "faster":
                found[row["model"], name] = ratio["median"]
    return found


def _judge(ratio: dict[str, float]) -> str:
    return verdict(ratio["median"], ratio["low"], ratio["high"])


_DRESSES = (
    "The nodes that graphopt leaves at level `basic`, and the fewest nodes that onnxsim, onnxslim or onnxscript leaves "
    "of the same export (`Constant` nodes count). The last columns show how much the three exports differ in nodes "
    "and in run time under ORT_ENABLE_ALL after graphopt (the sum of the minimum times of all kernels, one thread). "
    "`python -m benchmarks dresses` measures this."
)


def _dresses() -> str:
    found = results.load("dresses")
    if not found:
        return ""
    rows = []
    for row in found["data"]:
        cells = []
        for counts in row["nodes"].values():
            best = dresses.best_peer(counts)
            cells += [f"{counts[dresses.OURS]:,}", "-" if best is None else f"{best[0]:,} {best[1]}"]
        late = dresses.slowest(row)
        apart = [f"{dresses.spread(row) or 0:.1%}", "-" if late is None else f"{late:.1%}"]
        rows.append([row["model"], *cells, *apart])
    head = ["network", *(text for dress in DRESSES for text in (dress, "best peer")), "nodes apart", "time apart"]
    return "\n\n".join(
        [
            "## One network, three exporters",
            _DRESSES,
            _dresses_summary(found["data"]),
            grid(head, rows),
        ]
    )


def _dresses_summary(data: list[dict[str, Any]]) -> str:
    close = sum((dresses.spread(row) or 0) <= dresses.CLOSE for row in data)
    timed = [late for row in data if (late := dresses.slowest(row)) is not None]
    pairs = [
        (counts[dresses.OURS], best[0])
        for row in data
        for counts in row["nodes"].values()
        if (best := dresses.best_peer(counts)) is not None
    ]
    fewer, more = (sum(ours < best for ours, best in pairs), sum(ours > best for ours, best in pairs))
    text = (
        f"{close} of {len(data)} networks are within {dresses.CLOSE:.0%} in nodes. Of {len(pairs)} exports graphopt "
        f"leaves fewer nodes than the best peer of {fewer}, as many of {len(pairs) - fewer - more}, more of {more}."
    )
    within = sum(late <= TIE for late in timed)
    return text + (f" {within} of {len(timed)} timed networks run within {TIE:.0%}." if timed else "")


def _latency() -> str:
    found = results.load("latency")
    if not found:
        return ""
    data = [row for row in found["data"] if "latency" in row]
    text = [
        "## Latency of the deployed model",
        f"Speed relative to `{BASE}`: the export, optimized by onnxruntime at session start. Above 1 is faster. "
        "Figures are medians of the ratios of interleaved rounds. `x@all` is what `x` wrote, run under "
        "ORT_ENABLE_ALL; `x@none` the same under ORT_DISABLE_ALL. A difference whose quartiles do not agree is a tie.",
    ]
    for threads in sorted({count for row in data for count in row["latency"]}):
        names = list(dict.fromkeys(name for row in data for name in row["latency"].get(threads, {})))
        rows = []
        for name in names:
            by_dress: Row = []
            spreads = _ratios(data, threads, name)
            ratios = {model: ratio["median"] for model, ratio in spreads.items()}
            for dress in DRESSES:
                by_dress.append(figure(geometric_mean(r for m, r in ratios.items() if m.startswith(dress + "/"))))
            verdicts = [_judge(ratio) for ratio in spreads.values()]
            worst = min(ratios.items(), key=lambda item: item[1])
            rows.append([
                name, figure(geometric_mean(ratios.values())), *by_dress, str(verdicts.count("faster")),
                str(verdicts.count("tie")), str(verdicts.count("slower")), f"{worst[0]} {worst[1]:.2f}",
            ])  # fmt: skip
        head = ["variant", "mean", *DRESSES, "faster", "ties", "slower", "worst model"]
        text += [f"### {threads} thread{'s' if threads != '1' else ''}, {len(data)} models", grid(head, rows)]
        text.append(_ahead_table(data, threads))
    wrong = [[row["model"], name, why.replace("|", "/")[:160]] for row in data for name, why in row["failures"].items()]
    if wrong:
        text.append("Variants that cannot be made, do not load, or give wrong numbers:")
        text.append(grid(["model", "variant", "reason"], wrong))
    return "\n\n".join(text)


def _ratios(data: list[dict[str, Any]], threads: str, name: str) -> dict[str, dict[str, float]]:
    return {
        row["model"]: row["latency"][threads][name]["ratio"] for row in data if name in row["latency"].get(threads, {})
    }


def _ahead_table(data: list[dict[str, Any]], threads: str) -> str:
    ahead = sorted(_ahead(data, threads).items(), key=lambda item: -item[1])
    if not ahead:
        return "No variant of a peer is ahead of graphopt's better one on any model."
    reasons = _reasons()
    rows = [
        [model, name, f"{ratio:.2f}", reasons.get(f"latency {name} {model}", "not explained yet")]
        for (model, name), ratio in ahead
    ]
    return "A peer is ahead of graphopt's better variant here:\n\n" + grid(["model", "variant", "by", "why"], rows)


def _first() -> str:
    found = results.load("first")
    if not found:
        return ""
    data: dict[str, dict[str, Any]] = found["data"]
    rows = []
    for tool in first.TOOLS:
        mean, wins, count = first.against_base(data, tool)
        seconds = geometric_mean(got[tool]["seconds"] for got in data.values() if "seconds" in got.get(tool, {}))
        cpu, _, _ = first.against_base(data, tool, "cpu")
        row = [tool, figure(seconds), figure(mean), f"{wins} of {count}", figure(cpu)]
        for by in ("process", "process_cpu"):
            mean, wins, count = first.against_base(data, tool, by)
            row += [figure(mean), f"{wins} of {count}"] if count else ["", ""]
        rows.append(row)
    head = ["tool", "s", f"by {first.BASE}", "faster on", "by CPU time"]
    head += ["whole process", "faster on", "whole process by CPU time", "faster on"]
    text = (
        "The first call in a new process, from file to file, including imports: the fastest of interleaved rounds, "
        f"each in a new process. `{first.BASE}` is the runtime's own optimizer offline. The whole process is that "
        "of the command, from the start of Python to its end; the runtime has no command, so a minimal script "
        "replaces it."
    )
    load = max(report.get("load", 0.0) for got in data.values() for report in got.values())
    if load > 1.5:
        text += f" The machine was busy (a load of up to {load:.0f}), so the ratios are more reliable than the seconds."
    cells = [[key, *(_cell(got.get(tool), first.told) for tool in first.TOOLS)] for key, got in data.items()]
    return "\n\n".join(
        ["## First calls", text, grid(head, rows), "### Each model", grid(["model", *first.TOOLS], cells)]
    )


def _start() -> str:
    found = results.load("latency")
    data = [row for row in found["data"] if row.get("start")] if found else []
    if not data:
        return ""
    names = list(dict.fromkeys(name for row in data for name in row["start"]))
    rows = []
    for name in names:
        got = [row for row in data if name in row["start"]]
        times = [row["start"][name]["median"] for row in got]
        ratios = [row["start"][BASE]["median"] / row["start"][name]["median"] for row in got if BASE in row["start"]]
        slower = sum(verdict(ratio) == "slower" for ratio in ratios)
        rows.append([name, figure(geometric_mean(times)), figure(geometric_mean(ratios)), str(slower)])
    head = ["variant", "ms until ready", f"{BASE} / this", "models slower"]
    text = "One thread, medians of interleaved rounds in one process. `graphopt_all_data` has its weights beside it."
    return "\n\n".join(["## Session start", text, grid(head, rows), "### Each model", _starts(data, names)])


def _starts(data: list[dict[str, Any]], names: list[str]) -> str:
    rows: list[Row] = []
    for row in data:
        times = {name: it["median"] for name, it in row["start"].items()}
        cells = [f"{times[n]:.1f} ({times[BASE] / times[n]:.1f})" if n in times else "-" for n in names]
        rows.append([row["model"], *cells])
    return f"Milliseconds, and in brackets how many times faster than `{BASE}`.\n\n" + grid(["model", *names], rows)


def _scaling() -> str:
    found = results.load("scaling")
    if not found:
        return ""
    text = [
        "## Scaling",
        "Seconds to load, optimize and save a synthetic graph; `growth` is time at 100,000 nodes by time at 10,000 "
        "(10 is linear).",
    ]
    for mix, tools in found["data"].items():
        sizes = sorted({int(size) for reports in tools.values() for size in reports})
        rows = []
        for tool in OPTIMIZERS:
            if tool not in tools:
                continue
            cells = [_cell(tools[tool].get(str(size)), lambda got: figure(seconds(got))) for size in sizes]
            rate = growth(tools[tool])
            left = _cell(tools[tool].get(str(sizes[min(1, len(sizes) - 1)])), lambda got: f"{got['nodes']:,}")
            rows.append([tool, *cells, figure(rate), left])
        head = [mix, *(f"{size:,}" for size in sizes), "growth", f"nodes left of {sizes[min(1, len(sizes) - 1)]:,}"]
        text.append(grid(head, rows))
    return "\n\n".join(text)


def _cell(report: dict[str, Any] | None, show: Callable[[dict[str, Any]], str]) -> str:
    if report is None:
        return "-"
    return "failed" if "failed" in report else show(report)


def _large() -> str:
    found = results.load("large")
    if not found:
        return ""
    rows = []
    size = 0.0
    for tool, got in found["data"].items():
        size = got["model_bytes"] / 2**30
        if "failed" in got:
            rows.append([tool, *["-"] * 6, got["failed"].replace("|", "/")[:160]])
            continue
        took, copying = seconds(got), got.get("copy_s")
        cells = [figure(took), *([figure(copying), figure(took / copying)] if copying else ["-", "-"])]
        cells += [figure(got["peak_mb"]), str(got["nodes"]), figure(got["bytes"] / 2**30)]
        rows.append([tool, *cells, "ok"])
    head = [
        "tool",
        "time, s",
        "copying, s",
        "time / copying",
        "peak memory, MB",
        "nodes left",
        "written, GB",
        "outcome",
    ]
    text = "From path to path, weights in a file beside the model; before each tool the files were copied, with fsync."
    return f"## A model of {size:.2f} GB\n\n{text}\n\n{grid(head, rows)}"


def _unrolling() -> str:
    found = results.load("unrolling")
    if not found:
        return ""
    rows = []
    for row in found["data"]["rows"]:
        loop, copies = row["loop_us"], row["unrolled_us"]
        starts = [figure(row["loop_start_ms"]), figure(row["unrolled_start_ms"])]
        rows.append([row["body"], str(row["rounds"]), figure(loop), figure(copies), figure(loop / copies), *starts])
    head = ["a round", "rounds", "Loop, us", "unrolled, us", "Loop / unrolled", "start, ms", "start unrolled, ms"]
    text = "ORT_ENABLE_ALL, one thread, medians of runs in turn; sessions are started once."
    return f"## Unrolled loops\n\n{text}\n\n{grid(head, rows)}"


def _profile() -> str:
    text = []
    for level in ("basic", "extended", "all"):
        found = results.load(f"profile_{level}")
        if not found:
            continue
        good = {key: report for key, report in found["data"].items() if "failed" not in report}
        nodes = sum(report["nodes"] for report in good.values()) or 1
        phases = {
            phase: sum(report["seconds"][phase] for report in good.values()) for phase in ("load", "run", "flush")
        }
        per_node = ", ".join(f"{phase} {value / nodes * 1e6:.1f}" for phase, value in phases.items())
        text.append(f"### Level {level}\n\n{len(good)} models, {nodes:,} nodes. Microseconds a node: {per_node}.")
        rows = []
        for name, rule in list(totals(good).items())[:25]:
            each = rule["seconds"] / rule["attempts"] * 1e6 if rule["attempts"] else math.nan
            counts = [f"{rule['attempts']:,.0f}", f"{rule['hits']:,.0f}"]
            rows.append([name, *counts, figure(rule["seconds"]), figure(each)])
        text.append(grid(["rule (the 25 dearest)", "attempts", "hits", "seconds", "us an attempt"], rows))
    return "## Where the time goes\n\n" + "\n\n".join(text) if text else ""


def _exports() -> str:
    path = HERE / "results" / "export.json"
    if not path.exists():
        return ""
    records = json.loads(path.read_text())
    bad = [record for record in records if "failed" in record]
    good = [record for record in records if "failed" not in record]
    names = {record["name"] for record in good}
    text = f"## The zoo\n\n{len(good)} exports of {len(names)} architectures and variants."
    if bad:
        rows = [[record["dress"], record["name"], record["failed"].replace("|", "/")[:200]] for record in bad]
        text += "\n\nWhat cannot be exported:\n\n" + grid(["dress", "name", "reason"], rows)
    return text


def _appendix() -> str:
    text = []
    found = results.load("optimizers")
    if found:
        tools = [tool for tool in OPTIMIZERS if any(tool in row["tools"] for row in found["data"])]
        rows = [
            [f"{row['model']} ({row['nodes']})"]
            + [_cell(row["tools"].get(tool), lambda g: f"{figure(seconds(g))} / {g['nodes']}") for tool in tools]
            for row in found["data"]
        ]
        text.append("## Every model: seconds / nodes left\n\n" + grid(["model (nodes)", *tools], rows))
    found = results.load("latency")
    if found:
        data = [row for row in found["data"] if "latency" in row]
        for threads in sorted({count for row in data for count in row["latency"]}):
            names = list(dict.fromkeys(name for row in data for name in row["latency"].get(threads, {})))
            rows = [
                [row["model"], *(_time(row["latency"].get(threads, {}).get(name)) for name in names)] for row in data
            ]
            text.append(f"## Every model: ms (relative speed), {threads} threads\n\n" + grid(["model", *names], rows))
    return "\n\n".join(text)


def _time(got: dict[str, Any] | None) -> str:
    return "-" if got is None else f"{figure(got['ms']['median'])} ({got['ratio']['median']:.2f})"
