"""Every command on thousands of hostile files: `python -m tests.hostile.suite --files 2600`.

Each command on each file runs in a process of its own, forked from one that has everything imported, with limits on
memory and time. Whatever happens, it must end with an exit code of the documented ones, at most one line on standard
error, no file that nobody asked for, and files that were there before as they were.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

MEMORY = 3 << 29
"""Bytes of address space that a command may take beyond what imports take."""

SECONDS = 20
PEAK = 1 << 30
"""Bytes that no command may have resident for files of at most some hundred kilobytes."""

PRECIOUS = b"precious"
CODES = frozenset({0, 1, 2, 3, 4})

COMMANDS: dict[str, tuple[str, ...]] = {
    "optimize basic": ("optimize", "model.onnx", "basic.onnx"),
    "optimize extended": ("optimize", "model.onnx", "out/extended.onnx", "--level", "extended", "--events"),
    "optimize layout": ("optimize", "model.onnx", "out/layout.onnx", "--level", "layout", "--inline-functions", "--json"),
    "optimize all": ("optimize", "model.onnx", "existing.onnx", "--level", "all"),
    "diff": ("diff", "model.onnx", "basic.onnx"),
    "verify": ("verify", "model.onnx", "basic.onnx", "--timeout", "10"),
    "explain": ("explain", "model.onnx"),
    "explain html": ("explain", "model.onnx", "--html", "report.html"),
    "layout": ("layout", "model.onnx"),
}  # fmt: skip
"""Each works on `model.onnx`; those that compare look at what `optimize` gave, or at the model itself."""

RARE: dict[str, tuple[str, ...]] = {
    "optimize and verify": ("optimize", "model.onnx", "out/verified.onnx", "--verify", "--quiet"),
    "optimize external": ("optimize", "model.onnx", "out/outside.onnx", "--external-data", "auto"),
    "bisect": ("bisect", "model.onnx", "--output", "fault.onnx"),
    "audit": ("audit", "model.onnx", "--against", "none", "--level", "all", "--budget", "0", "--rounds", "1", "--timeout", "10", "--html", "audit.html"),
    "profile": ("profile", "model.onnx", "--only", "denormals", "--budget", "0", "--top", "0", "--rounds", "2"),
}  # fmt: skip
"""What starts processes, or takes longer: on some of the files."""

RUNNING = frozenset({"verify", "optimize and verify", "bisect", "audit", "profile"})
"""Those that run the model: what it asks for of memory is its own affair, within the limits."""

UNLIMITED = frozenset({"optimize and verify", "bisect", "profile"})

ASKED = {
    "optimize basic": {"basic.onnx", "basic.onnx.data"}, "optimize all": {"existing.onnx", "existing.onnx.data"},
    "explain html": {"report.html"}, "audit": {"audit.html"}, "bisect": {"fault.onnx"},
}  # fmt: skip


@dataclass(slots=True)
class Outcome:
    """What became of a command on a file.

    Attributes:
        file: the file's name and what it is.
        command: a key of `COMMANDS` or `RARE`.
        code: the exit code; negative for a signal.
        seconds: how long it took.
        peak: the most bytes it had resident.
        faults: what it must not do and did.
        line: what it said on standard error.
    """

    file: str
    command: str
    code: int
    seconds: float
    peak: int
    faults: list[str] = field(default_factory=list)
    line: str = ""


def files(seed: int, count: int, wanted: Container[int]) -> Iterator[tuple[int, str, bytes]]:
    """Bombs, deep files and mutations, in an order that any part has some of each.

    Args:
        seed: of all of them.
        count: how many there are.
        wanted: the numbers of those to give; only these are made.
    """
    from tests.hostile import models
    from tests.hostile.bombs import bombs
    from tests.hostile.mutations import deep, mutated

    fixed: list[tuple[str, Callable[[], bytes]]] = [(f"bomb: {name}", make) for name, make in bombs()]
    fixed += [(f"growing: {name}", model.SerializeToString) for name, model in models.growing().items()]
    fixed += [(f"broken: {name}", model.SerializeToString) for name, model in models.broken().items()]
    fixed += deep()
    fixed.sort(key=lambda pair: hashlib.blake2b(f"{seed} {pair[0]}".encode()).digest())
    step = max(count // len(fixed), 2)
    for number in range(count):
        if number not in wanted:
            continue
        place, rest = divmod(number, step)
        if not rest and place < len(fixed):
            name, make = fixed[place]
            yield number, name, make()
        else:
            yield number, *mutated(seed * 1_000_003 + number)


def run_file(number: int, name: str, data: bytes, commands: Sequence[str]) -> Iterator[Outcome]:
    """What becomes of one file under each command."""
    with tempfile.TemporaryDirectory(prefix="hostile") as folder:
        place = Path(folder)
        (place / "model.onnx").write_bytes(data)
        (place / "weights.bin").write_bytes(bytes(range(256)))
        (place / "existing.onnx").write_bytes(PRECIOUS)
        (place / "existing.onnx.data").write_bytes(PRECIOUS)
        (place / "out").mkdir()
        for command in commands:
            arguments = {**COMMANDS, **RARE}[command]
            if not (place / "basic.onnx").exists():
                arguments = tuple(
                    "model.onnx" if a == "basic.onnx" and command != "optimize basic" else a for a in arguments
                )
            yield _run(f"{number} {name}", command, arguments, place, outside=b"weights.bin" in data)


def _run(file: str, command: str, arguments: Sequence[str], place: Path, *, outside: bool) -> Outcome:
    before = _contents(place)
    sys.stdout.flush()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.perf_counter()
        child = os.fork()
        if not child:
            _child(arguments, place, out.fileno(), err.fileno())
        status, used, late = _wait(child)
        seconds = time.perf_counter() - started
        out.seek(0)
        err.seek(0)
        said, shown = err.read().decode(errors="replace"), out.read()
    outcome = Outcome(file, command, os.waitstatus_to_exitcode(status), seconds, used.ru_maxrss * 1024)
    outcome.line = said.strip()[:2000]
    outcome.faults = list(_faults(outcome, command, said, shown))
    if late:
        outcome.faults.append(f"took more than {SECONDS} s")
    outcome.faults += _strays(before, _contents(place), command, outcome.code, outside=outside)
    return outcome


def _wait(child: int) -> tuple[int, resource.struct_rusage, bool]:
    deadline = time.monotonic() + SECONDS
    pause = 0.002
    while True:
        found, status, used = os.wait4(child, os.WNOHANG)
        if found:
            return status, used, False
        if time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            _, status, used = os.wait4(child, 0)
            return status, used, True
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def _child(arguments: Sequence[str], place: Path, out: int, err: int) -> None:
    """The command itself; does not return."""
    code = 99
    try:
        os.setpgid(0, 0)
        os.chdir(place)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.argv = ["graphopt", *arguments]
        from graphopt.cli import main

        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1 if end.code else 0
        except BaseException:
            traceback.print_exc()
            code = 98
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _faults(outcome: Outcome, command: str, said: str, shown: bytes) -> Iterator[str]:
    if outcome.code not in CODES:
        yield f"ended with {outcome.code}"
    if "Traceback" in said or b"Traceback" in shown:
        yield "traceback"
    if "bug" in said:
        yield "said to be a bug"
    if len(said.strip("\n").splitlines()) > 1:
        yield "more than one line"
    if b"failed at" in shown and b"undone" in shown:
        yield "a pass failed"
    if any(c in said.rstrip("\n") or c in shown.decode(errors="replace") for c in _ACTIVE):
        yield "control characters"
    if "MemoryError" in said or b"MemoryError" in shown:
        yield "out of memory"
    if outcome.peak > PEAK and command not in RUNNING:
        yield f"{outcome.peak >> 20} MiB"
    if "--json" in COMMANDS.get(command, ()) and outcome.code in (0, 1) and shown.strip():
        try:
            json.loads(shown)
        except ValueError:
            yield "no JSON"


_ACTIVE = ("\x1b", "\x9b", "\u202e", "\u2066", "\u2069", "\r", "\x07", "\0")


def _contents(place: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(place)): hashlib.blake2b(path.read_bytes()).digest()
        for path in place.rglob("*") if path.is_file()
    }  # fmt: skip


def _strays(before: dict[str, bytes], after: dict[str, bytes], command: str, code: int, *, outside: bool) -> list[str]:
    asked = ASKED.get(command, set())
    made = {name for name in after if name not in before and name not in asked and not name.startswith("out/")}
    made |= {name for name in after if name not in before and name.startswith("out/.")}
    if outside:  # weights that are in a file of their own stay in one
        made = {name for name in made if not name.endswith(".data")}
    faults = [f"left {name}" for name in sorted(made)]
    for name, digest in before.items():
        if after.get(name) != digest and not (name in asked and code == 0):
            faults.append(f"changed {name}")
    data = [name for name in after if name.endswith(".data") and name not in before]
    return faults if outside or command == "optimize external" else [*faults, *(f"made {name}" for name in data)]


def commands_of(number: int, rare: int, name: str) -> list[str]:
    """The commands for a file: all common ones, and for one in `rare` the others too.

    What runs a model without a limit on time is not asked to run one that may take hours for good reason.
    """
    more = [] if number % rare else [c for c in RARE if c not in UNLIMITED or not name.startswith(("bomb", "growing"))]
    return [*COMMANDS, *more]


def run(seed: int, numbers: Iterable[int], total: int, rare: int, commands: Sequence[str] = ()) -> Iterator[Outcome]:
    """The outcomes of some of the files.

    Args:
        seed: of the files.
        numbers: which of them.
        total: how many files there are.
        rare: every how many files the longer commands run too.
        commands: only these, whatever `rare` says.
    """
    _import()
    for number, name, data in files(seed, total, set(numbers)):
        yield from run_file(number, name, data, commands or commands_of(number, rare, name))


def _import() -> None:
    """What the commands need, imported and compiled before forking, so that each takes milliseconds."""
    from graphopt.cli import main
    from tests.hostile.mutations import seeds

    importlib.import_module("onnx.reference")
    kept = os.dup(1)
    with tempfile.TemporaryDirectory(prefix="hostile") as folder, Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        model = Path(folder, "model.onnx")
        model.write_bytes(seeds()[0].SerializeToString())
        for command in ("optimize all", "explain", "explain html", "diff", "layout"):
            names = {"model.onnx": str(model), "basic.onnx": str(model)}
            sys.argv = ["graphopt", *(names.get(a, f"{folder}/{a}" if "." in a else a) for a in COMMANDS[command])]
            with contextlib.suppress(SystemExit):
                main()
        sys.stdout.flush()
        os.dup2(kept, 1)
    os.close(kept)


def table(found: Sequence[Outcome]) -> str:
    """The outcomes by command."""
    lines = [
        "| command | runs | done | refused in one line | other codes | longest | most memory | faults |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for command in (*COMMANDS, *RARE):
        rows = [o for o in found if o.command == command]
        if rows:
            codes = Counter(o.code for o in rows)
            other = len(rows) - codes[0] - codes[1] - codes[3]
            lines.append(
                f"| {command} | {len(rows)} | {codes[0] + codes[1]} | {codes[3]} | {other} | {max(o.seconds for o in rows):.2f} s"
                f" | {max(o.peak for o in rows) >> 20} MiB | {sum(bool(o.faults) for o in rows)} |"
            )
    return "\n".join(lines)


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Run the suite and print the table, and every fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=2600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rare", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int)
    parser.add_argument("--every", type=int, default=1, help="only every so many of the files")
    parser.add_argument("--command", action="append", choices=(*COMMANDS, *RARE), help="only this; may be repeated")
    parser.add_argument("--log", type=Path, help="one line of JSON for each outcome")
    given = parser.parse_args()
    found = []
    with given.log.open("w") if given.log else contextlib.nullcontext() as log:
        numbers = range(given.first, given.last or given.files, given.every)
        for outcome in run(given.seed, numbers, given.files, given.rare, given.command or ()):
            found.append(outcome)
            if log:
                log.write(json.dumps(asdict(outcome)) + "\n")
                log.flush()
            if outcome.faults:
                say(f"{outcome.file} | {outcome.command} | {'; '.join(outcome.faults)} | {outcome.line[-300:]}")
    say(table(found))
    say(f"{len({o.file for o in found})} files, {len(found)} runs, {sum(bool(o.faults) for o in found)} with faults")
    sys.exit(any(o.faults for o in found))


if __name__ == "__main__":
    main()
