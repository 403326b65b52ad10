"""Packages that only some commands need: asked for by name, and missed with the command that installs them."""

from __future__ import annotations

import importlib
import importlib.util
from functools import lru_cache
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
"""What asks for a package, and the extra that brings it."""


@lru_cache
def version_of(package: str) -> str | None:
    """The installed version of a package; None when it is not installed.

    Its distribution may have another name: the runtime's are onnxruntime, onnxruntime-gpu and others.
    """
    from importlib import metadata  # takes longer to import than all the rest that a short command takes from Python

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        names = metadata.packages_distributions().get(package, []) if importlib.util.find_spec(package) else []
        return metadata.version(names[0]) if names else None


def require(module: str) -> Any:
    """A package that is not among the dependencies, or a module of one.

    Args:
        module: its name.

    Raises:
        UsageError: it is not installed; the message has the command that installs it.
    """
    package = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
    what, extra = _NEEDED[package]
    if package == "psutil" and importlib.util.find_spec("onnxruntime") is None:
        extra = "ort"  # what asks for limits runs models, and would miss the runtime next
    other = ", or graphopt[tools] beside the distribution of it that you use" if package == "onnxruntime" else ""
    raise UsageError(f"{what} needs {package}, which is not installed: pip install 'graphopt[{extra}]'{other}")
