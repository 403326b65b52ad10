"""Runs graphopt itself as a contestant, in a separate process."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from graphopt.audit.settings import Settings
from graphopt.system.child import peak_memory


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
    """Run it; imports precede the timing."""
    plan = work.settings.plan()
    plan.names()
    start = time.perf_counter()
    model, log = work.settings.run(work.source, plan=plan)
    model.save(work.target)
    seconds = time.perf_counter() - start
    removed: Counter[str] = Counter()
    for event in log.events:
        removed[event.rule] += len(event.removed) - len(event.added)
    failures = [f"{failure.rule}: {failure.error}" for failure in log.failures]
    return {
        "seconds": seconds,
        "peak": peak_memory(),
        "passes": dict(Counter(event.rule for event in log.events).most_common()),
        "removed": dict(removed),
        "failures": failures,
    }
