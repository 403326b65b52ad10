"""Packages as pip would install them, without a network or a build backend."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

GROUP = "graphopt.passes"


def register(site: Path, name: str, entries: dict[str, str]) -> None:
    """Write what pip writes of a package into a folder of the path: its name and its entry points."""
    info = site / f"{name.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    lines = [f"{entry} = {place}\n" for entry, place in entries.items()]
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n" + "".join(lines))


def install(project: Path, site: Path) -> None:
    """What `pip install -e` registers of a project; its `src` must be on the path besides."""
    stated = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    register(site, stated["name"], stated["entry-points"][GROUP])


def run(
    command: list[str], *paths: Path, folder: Path | None = None, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run Python with folders on its path."""
    path = os.pathsep.join([*map(str, paths), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "100", **settings}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, cwd=folder, env=environment, check=False
    )
