"""Peers and functions that misbehave, each in its own way; run in children only."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from graphopt.fuzzing.working import FuzzSettings, serve
from graphopt.peers import Peer, worker
from graphopt.system import child

HOLD = "import time; time.sleep(120)"


def leave(path: str, text: str = "") -> None:
    Path(path).write_text(text or str(os.getpid()))


def daemon(path: str) -> None:
    """Start what leaves its parent, its session and its streams behind, and writes down its number."""
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.closerange(0, 64)
    leave(path)
    time.sleep(120)
    os._exit(0)


def wait_for(*paths: str, seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not all(Path(path).is_file() and Path(path).read_text() for path in paths) and time.monotonic() < until:
        time.sleep(0.01)


def family(folder: str) -> None:
    """A child, a session of its own, and a daemon; then nothing happens any more."""
    place = Path(folder)
    subprocess.Popen([sys.executable, "-c", HOLD], start_new_session=True)
    daemon(f"{folder}/daemon")
    wait_for(f"{folder}/daemon")
    leave(str(place / "self"))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(120)


def orphans(folder: str) -> int:
    """Return at once, and leave a daemon behind."""
    daemon(f"{folder}/daemon")
    wait_for(f"{folder}/daemon")
    return 7


def flood(stream: int, seconds: float) -> None:
    """Print as fast as it goes."""
    piece, until = b"x" * 65536, time.monotonic() + seconds
    while time.monotonic() < until:
        os.write(stream, piece)


def say(text: str) -> None:
    """Write something else than an answer to where answers go."""
    child._send(text)
    time.sleep(120)


def chatter() -> None:
    """Answer, and never come to an end."""
    while True:
        child.tell(stage="work")


def spoil_result() -> None:
    """Leave garbage where the result goes, as if done."""
    Path(sys.argv[1], child.RESULT).write_bytes(b"\x80\x04garbage")
    child._send(child.FINISHED)
    time.sleep(120)


def fill(folder: str, files: int, size: int) -> None:
    """Fill a disk."""
    for number in range(files):
        with (Path(folder) / f"f{number}").open("wb") as file:
            file.write(b"\1" * size)
    time.sleep(120)


def eat() -> None:
    """Eat memory, in a grandchild."""
    subprocess.run(
        [sys.executable, "-c", "b = bytearray(1 << 29)\nfor i in range(0, len(b), 4096): b[i] = 1\n" + HOLD],
        check=False,
    )


def kill_guard() -> None:
    """Kill what watches over this process, from a session of its own."""
    if os.fork():
        time.sleep(120)
    os.setsid()
    guard = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(guard, signal.SIGSTOP)  # otherwise it might see first that what it watches has stopped
    os.kill(os.getppid(), signal.SIGSTOP)
    os.kill(guard, signal.SIGKILL)
    time.sleep(120)


def end_streams() -> None:
    """Close all that is open and go on."""
    os.closerange(0, 64)
    time.sleep(120)


class Misbehaving(Peer):
    """A peer that is there, and does as its name says."""

    name = "misbehaving"
    distribution = "onnx"

    def __init__(self, way: str, place: str = "") -> None:
        super().__init__()
        self.way, self.place = way, place

    def load(self) -> None:
        if self.way == "import":
            os.kill(os.getpid(), signal.SIGSEGV)

    def list_passes(self) -> list[str]:
        if self.way == "garbage list":
            return {"a": 1}  # type: ignore[return-value]
        return ["good", self.way]

    def run_one(self, src: str, dst: str, pass_name: str) -> None:
        shutil.copy(src, dst) if pass_name in ("good", "") else self.optimize(src, dst)

    def optimize(self, src: str, dst: str) -> None:
        getattr(self, self.way.replace(" ", "_"), self.good)(src, dst)

    def segfault(self, src: str, dst: str) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    def assertion(self, src: str, dst: str) -> None:
        sys.stderr.write("Warning: old\nx.h:1: Assertion `ok` failed.\n")
        sys.stderr.flush()
        os.abort()

    def exit_three(self, src: str, dst: str) -> None:
        os._exit(3)

    def sleep(self, src: str, dst: str) -> None:
        time.sleep(60)

    def unloadable(self, src: str, dst: str) -> None:
        """What it writes ends whoever loads it."""
        self.good(src, dst)
        worker._objection = lambda *_: os.kill(os.getpid(), signal.SIGSEGV)  # type: ignore[assignment]

    def slow_to_load(self, src: str, dst: str) -> None:
        self.good(src, dst)
        worker._objection = lambda *_: time.sleep(2.5)  # type: ignore[assignment,func-returns-value]

    def noise(self, src: str, dst: str) -> None:
        sys.stdout.write("noise on standard output\n")
        self.good(src, dst)

    def lazy(self, src: str, dst: str) -> None:
        pass

    def raises(self, src: str, dst: str) -> None:
        raise KeyError("no such value")

    def data(self, src: str, dst: str) -> None:
        self.good(src, dst)
        Path(dst).with_name("some-uuid").write_bytes(b"d")

    def good(self, src: str, dst: str) -> None:
        shutil.copy(src, dst)

    def garbage(self, src: str, dst: str) -> None:
        self.good(src, dst)
        say("\x00\xff{]")

    def truncated(self, src: str, dst: str) -> None:
        self.good(src, dst)
        say('{"status": "ok", "fini')

    def huge(self, src: str, dst: str) -> None:
        self.good(src, dst)
        say('{"message": "' + "x" * (64 << 20) + '"}')

    def deep(self, src: str, dst: str) -> None:
        say("[" * 100_000)

    def lies(self, src: str, dst: str) -> None:
        say('{"status": ["ok"], "finished": true, "seconds": "soon", "message": {}}')

    def lies_alone(self, src: str, dst: str) -> None:
        child.tell(status=3, finished=True, seconds="soon")
        os._exit(0)

    def family(self, src: str, dst: str) -> None:
        family(self.place)

    def fill(self, src: str, dst: str) -> None:
        fill(str(Path(dst).parent), 64, 1 << 20)

    def stderr(self, src: str, dst: str) -> None:
        flood(2, 1.0)
        self.good(src, dst)

    def stdout(self, src: str, dst: str) -> None:
        flood(1, 1.0)
        self.good(src, dst)

    def stop(self, src: str, dst: str) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def streams(self, src: str, dst: str) -> None:
        end_streams()

    def eat(self, src: str, dst: str) -> None:
        eat()

    def leaves(self, src: str, dst: str) -> None:
        os._exit(0)

    def pipe(self, src: str, dst: str) -> None:
        os.mkfifo(dst)

    def link(self, src: str, dst: str) -> None:
        os.symlink("/etc/passwd", dst)

    def device(self, src: str, dst: str) -> None:
        os.symlink("/dev/zero", dst)

    def folder(self, src: str, dst: str) -> None:
        os.mkdir(dst)

    def beside(self, src: str, dst: str) -> None:
        self.good(src, dst)
        os.mkfifo(dst + ".data")

    def thief(self, src: str, dst: str) -> None:
        self.good(src, dst)
        (Path(dst).parent / Path(src).name).write_bytes(b"stolen")

    def cwd(self, src: str, dst: str) -> None:
        """Remove everything in the folder that it runs in, and that folder."""
        shutil.rmtree(os.getcwd(), ignore_errors=True)
        self.good(src, dst)

    def exits(self, src: str, dst: str) -> None:
        raise SystemExit("enough")

    def interrupts(self, src: str, dst: str) -> None:
        with contextlib.suppress(AttributeError):
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(120)


def heed_signals() -> None:
    """Heed what ends a process, also where whoever runs the tests ignores it, as `nohup` and `&` in scripts do."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Wrong(Peer):
    """A peer that is wrong in one of its passes: it folds a zero Pad into MaxPool, which pads with minus infinity."""

    name = "wrong"
    distribution = "onnx"

    def load(self) -> None:
        import onnx  # noqa: F401

    def list_passes(self) -> list[str]:
        return ["drop_identity", "fold_pad", "nothing"]

    def optimize(self, src: str, dst: str) -> None:
        self.run_one(src, dst, "fold_pad")

    def run_one(self, src: str, dst: str, pass_name: str) -> None:
        import onnx

        model = onnx.load(src)
        for node in list(model.graph.node):
            readers = [other for other in model.graph.node if node.output[0] in other.input]
            if pass_name == "drop_identity" and node.op_type == "Identity":
                self.bypass(model, node, readers)
            if pass_name == "fold_pad" and node.op_type == "Pad" and [r.op_type for r in readers] == ["MaxPool"]:
                readers[0].attribute.append(onnx.helper.make_attribute("pads", [1, 1, 1, 1]))
                self.bypass(model, node, readers)
        onnx.save(model, dst)

    def bypass(self, model, node, readers) -> None:
        for reader in readers:
            reader.input[:] = [node.input[0] if name == node.output[0] else name for name in reader.input]
        model.graph.node.remove(node)


def serve_unless_first(settings: FuzzSettings) -> None:
    """A process of a fuzzing session; the first one is killed, as by a system that runs out of memory."""
    place = Path(os.environ["KILLED_ONCE"])
    if not place.exists():
        place.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    serve(settings)
