"""Branch coverage of the pass library by random models alone: python -m benchmarks.fuzz_coverage SEED MINUTES.

Needs the package `coverage`. Models are judged in traced child processes of this script.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PACKAGE = "graphopt_passes"


_CHUNK = 40
"""Models per process; if the runtime ends it, all of them are lost."""
_RANDOM = 4
"""One model in this many is all random; the others begin with golden cases, evenly over all passes."""


def main() -> None:
    """Write totals, faults, and the files with the most branches that were not taken."""
    seed, minutes = sys.argv[1], float(sys.argv[2])
    coverage: Any = importlib.import_module("coverage")
    until, models, faults = time.monotonic() + 60 * minutes, 0, []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        while time.monotonic() < until:
            made, wrong = _apart(coverage, data, seed, models)
            models, faults = models + made, faults + wrong
        whole = coverage.Coverage(branch=True, source_pkgs=[PACKAGE], data_file=str(data))
        whole.combine(strict=True)
        told = Path(folder) / "report.json"
        whole.json_report(outfile=str(told))
        report = json.loads(told.read_text())
    sys.stdout.write("\n".join(table(report, models, faults)) + "\n")


def _apart(coverage: Any, data: Path, seed: str, first: int) -> tuple[int, list[str]]:
    """Judge some models in a separate process; returns the faults."""
    told = data.with_name("told.json")
    told.write_text(json.dumps([f"the runtime ended the process between {first} and {first + _CHUNK}"]))
    child = os.fork()
    if not child:
        tracer = coverage.Coverage(branch=True, source_pkgs=[PACKAGE], data_file=str(data), data_suffix=str(first))
        tracer.start()
        told.write_text(json.dumps(run(seed, first)))
        tracer.stop()
        tracer.save()
        os._exit(0)
    os.waitpid(child, 0)
    return _CHUNK, json.loads(told.read_text())


def run(seed: str, first: int) -> list[str]:
    """Judge models; returns the faults."""
    from graphopt.fuzzing.seedlings import golden  # imported while traced
    from graphopt.fuzzing.targets import Targets
    from graphopt.fuzzing.working import FuzzSettings, Worker

    worker, targets = Worker(FuzzSettings(seed, reduce=False)), Targets(golden(), until=1)
    tallies = {
        number: worker.work(number, sow=targets.draw(f"{seed}/{number}") if number % _RANDOM else ())
        for number in range(first, first + _CHUNK)
    }
    found = [(number, finding) for number, tally in tallies.items() for finding in tally.findings]
    return [f"{number}: {each['subject']}: {each['kind']}: {each['cause']}" for number, each in found]


def table(report: dict[str, Any], models: int, faults: list[str]) -> list[str]:
    """The lines of the report."""
    totals = report["totals"]
    taken, branches = totals["covered_branches"], totals["num_branches"]
    lines = [
        f"{models} numbers: {taken} of {branches} branches ({taken / branches:.0%}), {totals['covered_lines']} of "
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
