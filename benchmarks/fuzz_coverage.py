"""Branch coverage of the pass library by random models alone: python -m benchmarks.fuzz_coverage SEED MINUTES.

Needs the package `coverage`. Written in one process, since processes of their own would not be traced.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PACKAGE = "graphopt_passes"


def main() -> None:
    """Write totals, what was wrong, and the files with the most branches that were not taken."""
    seed, minutes = sys.argv[1], float(sys.argv[2])
    coverage: Any = importlib.import_module("coverage")
    with tempfile.TemporaryDirectory() as folder:
        tracer = coverage.Coverage(branch=True, source_pkgs=[PACKAGE], data_file=str(Path(folder) / "data"))
        tracer.start()
        models, faults = run(seed, 60 * minutes)
        tracer.stop()
        told = Path(folder) / "report.json"
        tracer.json_report(outfile=str(told))
        report = json.loads(told.read_text())
    sys.stdout.write("\n".join(table(report, models, faults)) + "\n")


def run(seed: str, seconds: float) -> tuple[int, list[str]]:
    """Judge models for some time; how many, and what was wrong."""
    from graphopt.fuzzing.working import Settings, Worker  # imported while it is traced

    worker = Worker(Settings(seed, reduce=False))
    until, models, number = time.monotonic() + seconds, 0, 0
    faults = []
    while time.monotonic() < until:
        tally = worker.work(number)
        models += tally.made
        faults += [f"{number}: {f['subject']}: {f['kind']}: {f['cause']}" for f in tally.findings]
        number += 1
    return models, faults


def table(report: dict[str, Any], models: int, faults: list[str]) -> list[str]:
    """The lines of the report."""
    totals = report["totals"]
    taken, branches = totals["covered_branches"], totals["num_branches"]
    lines = [
        f"{models} models: {taken} of {branches} branches ({taken / branches:.0%}), {totals['covered_lines']} of "
        f"{totals['num_statements']} statements; {len(faults)} faults",
        *faults,
        "",
        "| file | branches | not taken |",
        "|---|--:|--:|",
    ]
    files = [
        (f["summary"]["missing_branches"], f["summary"]["num_branches"], name) for name, f in report["files"].items()
    ]
    for missing, count, name in sorted(files, reverse=True)[:40]:
        lines.append(f"| {name.partition(PACKAGE + '/')[2]} | {count} | {missing} |")
    return lines


if __name__ == "__main__":
    main()
