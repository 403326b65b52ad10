"""Optional packages: imported by name; if one is missing, the error states the command that installs it."""

from __future__ import annotations

import importlib
import importlib.util
import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from graphopt.errors import UsageError

_NEEDED = {
    "onnxruntime": ("running models", "ort"),
    "psutil": ("running models within limits", "tools"),
    "jinja2": ("a report in HTML", "tools"),
    "networkx": ("comparing passes one by one", "peers"),
    "distributed": ("Dask", "fleet"),
    "fsspec": ("models behind URLs", "fleet"),
    "pyarrow": ("Parquet", "tables"),
    "onnx_ir": ("models of onnx-ir", "peers"),
}
"""For each package, the feature that needs it, and the extra that installs it."""


@lru_cache
def version_of(package: str) -> str | None:
    """The installed version of a package; None if it is not installed.

    Its distribution may have another name: the runtime's are onnxruntime, onnxruntime-gpu and others.
    """
    from importlib import metadata  # takes longer to import than the rest of the standard library in a short command

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        names = metadata.packages_distributions().get(package, []) if importlib.util.find_spec(package) else []
        return metadata.version(names[0]) if names else None


def release_of(package: str) -> tuple[int, int]:
    """The installed release of a package, as its first module states it, or (0, 0) if it states none.

    That file is read and not run: the runtime takes as long to import as several passes, and the standard library's
    reader of metadata hardly less. Versions with a suffix, as builds between two releases have, are no release.
    """
    text = ""
    with suppress(ImportError, OSError, ValueError):  # a module in its place, or one in an archive
        spec = importlib.util.find_spec(package)
        text = Path(spec.origin or "").read_text(encoding="utf-8", errors="replace") if spec is not None else ""
    found = re.search(r"""^__version__ = ["'](\d+)\.(\d+)\.\d+["']$""", text, re.MULTILINE)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def require(module: str) -> Any:
    """Import an optional package, or a module of one.

    Args:
        module: its name.

    Raises:
        UsageError: it is not installed; the message states the command that installs it.
    """
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
    what, extra = _NEEDED[package]
    if package == "psutil" and importlib.util.find_spec("onnxruntime") is None:
        extra = "ort"  # limits are for running models, so the runtime would be missing next
    other = ", or graphopt[tools] beside the distribution of it that you use" if package == "onnxruntime" else ""
    raise UsageError(f"{what} needs {package}, which is not installed: pip install 'graphopt[{extra}]'{other}")
