"""How far ONNX Runtime's operators are from the machine's limits, and what their other forms gain.

Each operator is a model of its own, on one thread with the runtime's optimizations off. Its limit is the largest of
the times to copy the bytes that it reads and writes, to do its multiplications at the rate of a large matrix product,
and to start a kernel. If a pass of `algorithm` writes another form, both are run alternately. The least CPU times
count, which exclude other work on the machine.
"""

from __future__ import annotations

import math
import re
import time
from collections import defaultdict
from collections.abc import Callable
from math import log2
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np
import onnx

from benchmarks import atlas_operators, atlas_plot, firing, results
from benchmarks.atlas_cases import Case, cases
from benchmarks.atlas_patterns import patterns
from benchmarks.table import grid
from graphopt import PassManager
from graphopt.pipeline import registry
from graphopt.rewrite import Numerics, Rule
from graphopt.system.sessions import open_session
from graphopt_passes.algorithm.work import Weighed

PAGE = results.HERE.parent / "docs" / "atlas.md"
PLOT = PAGE.parent / "images" / "atlas.svg"
BEGIN, END = "<!-- figures of `python -m benchmarks atlas` -->", "<!-- end of figures -->"
_SLOW = 3.0
"""Operators this many times slower than the limit are candidates."""

_LONGEST = 60
_START = 1.5
"""The least time of a kernel, in microseconds."""

Row = dict[str, Any]


def run(*, fresh: bool = False, seconds: float = 0.15) -> None:
    """Measure cases without results, and write the page; each result is stored at once."""
    earlier = [] if fresh else (results.load("atlas") or {"data": []})["data"]
    rows: dict[str, Row] = {row["case"]: row for row in earlier}
    machine = Machine()
    wanted = [*cases(), *patterns()]
    for case in wanted:
        if str(case) not in rows:
            rows[str(case)] = measure(case, machine, seconds)
            print(_line(rows[str(case)]), flush=True)
    results.save("atlas", [rows[str(case)] for case in wanted])
    write()


class Machine:
    """The rates from which limits are computed, measured on first use."""

    def __init__(self) -> None:
        self._copies: dict[int, float] = {}
        one = np.random.default_rng(0).standard_normal((512, 512), np.float32)
        self.product = 512**3 / _least(lambda: one @ one, 0.3)
        relu = onnx.parser.parse_model(
            '<ir_version: 9, opset_import: ["" : 17]> g (float[1] x) => (float[1] y) { y = Relu (x) }'
        )
        session, feed = open_session(relu), {"x": np.ones(1, np.float32)}
        self.empty = _least(lambda: session.run(None, feed), 0.2)

    def copy(self, size: int) -> float:
        """Microseconds to copy `size` bytes, half of them read and half written."""
        step = max(round(2 * log2(max(size, 2))), 24)
        if step not in self._copies:
            source = np.ones(int(2 ** (step / 2)) // 8, np.float32)
            target = np.empty_like(source)
            self._copies[step] = _least(lambda: np.copyto(target, source), 0.05) / (2 * source.nbytes)
        return self._copies[step] * size

    def limit(self, case: Case, feed: dict[str, np.ndarray], outputs: list[np.ndarray]) -> float:
        """A lower bound for the microseconds of a case."""
        size = sum(array.nbytes for array in (*feed.values(), *outputs))
        size += sum(onnx.numpy_helper.to_array(tensor).nbytes for tensor in case.model.graph.initializer)
        return max(self.copy(size), case.multiplications() / self.product, _START)


def _least(action: Any, seconds: float) -> float:
    """The least microseconds of an action."""
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.thread_time()
        action()
        best = min(best, time.thread_time() - start)
    return best * 1e6


def measure(case: Case, machine: Machine, seconds: float) -> Row:
    """One case: its time, its limit, and its other form, if any."""
    row: Row = {"operator": case.operator, "case": str(case)}
    try:
        feed = case.feed()
        session = open_session(case.model)
        outputs = session.run(None, feed)
    except Exception as error:  # the runtime raises many kinds
        return {**row, "failed": str(error).splitlines()[0][:100]}
    result = PassManager("extended", numerics="fast", explain=True).run(case.model)
    names = [name for name in result.hits if _is_form(name)]
    sessions = [session, *([open_session(result.model)] if names else [])]
    times = in_turn(sessions, feed, seconds)
    row |= {"us": times[0] - machine.empty + _START, "limit": machine.limit(case, feed, outputs)}
    if names:
        ratio = times[0] / times[1]
        row |= {"passes": names, "us_then": times[1] - machine.empty + _START, "ratio": ratio}
    else:
        row["reasons"] = [f"{miss.rule}: {miss.reason}" for miss in result.near_misses if _is_form(miss.rule)]
    return row


def _is_form(name: str) -> bool:
    """Whether a pass writes other forms of operators."""
    rule = registry().rule_class(name)
    return issubclass(rule, Weighed) or rule.__module__.startswith("graphopt_passes.algorithm.")


def in_turn(sessions: list[Any], feed: dict[str, np.ndarray], seconds: float, least: int = 4) -> list[float]:
    """The least CPU microseconds of each session; each runs once untimed before it is timed."""
    best, end, rounds = [float("inf")] * len(sessions), time.perf_counter() + seconds, 0
    while rounds < least or time.perf_counter() < end:
        for at, session in enumerate(sessions):
            session.run(None, feed)
            start = time.thread_time()
            session.run(None, feed)
            best[at] = min(best[at], time.thread_time() - start)
        rounds += 1
    return [each * 1e6 for each in best]


def below(row: Row) -> float:
    """The ratio of a case's time to its limit."""
    return float(row["us"] / row["limit"])


def named(case: str) -> set[str]:
    """The operators in the text of a case."""
    return set(re.findall(r"= (?:com\.microsoft\.)?([A-Z]\w+) [<(]", case))


def _ratios(rows: list[Row]) -> dict[str, tuple[float, float | None]]:
    """The ratio of the worst case of each operator to its limit, and that of its other form."""
    worst: dict[str, tuple[float, float | None]] = {}
    for row in sorted(rows, key=below):
        after = row["us_then"] / row["limit"] if "us_then" in row and row["ratio"] > 1 else None
        worst[row["operator"]] = (below(row), after)
    return worst


def _line(row: Row) -> str:
    if "failed" in row:
        return f"{row['case']}: {row['failed']}"
    gain = f", {' '.join(row['passes'])}: {row['ratio']:.2f} times as fast" if "ratio" in row else ""
    return f"{row['case']}: {row['us']:.0f} us, limit {row['limit']:.0f}{gain}"


def write(page: Path = PAGE) -> None:
    """Write the figures into the page."""
    stored = results.load("atlas")
    assert stored is not None, "nothing was measured yet"
    rows = [row for row in stored["data"] if "us" in row]
    before, _, rest = page.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PLOT.write_text(atlas_plot.drawn(_ratios(rows)))
    operators = {row["operator"] for row in rows} | {name for row in rows for name in named(row["case"])}
    plot = f"![How far below the machine operators run]({PLOT.parent.name}/{PLOT.name})"
    parts = (_summary(rows, stored["machine"]), plot, _gains(rows), _worst(rows), atlas_operators.listed(operators))
    text = "\n\n".join(parts)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


def _summary(rows: list[Row], machine: dict[str, Any]) -> str:
    slow = [row for row in rows if below(row) > _SLOW]
    helped = [row for row in slow if "ratio" in row]
    versions = machine["packages"]
    return (
        f"Measured on {machine['day']}: {machine['processor']}, one thread, onnxruntime {versions['onnxruntime']}. "
        f"{len({row['operator'] for row in rows})} operators in {len(rows)} cases; {len(slow)} cases run more than "
        f"{_SLOW:g} times below the machine, {len(helped)} of these have another form."
    )


def _gains(rows: list[Row]) -> str:
    by_pass: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if len(row.get("passes", ())) == 1:  # with several passes the cause is unknown
            by_pass[row["passes"][0]].append(row["ratio"])
    forms = [name for name in registry().names() if issubclass(registry().rule_class(name), Weighed)]
    places = firing_places()
    table = [
        [f"[{name}](passes/{name}.md)", str(rule.numerics), str(len(found)), *_spread(found), told, _tested(rule)]
        for name, found, rule, told in sorted(
            ((name, by_pass[name], registry().rule_class(name), places(name)) for name in forms),
            key=lambda each: -geometric_mean(each[1] or [1.0]),
        )
    ]
    titles = ["pass", "numerics", "cases", "least", "median", "most", "fires on", "tested with"]
    least = min(min(found) for found in by_pass.values() if found)
    text = f"{len(forms)} passes; the least ratio of all cases in which one of them fires alone is {least:.2f}."
    if least >= _SLOWEST:
        text += " So none takes more than 1.03 times as long at any of these sizes."
    text += (
        " Each is written wherever it is right, whatever it costs, and compared with the operators before it at the "
        "numbers of the last column, for batches of that many (`tests/passes/test_slow_forms.py`)."
    )
    return f"### What each pass gains where it fires alone\n\n{text}\n\n" + grid(titles, table)


_SLOWEST = 0.97
EXTREMES: dict[Numerics, tuple[float, ...]] = {
    Numerics.FAST: (0.0, -0.0, 1e-40, -1e-38),
    **dict.fromkeys((Numerics.EXACT, Numerics.ROUNDING), (0.0, -0.0, 1e-40, -1e-38, math.inf, -math.inf, math.nan)),
}
"""Extremes added to the random inputs with which forms are tested; `fast`, and `finite` rules, promise finite ones."""


def extremes(rule: type[Rule]) -> tuple[float, ...]:
    """The extremes for one rule."""
    return EXTREMES[Numerics.FAST if rule.finite else rule.numerics]


BATCHES = (0, 1, 2, 3)
NEVER_EMPTY = frozenset({"Einsum"})
"""Operators that end the runtime's process if their operands are empty."""


def _tested(rule: type[Rule]) -> str:
    ops = getattr(rule, "ops", ())
    batches = BATCHES[1:] if isinstance(ops, tuple) and NEVER_EMPTY & set(ops) else BATCHES
    infinite = ", infinities, NaN" if math.inf in extremes(rule) else ""
    return f"zeros, denormal{infinite}; batches {', '.join(map(str, batches))}"


def firing_places() -> Callable[[str], str]:
    """Where a pass fires: on measured networks, on those of pass-use.md, or on the output of certain exporters."""
    networks = (results.load("slow_networks") or {"data": []})["data"]
    fired: dict[str, dict[str, list[int]]] = (results.load(firing.KIND) or {"data": {}})["data"]

    def told(name: str) -> str:
        found = [row["network"] for row in networks if name in row["passes"]]
        if found:
            return found[0] + (f", {len(found) - 1} more" if len(found) > 1 else "")
        models = sum(source[name][0] for source in fired.values() if name in source)
        if models:
            return f"{models} of [pass use](pass-use.md)"
        return firing.origin(registry().rule_class(name)) or "single operators"

    return told


def _spread(found: list[float]) -> list[str]:
    if not found:
        return ["", "", ""]
    return [f"{value:.2f}" for value in (min(found), median(found), max(found))]


def _worst(rows: list[Row]) -> str:
    slow = sorted((row for row in rows if below(row) > _SLOW), key=below, reverse=True)
    table = []
    for row in slow:
        answer = f"{', '.join(row['passes'])}: {row['ratio']:.2f}" if "ratio" in row else _reason(row)
        name = row["case"] if len(row["case"]) < _LONGEST else f"{row['case'][:_LONGEST]}..."
        table.append(
            (row["operator"], f"`{name}`", f"{row['us']:.0f}", f"{row['limit']:.0f}", f"{below(row):.0f}", answer)
        )
    titles = ("operator", "case", "us", "limit", "times below", "other form, times as fast")
    return "### What runs far below the machine\n\n" + grid(titles, table)


def _reason(row: Row) -> str:
    found = row.get("reasons") or []
    return found[0].partition(": ")[2] if found else REASONS.get(row["operator"], "none is known")


_FUNCTION = "a function for each element, and no operator computes it otherwise"
REASONS = {
    **dict.fromkeys(("Atan", "Cos", "Log", "Sin", "Tan", "Mod", "Sign", "Shrink"), _FUNCTION),
    "Pad": "slices, gathers and products are slower",
    "ConvTranspose": "in blocks at level all; phases and shuffles in NCHW are slower",
    "Conv": "in blocks at level all",
    "Transpose": "it moves one axis, or whole rows",
    "ReduceProd": "networks multiply shapes so, and nothing longer",
    "TopK": "sorting is the work",
    "Where": "two values, of which each element is one",
    "InstanceNormalization": "every other form is slower",
}
"""Why operators have no other form."""
