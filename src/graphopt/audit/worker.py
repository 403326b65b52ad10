"""The process in which graphopt itself is measured as a contestant: `python -m graphopt.audit.worker JOB`."""

from __future__ import annotations

import json
import pickle
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphopt.audit.settings import Settings

MARK = "\x1e"


@dataclass(frozen=True, slots=True)
class Work:
    """One run of graphopt from file to file.

    Attributes:
        source: the model.
        target: the file to write.
        settings: the choice of passes.
    """

    source: str
    target: str
    settings: Settings


def do(work: Work) -> dict[str, Any]:
    """Run it; imports are done before the clock starts."""
    plan = work.settings.plan()
    plan.names()
    start = time.perf_counter()
    model, log = work.settings.run(work.source, plan=plan)
    model.save(work.target)
    seconds = time.perf_counter() - start
    failures = [f"{failure.rule}: {failure.error}" for failure in log.failures]
    return {
        "seconds": seconds,
        "peak": peak_bytes(),
        "passes": dict(Counter(event.rule for event in log.events).most_common()),
        "failures": failures,
    }


def peak_bytes() -> int:
    """Largest resident memory of this process so far."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):  # unlike getrusage, this forgets what the parent had when it forked
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        import resource
    except ImportError:  # not a POSIX system
        import psutil

        return int(getattr(psutil.Process().memory_info(), "peak_wset", 0))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main(path: str) -> None:
    """Do the work in the file and say what came of it."""
    from graphopt.errors import GraphoptError

    work: Work = pickle.loads(Path(path).read_bytes())
    try:
        report = do(work)
    except GraphoptError as error:
        report = {"error": f"{error}"}
    sys.stdout.write(f"{MARK}{json.dumps(report)}\n")


if __name__ == "__main__":
    from graphopt.audit.worker import main as run

    run(sys.argv[1])
