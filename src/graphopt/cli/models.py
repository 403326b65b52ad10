"""The models that a command line names."""

from __future__ import annotations

import os
from pathlib import Path

from graphopt.errors import ModelError


def model_files(names: list[str]) -> list[str]:
    """The files named, and those in the folders named.

    Raises:
        ModelError: a folder holds no model.
    """
    files: list[str] = []
    for name in names:
        if not Path(name).is_dir():
            files.append(name)
            continue
        # Folders may vanish meanwhile, or be closed to us: they hold no model for us then.
        inside = sorted(
            str(Path(folder, file)) for folder, _, files in os.walk(name) for file in files if file.endswith(".onnx")
        )
        if not inside:
            raise ModelError(f"{name}: no .onnx file in this folder")
        files += inside
    return files
