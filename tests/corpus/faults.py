"""A run into which faults are injected, on a cluster of its own; `python -m tests.corpus.faults FOLDER` shows a table."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import psutil

from graphopt.audit.corpus import Record, Store
from graphopt.audit.corpus.report import campaign_of
from graphopt.errors import GraphoptError
from tests.corpus.models import endless, greedy, write

GOOD = 30
ALL = GOOD + 3
"""Models with contents of their own: the good ones, of which one has a copy, and three that cannot be audited."""
_PATIENCE = 240.0


@dataclass
class Scenario:
    """A folder of models, a cluster, and what was done to it.

    Attributes:
        folder: where all is.
        told: fault, and what happened, in order.
    """

    folder: Path
    told: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.models = write(self.folder / "models", GOOD)
        onnx.save(endless(), self.models / "endless.onnx")
        onnx.save(greedy(2), self.models / "greedy.onnx")
        (self.models / "corrupt.onnx").write_bytes((self.models / "m000.onnx").read_bytes()[:100])
        shutil.copy(self.models / "m001.onnx", self.models / "copy.onnx")
        self.store = self.folder / "store"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{free.getsockname()[1]}"

    # -- processes

    def scheduler(self) -> subprocess.Popen[bytes]:
        """A scheduler at the scenario's address."""
        port = self.address.rpartition(":")[2]
        return self._dask("scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard")

    def worker(self) -> subprocess.Popen[bytes]:
        """A worker with its nanny."""
        return self._dask("worker", self.address, "--nthreads", "1", "--no-dashboard", "--memory-limit", "0")

    def _dask(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", *words]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, start_new_session=True)

    def run(self, *more: str, **environment: str) -> subprocess.Popen[bytes]:
        """The command under test."""
        command = [
            sys.executable, "-m", "graphopt", "corpus", "run", str(self.models), "--store", str(self.store),
            "--no-latency", "--level", "basic", "--against", "none", "--timeout", "6", "--memory", "1", *more,
        ]  # fmt: skip
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, **environment},
        )  # fmt: skip

    # -- what the store has

    def records(self) -> dict[str, Record]:
        """All records by file name; nothing while there is no store."""
        try:
            with Store(self.store) as opened:
                return {Path(each.name).name: each for each in opened.records(campaign_of(opened))}
        except (GraphoptError, OSError):
            return {}

    def wait(self, what: Callable[[], bool]) -> None:
        """Wait until something holds."""
        until = time.monotonic() + _PATIENCE
        while not what():
            if time.monotonic() > until:
                raise TimeoutError("nothing happens any more")
            time.sleep(0.1)

    def wait_for(self, count: int) -> int:
        """Wait until so many records are there, or all that there will be; how many there are."""
        self.wait(lambda: len(self.records()) >= min(count, ALL))
        return len(self.records())


@contextmanager
def ending(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block, with all that it started."""
    try:
        yield process
    finally:
        family = []
        with suppress(psutil.Error):
            family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
        for each in family:
            with suppress(psutil.Error):
                each.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def kill_at_random(scenario: Scenario, workers: Sequence[subprocess.Popen[bytes]], times: int) -> str:
    """Kill one of the workers' processes, again and again, after a while and some records each time.

    It may be the one that works, the child that audits, or the nanny that starts both; a nanny's worker goes with it,
    and another one takes its place.
    """
    chance = random.Random(0)
    counts = []
    for _ in range(times):
        before = len(scenario.records())
        time.sleep(chance.uniform(0.2, 1.5))
        family = [child for worker in workers for child in psutil.Process(worker.pid).children(recursive=True)]
        if family:
            with suppress(psutil.Error):
                chance.choice(family).kill()
        counts.append(scenario.wait_for(before + 1))
    return f"{', '.join(map(str, counts))} records soon after each"


def inject(scenario: Scenario) -> None:
    """Everything that can go wrong, in one run after the other."""
    with ExitStack() as stack:
        scheduler = stack.enter_context(ending(scenario.scheduler()))
        workers = [stack.enter_context(ending(scenario.worker())) for _ in range(2)]
        run = stack.enter_context(ending(scenario.run("--scheduler", scenario.address)))
        scenario.wait_for(1)
        scenario.told.append(
            ("processes of workers killed at random, five times", kill_at_random(scenario, workers, 5))
        )
        before = len(scenario.records())
        killed = 0
        for worker in workers:
            for child in psutil.Process(worker.pid).children():
                child.kill()
                killed += 1
        after = scenario.wait_for(before + 3)
        scenario.told.append((f"{killed} processes of workers killed", f"{before} records then, {after} soon after"))
        scheduler.kill()
        for worker in workers:
            worker.kill()
        stack.enter_context(ending(scenario.scheduler()))
        for _ in range(2):
            stack.enter_context(ending(scenario.worker()))
        before, after = after, scenario.wait_for(after + 3)
        scenario.told.append(("scheduler killed, another started", f"{before} records then, {after} soon after"))
        for _ in range(2):
            run.send_signal(signal.SIGINT)
            time.sleep(0.3)
        run.wait(60)
        kept = len(scenario.records())
        scenario.told.append(("Ctrl-C twice", f"ended with code {run.returncode}, {kept} records kept"))
        again = stack.enter_context(ending(scenario.run("--scheduler", scenario.address)))
        said = again.communicate(timeout=_PATIENCE)[0].decode()
        scenario.told.append(("run again", said.strip().splitlines()[-1]))
    found = scenario.records()
    for name in ("endless.onnx", "greedy.onnx", "corrupt.onnx"):
        record = found[name]
        rows = [] if record.audit is None else record.audit["rows"]
        said = record.how or next((row["message"] for row in rows if row["tool"] == "graphopt"), "")
        scenario.told.append((name, f"{record.status}: {said[:100]}; tries: {list(record.tries)}"))


def fill_disk(scenario: Scenario, place: Path) -> None:
    """A run whose store is on a disk that fills up, then one with room.

    Args:
        scenario: of its own.
        place: a folder on a small disk.
    """
    scenario.store = place / "store"
    (place / "ballast").write_bytes(bytes(shutil.disk_usage(place).free - (200 << 10)))
    with ending(scenario.run("--scheduler", "none")) as full:
        said = full.communicate(timeout=_PATIENCE)[0].decode().strip().splitlines()[-1]
    kept = len(scenario.records())
    scenario.told.append(("disk of the store full", f"code {full.returncode}: {said}; {kept} records kept"))
    (place / "ballast").unlink()
    with ending(scenario.run("--scheduler", "none", "--jobs", "2")) as again:
        said = again.communicate(timeout=_PATIENCE)[0].decode().strip().splitlines()[-1]
    scenario.told.append(("run again with room", said))


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A disk of 1 MiB.

    Raises:
        PermissionError: only root mounts disks here.
    """
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True, check=False)
    if made.returncode:
        raise PermissionError(made.stderr.decode().strip())
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def main() -> None:
    """Show what happened."""
    scenario = Scenario(Path(sys.argv[1]).absolute())
    inject(scenario)
    with suppress(PermissionError), small_disk(scenario.folder / "small") as place:
        other = Scenario(scenario.folder / "disk")
        fill_disk(other, place)
        scenario.told += other.told
    sys.stdout.write("\n".join(f"| {fault} | {outcome} |" for fault, outcome in scenario.told) + "\n")
    sys.stdout.write(json.dumps({name: record.status for name, record in sorted(scenario.records().items())}) + "\n")


if __name__ == "__main__":
    main()
