"""Measured figures of a machine for passes with a cost model: in the user's configuration folder, one file per target.

`graphopt tune` writes these files, passes read them. A file names the processor and the runtime it was measured with
and holds the figures of each pass under the pass's name; a pass without figures uses its built-in ones. The environment
variable `GRAPHOPT_TUNED` names another folder, or is `off` for built-in figures only, so that a result can be
reproduced on another machine.

Other files there, named after the processor, are written by a short calibration at first use; figures of `graphopt
tune` take precedence. All files are plain JSON, and can be copied to other machines of the same kind.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from graphopt.errors import ModelError
from graphopt.system.extras import require
from graphopt.system.files import naming, write_text
from graphopt.system.machine import Target, host, processor

VARIABLE = "GRAPHOPT_TUNED"
_FORMAT = 1


def folder() -> Path | None:
    """The folder of all figures; None if they are switched off."""
    stated = os.environ.get(VARIABLE)
    if stated == "off":
        return None
    if stated:
        return Path(stated)
    return _configuration() / "graphopt" / "tuned"


def _configuration() -> Path:
    """The user's configuration folder."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def place(target: Target) -> Path | None:
    """The file of a target's figures; None if they are switched off."""
    root = folder()
    return root / f"{target.name}-nchwc{target.block}.json" if root is not None else None


def is_host(target: Target) -> bool:
    """Whether a target is this machine including its core, not only a target whose models run here."""
    here = host()
    return target == here and target.core == here.core


def calibrated_place(target: Target) -> Path | None:
    """The file of a short calibration's figures for this processor; None if figures are switched off."""
    root = folder()
    name = re.sub(r"[^a-z0-9]+", "-", f"{processor()} {target.core}".lower()).strip("-")
    return root / f"calibrated-{name}-{target.name}-nchwc{target.block}.json" if root is not None else None


def calibration(
    name: str, target: Target, measure: str, fits: Callable[[dict[str, Any]], bool] = lambda figures: True
) -> dict[str, Any] | None:
    """The figures of a short calibration for a pass on this machine: measured at first use, and then stored.

    Args:
        name: the pass.
        target: the machine.
        measure: the measuring function, as `module:function`; it is called with the target.
        fits: whether figures have the form that the pass expects; stored figures that do not are measured anew.

    Returns:
        The figures; None if figures are switched off or cannot be stored, the target is not this machine, or there is
        no runtime to measure with.
    """
    path = calibrated_place(target)
    if path is None or not is_host(target):
        return None
    kept = _read(path, _stamp(path)).get(name)
    return kept if kept is not None and fits(kept) else _calibrate(path, name, target, measure)


@lru_cache(maxsize=8)
def _calibrate(path: Path, name: str, target: Target, measure: str) -> dict[str, Any] | None:
    """Measure and store figures; a failure is not retried within a process."""
    if not _can_write(path) or find_spec("onnxruntime") is None:
        return None
    module, _, function = measure.partition(":")
    try:
        measured: dict[str, Any] = getattr(import_module(module), function)(target)
        _write(path, target, {**_read(path, _stamp(path)), name: measured})
    except Exception as error:  # after any error of the runtime or the disk, the built-in figures apply
        import logging  # rarely needed, and slow to import

        logging.getLogger("graphopt").info("no calibration for %s: %s", name, error)
        return None
    return measured


def _can_write(path: Path) -> bool:
    """Whether a file can be written there, so that the next process finds it."""
    place = path.parent
    while not place.exists() and place != place.parent:
        place = place.parent
    return os.access(path if path.exists() else place, os.W_OK)


def figures(name: str, target: Target) -> dict[str, Any] | None:
    """The figures that `graphopt tune` measured for a pass and a target.

    Args:
        name: the pass.
        target: the machine.

    Returns:
        The figures from the pass's tuner; None if there are no readable ones.
    """
    if target.core and not is_host(target):
        return None  # the core was named for its built-in rates, and stored figures are of this machine's cores
    path = place(target)
    return _read(path, _stamp(path)).get(name) if path is not None else None


def keep(name: str, target: Target, measured: dict[str, Any]) -> Path:
    """Store the measured figures of a pass; figures of other passes stay.

    Raises:
        ModelError: the file cannot be written, or figures are switched off.
    """
    path = place(target)
    if path is None:
        raise ModelError(f"{VARIABLE} is off: there is no place for what is measured")
    _write(path, target, {**_read(path, _stamp(path)), name: measured})
    return path


def forget(names: Iterable[str], target: Target) -> None:
    """Delete the measured figures of passes, so that they use their built-in ones again.

    Raises:
        ModelError: the file cannot be written.
    """
    for path in (place(target), calibrated_place(target)):
        if path is not None and path.exists():
            _drop(path, target, set(names))


def _drop(path: Path, target: Target, names: set[str]) -> None:
    _write(path, target, {name: found for name, found in _read(path, _stamp(path)).items() if name not in names})


def _write(path: Path, target: Target, passes: dict[str, Any]) -> None:
    data = {"format": _FORMAT, "target": str(target), "machine": machine(), "passes": passes}
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(data, indent=1))


def machine() -> dict[str, str]:
    """The processor and the runtime that figures belong to."""
    ort = require("onnxruntime")

    return {"processor": processor(), "onnxruntime": str(ort.__version__)}


def _stamp(path: Path | None) -> int:
    try:
        return path.stat().st_mtime_ns if path is not None else 0
    except OSError:
        return 0


@lru_cache(maxsize=8)
def _read(path: Path, stamp: int) -> dict[str, dict[str, Any]]:
    """The figures of each pass in a file; a missing, broken or outdated file counts as empty.

    Malformed figures are left out: those that are not an object, or whose rates are not.
    """
    if not stamp:
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    known = isinstance(data, dict) and data.get("format") == _FORMAT
    passes = data.get("passes") if known else None
    stated = passes.items() if isinstance(passes, dict) else ()
    return {name: each for name, each in stated if isinstance(each, dict) and isinstance(each.get("rates", {}), dict)}
