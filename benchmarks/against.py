"""The optimization time of this source tree and of another one, in two processes that alternate.

    git worktree add /tmp/old v0.1
    python -m benchmarks against /tmp/old

Both processes are warm: the figures are for a call after the first in one process. Each row has the fastest of its
rounds for both sides, in wall-clock and in CPU time, which a busy machine disturbs less.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import onnx

from benchmarks.results import geometric_mean
from benchmarks.skeleton import load_skeleton

HERE = Path(__file__).resolve().parent
MODELS = ("ts/mobilenetv2_100", "ts/resnet50", "dynamo/bert", "dynamo_raw/vit_tiny_patch16_224", "ts/yolo_pan")
LEVELS = ("basic", "extended", "all")
MODES = ("file", "memory")
_FEWEST = 3
"""The least number of rounds of a row, whatever their duration."""


def environment(tree: Path) -> dict[str, str]:
    """The environment of a process with the graphopt of a tree."""
    path = os.pathsep.join([str(tree / "src"), str(tree / "passes")])
    return {**os.environ, "PYTHONPATH": path, "GRAPHOPT_TUNED": "off"}


def optimized(tree: Path, model: onnx.ModelProto, level: str) -> onnx.ModelProto:
    """The result of a tree's graphopt on a model, in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        onnx.save(model, before)
        code = "import sys; from graphopt import optimize_file; optimize_file(*sys.argv[1:])"
        command = [sys.executable, "-P", "-c", code, str(before), str(after), level]
        subprocess.run(command, env=environment(tree), check=True, stdout=subprocess.DEVNULL)
        return onnx.load(after)


class Side:
    """A process that optimizes with the graphopt of one tree."""

    def __init__(self, tree: Path) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-P", str(HERE / "against_child.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(tree), text=True,
        )  # fmt: skip

    def __enter__(self) -> Side:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.terminate()
        self._child.wait()

    def measure(self, path: Path, level: str, mode: str) -> tuple[float, float]:
        """Seconds of one optimization, in wall-clock and CPU time.

        Raises:
            RuntimeError: the process ended; its error was printed.
        """
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        print(json.dumps([str(path), level, mode]), file=self._child.stdin, flush=True)
        answer = self._child.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process that optimizes {path.name} ended")
        clock, processor = json.loads(answer)
        return clock, processor


def pair(sides: Sequence[Side], path: Path, level: str, mode: str, budget: float) -> list[tuple[float, float]]:
    """The fastest times of both sides, which alternate until the budget of seconds is spent."""
    for side in sides:
        side.measure(path, level, mode)
    rounds: list[list[tuple[float, float]]] = []
    end = time.monotonic() + budget
    while len(rounds) < _FEWEST or time.monotonic() < end:
        turn = list(sides) if len(rounds) % 2 else list(reversed(sides))
        measured = {side: side.measure(path, level, mode) for side in turn}
        rounds.append([measured[side] for side in sides])
    return [(min(clock for clock, _ in side), min(cpu for _, cpu in side)) for side in zip(*rounds, strict=True)]


def run(
    tree: Path, keys: Sequence[str] | None, levels: Sequence[str] | None, modes: Sequence[str] | None, budget: float
) -> None:
    """Print a row for each model, level and mode, and the geometric mean of each level and mode."""
    chosen, means = tuple(keys or MODELS), dict[tuple[str, str], list[tuple[float, float]]]()
    print(f"{'':28} {'level':8} {'mode':6} {'old ms':>8} {'new ms':>8} {'ratio':>6} {'CPU old':>8} {'new':>8} ratio")
    with tempfile.TemporaryDirectory() as folder, Side(tree) as old, Side(HERE.parent) as new:
        for key in chosen:
            path = Path(folder) / f"{key.replace('/', '_')}.onnx"
            onnx.save(load_skeleton(key), path)
            for level in levels or LEVELS:
                for mode in modes or MODES:
                    one, two = pair((old, new), path, level, mode, budget)
                    ratio = two[0] / one[0], two[1] / one[1]
                    means.setdefault((level, mode), []).append(ratio)
                    times = [f"{1e3 * one[at]:8.1f} {1e3 * two[at]:8.1f} {ratio[at]:6.2f}" for at in range(2)]
                    print(f"{key:28} {level:8} {mode:6} {' '.join(times)}", flush=True)
    for (level, mode), ratios in means.items():
        clock, cpu = (geometric_mean([ratio[at] for ratio in ratios]) for at in range(2))
        print(f"{level:8} {mode:6} geometric mean of new / old: {clock:.2f} by the clock, {cpu:.2f} of the processor")
