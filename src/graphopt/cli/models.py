"""The models named on a command line."""

from __future__ import annotations

import os
from pathlib import Path

from graphopt.errors import ModelError


def model_files(names: list[str]) -> list[str]:
    """The named files, and the models in the named folders.

    Raises:
        ModelError: a folder holds no model.
    """
    files: list[str] = []
    for name in names:
        if not Path(name).is_dir():
            files.append(name)
            continue
        # Folders that vanish meanwhile or cannot be read contain no models.
        inside = sorted(
            str(Path(folder, file)) for folder, _, files in os.walk(name) for file in files if file.endswith(".onnx")
        )
        if not inside:
            raise ModelError(f"{name}: no .onnx file in this folder")
        files += inside
    return files
