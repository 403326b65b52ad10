"""What extreme graphs cost grows with their size and not faster: lines run, attempts, events and bytes, never seconds."""

from __future__ import annotations

import sys
import tracemalloc
from dataclasses import dataclass
from types import FrameType
from typing import Any

import onnx
import pytest

from benchmarks.growth import FAMILIES, MOST, build
from graphopt import PassManager
from graphopt.ir import Graph, order
from graphopt.results import Result
from graphopt.rewrite.journal import Journal

SIZE = 150


@dataclass
class Cost:
    """What a run came to.

    Attributes:
        lines: lines of Python run, each round of a loop or comprehension counted.
        attempts: how often rules were asked.
        events: rewrites.
        undo: the longest log of undo entries.
        bytes: the most memory at a time.
    """

    lines: int
    attempts: int
    events: int
    undo: int
    bytes: int


class Counter:
    """Counts the lines that run below a call."""

    def __init__(self) -> None:
        self.lines = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Counter:
        self.lines += event == "line"
        return self


def cost(family: str, size: int, level: str, monkeypatch: pytest.MonkeyPatch) -> Cost:
    model = build(family, size)
    onnx.checker.check_model(model)
    lengths = [0]
    forget = Journal.forget

    def noted(journal: Journal) -> None:
        lengths.append(len(journal.log))
        forget(journal)

    manager = PassManager(level, target="avx2", strict=True)
    tracemalloc.start()
    found: Result = manager.run(model)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    counter = Counter()
    before = sys.gettrace()
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "forget", noted)
        sys.settrace(counter)
        try:
            manager.run(model)
        finally:
            sys.settrace(before)
    attempts = sum(stats.attempts for stats in found.stats.values())
    return Cost(counter.lines, attempts, len(found.events), max(lengths), peak)


@pytest.mark.parametrize("level", ["basic", "all"])
@pytest.mark.parametrize("family", FAMILIES)
def test_twice_the_size_costs_about_twice_as_much(family: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PassManager(level, target="avx2").run(build(family, 12))  # what is made once is made now
    small, large = (cost(family, size, level, monkeypatch) for size in (SIZE, 2 * SIZE))
    for name in ("lines", "attempts", "events", "undo", "bytes"):
        few, many = getattr(small, name), getattr(large, name)
        if name == "bytes" and many > MOST * few:
            # A table of the interpreter's own, as that of interned strings, may have grown by megabytes just then.
            many = min(many, cost(family, 2 * SIZE, level, monkeypatch).bytes)
        assert many <= MOST * max(few, 100), f"{name}: {few} at {SIZE}, {many} at {2 * SIZE}"


def test_many_nodes_in_front_of_one_are_seldom_numbered_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    model, made = build("squeezed parts", 1000), []
    renumber = order.renumber

    def noted(graph: Graph) -> None:
        made.append(graph)
        renumber(graph)

    monkeypatch.setattr(order, "renumber", noted)
    result = PassManager(passes="convert_split_to_gathers", strict=True).run(model)
    assert len(result.model.graph.node) == 1001
    assert len(made) < 3
