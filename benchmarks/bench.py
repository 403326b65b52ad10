"""`make bench`: every part in its own process, within a budget, so that all of it takes two hours at most.

A part that is complete for this revision on this machine is not run again, and interrupted parts keep their results:
the same command continues from there. Pages are written last, from all available results.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

from benchmarks import results

KIND = "bench"

PARTS: tuple[tuple[str, float, tuple[str, ...]], ...] = (
    ("refill", 3, ("refill",)),
    ("families", 17, ("families", "--gaps", "--budget", "1")),
    ("families on two threads", 8, ("families", "--gaps", "--budget", "0.5", "--threads", "2", "--family", "ts")),
    ("quantized", 17, ("quantized", "--gaps", "--budget", "2")),
    ("quantized on two threads", 7, ("quantized", "--gaps", "--budget", "1", "--threads", "2")),
    ("margins", 2, ("margins", "--seconds", "1.5")),
    ("slow networks", 4, ("slow-networks",)),
    ("optimizers", 20, ("optimizers", "--repeats", "3")),
    ("stages", 3, ("stages",)),
    ("dresses", 7, ("dresses",)),
    ("first calls", 5, ("first",)),
    ("latency", 9, ("latency", "--budget", "3")),
    ("scaling", 5, ("scaling",)),
    ("large", 4, ("large",)),
    ("unrolling", 1, ("unrolling",)),
    ("ties", 2, ("ties",)),
    ("profile", 1, ("profile",)),
)
"""Each part: its name, its share of the minutes, and the command; the most important for run time first."""

_PAGES = ("table",)
_TOTAL = sum(minutes for _, minutes, _ in PARTS)


def run(minutes: float, only: list[str] | None, *, fresh: bool) -> None:
    """Run the incomplete parts, each for its share of the minutes, then write the pages.

    Args:
        minutes: for all parts together.
        only: names of some parts.
        fresh: also run complete parts.
    """
    here = results.machine()
    kept: dict[str, Any] = (results.load(KIND) or {"data": {}})["data"]
    for name, share, command in PARTS:
        if (only and name not in only) or (not fresh and _is_done(kept.get(name), here)):
            continue
        start = time.monotonic()
        done = _run(command, 60 * minutes * share / _TOTAL)
        seconds = round(time.monotonic() - start, 1)
        place = {"revision": here["revision"], "processor": here["processor"]}
        kept[name] = {"done": done, "seconds": seconds, **place}
        results.save(KIND, kept)
        print(f"{name}: {'done' if done else 'cut short; run it again to go on'}, {seconds:.0f} s", flush=True)
    for page in _PAGES:
        _run((page,), 300)


def _is_done(part: dict[str, Any] | None, here: dict[str, Any]) -> bool:
    return part is not None and part["done"] and all(part[key] == here[key] for key in ("revision", "processor"))


def _run(command: tuple[str, ...], seconds: float) -> bool:
    """Whether a command finished in time."""
    try:
        done = subprocess.run([sys.executable, "-m", "benchmarks", *command], timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
