"""Files: whole or not at all, into what a name leads to, and nothing stays of runs that were killed."""

from __future__ import annotations

import ast
import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from graphopt.errors import ModelError
from graphopt.system import files
from graphopt.system.files import Draft, clear, destination, is_temporary, scratch, write_text, written

ROOT = os.geteuid() == 0


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(autouse=True)
def _fresh() -> None:
    clear.cache_clear()


# -- what a name leads to


def test_a_new_file_and_an_old_one(tmp_path: Path) -> None:
    for text in ("first", "second, and longer", "3"):
        write_text(tmp_path / "f", text)
        assert (tmp_path / "f").read_text() == text
    assert names(tmp_path) == ["f"]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002, 0o000])
def test_a_new_file_has_the_rights_that_others_get(tmp_path: Path, umask: int) -> None:
    code = f"import os; os.umask({umask}); from graphopt.system.files import write_text; write_text('f', 'x'); open('g', 'w').close()"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == stat.S_IMODE((tmp_path / "g").stat().st_mode)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o4755, 0o666])
def test_rights_stay(tmp_path: Path, mode: int) -> None:
    (tmp_path / "f").write_text("old")
    (tmp_path / "f").chmod(mode)
    write_text(tmp_path / "f", "new")
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == mode


@pytest.mark.skipif(not ROOT, reason="only root gives files away")
def test_owners_stay(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    os.chown(tmp_path / "f", 12345, 54321)
    write_text(tmp_path / "f", "new")
    found = (tmp_path / "f").stat()
    assert (found.st_uid, found.st_gid) == (12345, 54321)


def test_the_umask_is_nobodys_business(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It belongs to the whole process: another thread's files would get the wrong rights meanwhile."""
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("touched"))
    write_text(tmp_path / "f", "x")
    write_text(tmp_path / "f", "y")


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "real").write_text("old")
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to(Path("there") / "real")
    write_text(tmp_path / "one", "new")
    assert (tmp_path / "there" / "real").read_text() == "new"
    assert (tmp_path / "one").is_symlink()
    assert (tmp_path / "two").is_symlink()
    assert names(tmp_path / "there") == ["real"]


def test_a_link_to_nothing_yet(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    (tmp_path / "lost").symlink_to(Path("nowhere") / "real")
    with pytest.raises(ModelError, match="folder .*nowhere not found"):
        write_text(tmp_path / "lost", "new")


@pytest.mark.parametrize(
    ("target", "words"), [("loop", "symbolic links"), (".", "it is a folder"), ("file/x", "ot a directory|not found")]
)
def test_links_to_what_cannot_be(tmp_path: Path, target: str, words: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to(target)
    with pytest.raises(ModelError, match=words):
        write_text(tmp_path / "loop", "x")
    assert names(tmp_path) == ["file", "loop"]


@pytest.mark.parametrize("link", [False, True])
def test_a_device_stays_a_device(tmp_path: Path, link: bool) -> None:
    path = Path(os.devnull)
    if link:
        path = tmp_path / "null"
        path.symlink_to(os.devnull)
    write_text(path, "x" * 100_000)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


@pytest.mark.skipif(not ROOT, reason="only root makes devices")
def test_devices_of_ones_own(tmp_path: Path) -> None:
    os.mknod(tmp_path / "null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    write_text(tmp_path / "null", "x")
    assert stat.S_ISCHR((tmp_path / "null").stat().st_mode)
    os.mknod(tmp_path / "disk", 0o600 | stat.S_IFBLK, os.makedev(7, 250))
    with pytest.raises(ModelError, match="it is a disk"):
        write_text(tmp_path / "disk", "x")
    assert names(tmp_path) == ["disk", "null"]


def test_a_full_device_is_an_error() -> None:
    with pytest.raises(ModelError, match="No space left"):
        write_text("/dev/full", "x" * 100_000)


@pytest.mark.parametrize("later", [False, True])
def test_a_pipe_is_written_into(tmp_path: Path, later: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    text = "x" * 300_000
    read: list[str] = []
    reader = threading.Timer(0.3 if later else 0.0, lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    write_text(tmp_path / "pipe", text)
    reader.join(20)
    assert read == [text]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_pipe_that_nobody_reads_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_READER_SECONDS", 0.1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelError, match="cannot write"):
        write_text(tmp_path / "pipe", "x")
    assert names(tmp_path) == ["pipe"]


def test_standard_output_by_name(tmp_path: Path) -> None:
    code = "from graphopt.system.files import write_text; write_text('/dev/stdout', 'x' * 200_000)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "x" * 200_000
    with (tmp_path / "gone").open("w+") as file:
        (tmp_path / "gone").unlink()
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
        assert file.seek(0, os.SEEK_END) == 200_000
    assert names(tmp_path) == []


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as held:
        held.bind("socket")
        with pytest.raises(ModelError, match="it is a socket"):
            write_text("socket", "x")


def as_nobody(code: str, folder: Path) -> str:
    """The last line of what a user without rights is told."""
    code = f"import os\nfrom graphopt.system.files import write_text\nos.setgid(65534); os.setuid(65534); os.chdir({str(folder)!r})\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip().splitlines()[-1]


@pytest.mark.skipif(not ROOT, reason="becomes another user")
def test_without_the_right_to_write(tmp_path: Path) -> None:
    place = Path("/tmp") / f"graphopt-test-{os.getpid()}"
    place.mkdir()
    try:
        place.chmod(0o755)
        code = "write_text('f', 'x')"
        assert as_nobody(code, place).endswith(f"cannot write f: folder {place} is read-only")
        (place / "f").write_text("old")
        place.chmod(0o777)
        assert as_nobody(code, place).endswith("cannot write f: it is read-only")
        assert (place / "f").read_text() == "old"
        assert names(place) == ["f"]
    finally:
        files.remove(place)


@pytest.mark.parametrize("error", [errno.EBUSY, errno.EXDEV])
def test_a_file_that_is_mounted_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    """It cannot be replaced, as in a container that is given one file; so its contents are."""
    (tmp_path / "f").write_text("old, and longer")

    def fail(*_: object) -> None:
        raise OSError(error, "busy")

    monkeypatch.setattr(os, "replace", fail)
    write_text(tmp_path / "f", "new")
    assert (tmp_path / "f").read_text() == "new"
    assert names(tmp_path) == ["f"]


# -- what goes wrong under way


@pytest.mark.parametrize("old", [None, "old"])
@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")]
)
def test_a_block_that_raises_leaves_what_was(tmp_path: Path, old: str | None, error: BaseException) -> None:
    if old is not None:
        (tmp_path / "f").write_text(old)

    def fail() -> None:
        with written(tmp_path / "f") as file:
            file.write(b"half")
            raise error

    with pytest.raises(ModelError if isinstance(error, Exception) else KeyboardInterrupt):
        fail()
    assert names(tmp_path) == ([] if old is None else ["f"])
    assert old is None or (tmp_path / "f").read_text() == old


def test_a_full_disk_leaves_what_was(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    code = (
        "import resource; from graphopt.system.files import write_text\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        f"write_text({str(tmp_path / 'f')!r}, 'x' * 100_000)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ModelError: cannot write" in done.stderr
    assert "File too large" in done.stderr
    assert (tmp_path / "f").read_text() == "old"
    assert names(tmp_path) == ["f"]


# -- what killed runs leave


KILLED = """
import os, signal, sys
from pathlib import Path
from graphopt.system.files import Draft, scratch
with scratch(Path.cwd()) as folder, Draft(Path.cwd() / "f") as draft:
    (folder / "sub").mkdir()
    (folder / "sub" / "x").write_text("x")
    draft.file.write(b"x" * 100000)
    draft.file.flush()
    print("ready", flush=True)
    sys.stdin.read() if len(sys.argv) > 1 else os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_next_run_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 2
    assert all(map(is_temporary, names(tmp_path)))
    write_text(tmp_path / "g", "x")
    assert names(tmp_path) == ["g"]


def test_a_folder_that_nobody_left_goes_when_python_ends(tmp_path: Path) -> None:
    """A program that leaves a `Source` open, say: its block ends when nothing can be imported any more."""
    text = "from pathlib import Path\nfrom graphopt.system.files import scratch\n"
    text += "held = scratch(Path.cwd()); (held.__enter__() / 'x').write_text('x')"
    done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stderr == ""
    assert names(tmp_path) == []


def test_what_a_living_run_has_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, "wait"], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        before = names(tmp_path)
        with scratch(tmp_path) as mine, Draft(destination(tmp_path / "g")) as draft:
            clear.cache_clear()
            clear(tmp_path)
            assert set(names(tmp_path)) == {*before, mine.name, draft.path.name}
        assert names(tmp_path) == before
        other.communicate(b"")
    assert other.returncode == 0
    assert names(tmp_path) == []


@pytest.mark.parametrize("when", ["made", "opened", "locked"])
def test_what_another_run_takes_for_abandoned_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Between its making and its lock a folder looks like one that a killed run left."""
    removed, others = [], []
    open_file, lock = os.open, files._lock

    def remove_first(path: Path) -> None:
        if not removed:
            removed.append(path)
            if when == "locked":  # the other one is about to remove it
                others.append(open_file(path, os.O_RDONLY))
                lock(others[0], files.fcntl.LOCK_EX)
            else:
                path.rmdir()

    def opening(path: Path, *more: int, **named: Any) -> int:
        if when == "made":
            remove_first(path)
        handle = open_file(path, *more, **named)
        if when != "made":
            remove_first(path)
        return handle

    files.clear(tmp_path)
    monkeypatch.setattr(files.os, "open", opening)
    with files.scratch(tmp_path) as folder:
        assert folder.is_dir()
        assert removed
        assert folder not in removed
    for each in others:
        os.close(each)


def test_files_of_somebody_else_are_left_alone(tmp_path: Path) -> None:
    theirs = [".graphopt-notes", ".graphopt-1-abc.tmp", ".graphopt-12-01234567.tmp.bak", "graphopt-12-01234567.tmp"]
    for name in theirs:
        (tmp_path / name).write_text("precious")
    (tmp_path / "real").write_text("precious")
    (tmp_path / ".graphopt-12-01234567.tmp").symlink_to("real")
    if ROOT:
        (tmp_path / ".graphopt-12-76543210.tmp").write_text("precious")
        os.chown(tmp_path / ".graphopt-12-76543210.tmp", 12345, 12345)
    before = names(tmp_path)
    clear(tmp_path)
    assert names(tmp_path) == before


def test_texts_are_read_and_written_in_one_encoding_everywhere() -> None:
    """Elsewhere than on Linux the locale's may be another: pages and cases would get other characters."""
    package = Path(files.__file__).parents[1]
    unstated = [
        f"{path.relative_to(package)}:{node.lineno}"
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("read_text", "write_text")
        and "encoding" not in {word.arg for word in node.keywords}
    ]
    assert unstated == []
