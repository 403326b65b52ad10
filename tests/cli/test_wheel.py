"""The wheel in an environment that holds what it declares to need and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import onnx

ROOT = Path(__file__).parents[2]


def needed(names: list[str]) -> set[str]:
    """The distributions named and what they depend on, extras left out."""
    found: set[str] = set()
    while names:
        name = re.split(r"[^\w.-]", names.pop())[0]
        if name.lower() not in found:
            found.add(name.lower())
            names += [each for each in metadata.requires(name) or [] if ";" not in each]
    return found


def lend(folder: Path, names: set[str]) -> None:
    """Link installed distributions into a folder of packages, as an installation from a registry would put them."""
    for name in names:
        for file in metadata.files(name) or []:
            top = file.parts[0]
            if top not in {"..", "__pycache__"} and not (folder / top).is_symlink():
                (folder / top).symlink_to(Path(str(metadata.distribution(name).locate_file(top))))


def test_the_wheel_runs_where_only_its_dependencies_are(tmp_path: Path, model_file: Path) -> None:
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    built = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(tmp_path), str(ROOT)]
    subprocess.run([*pip, *built], check=True, timeout=300)
    (wheel,) = tmp_path.glob("graphopt-*.whl")
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run(
        [*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)], check=True, timeout=300
    )
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (info,) = packages.glob("graphopt-*.dist-info")
    declared = metadata.PathDistribution(info).requires or []
    lend(packages, needed([each for each in declared if "extra ==" not in each]))
    command = python.with_name("graphopt")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [command, *map(str, words)],
            env=clean,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    done = run("optimize", model_file, tmp_path / "out.onnx", "--level", "all")
    assert done.returncode == 0, done.stderr
    assert [node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node] == ["MatMul", "Relu"]
    assert "## Example" in run("passes", "eliminate_identity", "--markdown").stdout  # golden cases came along
    missing = run("verify", model_file, tmp_path / "out.onnx")
    assert missing.returncode == 2
    assert "pip install 'graphopt[ort]'" in missing.stderr
