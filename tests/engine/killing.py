"""Writers that are killed, and two at once: `python -m tests.engine.killing --kills 1000` says what was left.

A model's weights all hold one number, which is in its metadata, too. So whatever mixture of runs is on the disk tells.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graphopt.errors import ModelError
from graphopt.ir import ExternalData, Model
from graphopt.system.files import clear, is_temporary

MODES = ("content", "named", "inline", "mixed", "in place")
_LAYOUTS: dict[str, ExternalData | None] = {
    "content": ExternalData(threshold=0), "named": ExternalData("w.bin", threshold=0), "inline": None,
}  # fmt: skip
_TENSORS, _ELEMENTS = 4, 1 << 13


def numbered(number: int) -> onnx.ModelProto:
    """A chain of Add; every weight holds the number."""
    names = ["x", *(f"v{i}" for i in range(_TENSORS - 1)), "y"]
    nodes = [helper.make_node("Add", [names[i], f"w{i}"], [names[i + 1]]) for i in range(_TENSORS)]
    weights = [numpy_helper.from_array(np.full(_ELEMENTS, number, np.float32), f"w{i}") for i in range(_TENSORS)]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [_ELEMENTS]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model.metadata_props.add(key="number", value=str(number))
    return model


def number_of(path: Path) -> int:
    """The number that a model holds everywhere; an error where its parts do not fit."""
    model = onnx.load(path)
    (stated,) = [entry.value for entry in model.metadata_props if entry.key == "number"]
    found = {float(each) for tensor in model.graph.initializer for each in np.unique(numpy_helper.to_array(tensor))}
    if found != {float(stated)}:
        raise AssertionError(f"{path} says {stated} and has weights {sorted(found)}")
    return int(stated)


def write(path: Path, mode: str, number: int) -> None:
    """Write the model of a number; `in place` changes the one that is there as `optimize` over itself does."""
    if mode == "in place":
        model = Model.load(path)
        model.graph.changed = True
        model.save(path)
        return
    layout = random.choice(list(_LAYOUTS)) if mode == "mixed" else mode
    Model.load(numbered(number)).save(path, _LAYOUTS[layout])


def _die_at(call: int) -> None:
    """Let this process be killed right before it renames, syncs, opens or removes a file for the n-th time."""
    calls = itertools.count(1)

    def deadly(function: Callable[..., object]) -> Callable[..., object]:
        def run(*args: object, **settings: object) -> object:
            if next(calls) == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **settings)

        return run

    for name in ("replace", "fsync", "open", "unlink"):
        setattr(os, name, deadly(getattr(os, name)))


def _forked(work: Callable[[], None], die_at: int | None = None) -> int:
    process = os.fork()
    if not process:
        with contextlib.suppress(KeyboardInterrupt):
            try:
                if die_at is not None:
                    _die_at(die_at)
                clear.cache_clear()
                random.seed(os.getpid())
                work()
            except BaseException as error:
                sys.stderr.write(f"{type(error).__name__}: {error}\n")
                os._exit(1)
        os._exit(0)
    return process


def _writing(path: Path, mode: str, rounds: int | None) -> Callable[[], None]:
    def work() -> None:
        number = 0
        while rounds is None or number < rounds:
            number += 1
            # Two that change the same model in place may find that it is another one by now, and say so.
            with contextlib.suppress(*([ModelError] if mode == "in place" else [])):
                write(path, mode, number)

    return work


def _tidy(folder: Path, path: Path) -> None:
    """After one more run nothing is there but the model and what it refers to, or was asked for by name."""
    clear.cache_clear()
    write(path, "content", 1000)
    number_of(path)
    model = onnx.load(path, load_external_data=False)
    known = {
        entry.value for tensor in model.graph.initializer for entry in tensor.external_data if entry.key == "location"
    }
    left = {each.name for each in folder.iterdir()} - known - {path.name, "w.bin"}
    if left:
        raise AssertionError(f"left behind: {sorted(left)}")


def kill(folder: Path, mode: str, kills: int, writers: int = 1, seed: int = 0) -> Counter[str]:
    """Kill writers; what was found on the disk, counted. Raises where parts do not fit.

    Half of them die at a random moment, half right before a random one of the steps that matter.
    """
    path, found, chance = folder / "m.onnx", Counter[str](), random.Random(seed)
    write(path, "content", 7)
    for number in range(kills):
        aimed = number % 2 == 0
        others = [
            _forked(_writing(path, mode, None), chance.randrange(1, 60) if aimed else None) for _ in range(writers)
        ]
        if not aimed:
            time.sleep(chance.uniform(0.0, 0.06))
            for process in others:
                os.kill(process, signal.SIGKILL)
        for process in others:
            _, status = os.waitpid(process, 0)
            if not os.WIFSIGNALED(status):
                raise AssertionError("a writer failed")
        number_of(path)
        found["fits"] += 1
        found["files under way"] += sum(is_temporary(each.name) for each in folder.iterdir())
        found["data of no model"] += sum(each.suffix == ".data" for each in folder.iterdir()) > 1
        if number % 10 == 9:
            _tidy(folder, path)
    _tidy(folder, path)
    return found


def race(folder: Path, mode: str, rounds: int, writers: int = 2) -> Counter[str]:
    """Let writers write the same model, all to the end, while this process reads it; what it read, counted."""
    path, found = folder / "m.onnx", Counter[str]()
    write(path, "content", 7)
    others = {_forked(_writing(path, mode, rounds)) for _ in range(writers)}
    while others:
        if mode not in ("named", "mixed"):  # a name that is used again shows a reader one model and the next one's data
            try:
                number_of(path)
                found["read"] += 1
            except (OSError, ValueError, onnx.checker.ValidationError):
                found["replaced while reading"] += 1
            except RuntimeError as error:
                if "filesystem error" not in str(error):  # how onnx says that a file has gone
                    raise
                found["replaced while reading"] += 1
        process, status = os.waitpid(-1, os.WNOHANG)
        if process:
            others.discard(process)
            if status:
                raise AssertionError("a writer failed")
    number_of(path)
    _tidy(folder, path)
    return found


def main() -> None:
    """Count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200)
    given = parser.parse_args()
    for mode in MODES:
        for writers in (1, 2):
            started = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                found = kill(Path(folder), mode, given.kills // (2 * len(MODES)), writers)
            sys.stdout.write(
                f"killed, {mode}, {writers} at once: {dict(found)} in {time.perf_counter() - started:.1f} s\n"
            )
        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.write(f"two writers, {mode}: {dict(race(Path(folder), mode, given.rounds))}\n")


if __name__ == "__main__":
    main()
