"""The fixed costs of graphopt: an installation into an empty environment, an import, a command.

`python -m benchmarks footprint` writes `docs/footprint.md`. Commands are timed as processes: the least CPU seconds of
interleaved rounds, so that other work on the machine matters little.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

from benchmarks.results import HERE, load, save
from benchmarks.table import grid

PAGE = HERE.parent / "docs" / "footprint.md"
_WANTED = {"graphopt": [], "graphopt[ort]": ["ort"], "graphopt[all]": ["all"]}
_PEERS = ("onnxoptimizer", "onnxslim", "onnxsim", "onnxscript")
_PIP = ["-m", "pip", "-q", "--disable-pip-version-check"]


def run(rounds: int, *, install: bool = True) -> None:
    """Measure, store the figures and write the page; the installation takes minutes and may be left out."""
    found = (load("footprint") or {"data": {}})["data"]
    if install:
        found["install"] = _installations()
    found["start"] = _starts(rounds)
    save("footprint", found)
    write()


def _installations() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        built = ["wheel", "--no-deps", "--no-build-isolation", "-w", folder, str(HERE.parent)]
        subprocess.run([sys.executable, *_PIP, *built], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        wanted = {name: f"{wheel}[{','.join(extras)}]" if extras else str(wheel) for name, extras in _WANTED.items()}
        return [_installed(name, what) for name, what in (wanted | {peer: peer for peer in _PEERS}).items()]


def _installed(name: str, what: str) -> dict[str, Any]:
    """Packages, size and seconds of an installation into an empty environment, including bytecode."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=False, symlinks=True)
        python = Path(folder, "bin", "python")
        started = time.perf_counter()
        subprocess.run([sys.executable, *_PIP, "--python", str(python), "install", what], check=True)
        seconds = time.perf_counter() - started
        (packages,) = Path(folder, "lib").glob("python*/site-packages")
        files = [file for file in packages.rglob("*") if file.is_file()]
        return {
            "name": name,
            "packages": len(list(packages.glob("*.dist-info"))),
            "files": len(files),
            "bytes": sum(file.stat().st_size for file in files),
            "seconds": seconds,
        }


def _starts(rounds: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        mobile, tiny, out = (str(Path(folder, name)) for name in ("mobilenet_v2.onnx", "tiny.onnx", "out.onnx"))
        _tiny(tiny)
        _python("-m", "graphopt", "demo", "mobilenet_v2", "--write", mobile)
        commands = {("import", name): ("-c", f"import {name}") for name in ("graphopt", "onnx", *_PEERS)}
        for title, model in (("3 nodes", tiny), ("MobileNetV2", mobile)):
            commands[title, "graphopt"] = ("-m", "graphopt", "optimize", "-q", model, out)
            commands[title, "onnxoptimizer"] = ("-m", "onnxoptimizer", model, out)
            commands[title, "onnxslim"] = ("-m", "onnxslim", model, out)
            commands[title, "onnxsim"] = ("-m", "onnxsim", model, out)
        # Use bytecode as pip writes it on installation, whatever this environment's settings.
        cache = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(folder, "bytecode"))}
        cache.pop("PYTHONDONTWRITEBYTECODE", None)
        for command in commands.values():
            _python(*command, environment=cache)
        least = dict.fromkeys(commands, float("inf"))
        for _ in range(rounds):
            for key, command in commands.items():
                least[key] = min(least[key], _python(*command, environment=cache))
    return [{"what": what, "tool": tool, "seconds": seconds} for (what, tool), seconds in least.items()]


def _tiny(path: str) -> None:
    import onnx

    text = '<ir_version: 9, opset_import: ["" : 17]> g (float[2, 4] x) => (float[2, 4] y) '
    onnx.save(onnx.parser.parse_model(text + "{ a = Identity(x)  b = Relu(a)  y = Relu(b) }"), path)


def _python(*words: str, environment: dict[str, str] | None = None) -> float:
    """CPU seconds of a Python process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def write() -> None:
    """Write the page from the stored figures."""
    kept = load("footprint")
    assert kept is not None
    machine, found = kept["machine"], kept["data"]
    versions = ", ".join(f"{name} {machine['packages'][name]}" for name in ("onnx", "numpy", *_PEERS))
    rows = [
        (
            f"`pip install {each['name']}`",
            str(each["packages"]),
            f"{each['files']:,}",
            f"{each['bytes'] / 1e6:.0f}",
            f"{each['seconds']:.0f}",
        )
        for each in found["install"]
    ]
    whats = list(dict.fromkeys(each["what"] for each in found["start"]))
    tools = list(dict.fromkeys(each["tool"] for each in found["start"]))
    seconds = {(each["what"], each["tool"]): each["seconds"] for each in found["start"]}
    starts = [
        (tool, *(f"{seconds[what, tool]:.2f}" if (what, tool) in seconds else "" for what in whats)) for tool in tools
    ]
    text = f"""# Size and start-up time

Written by `python -m benchmarks footprint` on {machine["processor"]}, Python {machine["python"]}, {machine["day"]}:
{versions}.

## Installation into an empty environment

Packages, files and megabytes in `site-packages` after the installation, including dependencies, and seconds of
`pip install` from local packages on a busy machine.

{grid(("", "packages", "files", "MB", "s"), rows)}

## Start-up

CPU seconds of whole processes, the minimum of interleaved rounds, with compiled bytecode as after an installation: the
import alone, then the command from file to file on a model of three nodes and on the demo's MobileNetV2 (242 nodes,
14 MB). The machine was busy, so compare these times within the table only, not with other pages.

The command imports only the parts of onnx that it needs, and exits without freeing all objects
(`graphopt.cli.lifetime`). A program that imports graphopt as a library imports all of onnx.

{grid(("", *(what if what == "import" else f"command, {what}" for what in whats)), starts)}
"""
    PAGE.write_text(text)
