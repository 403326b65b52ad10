"""What was measured on a machine for passes that choose by cost: kept in the user's configuration, one file a target.

`graphopt tune` writes these files, passes read them. A file names the processor and the runtime it was measured with
and holds the figures of each pass under the pass's name; a pass without figures uses its built-in ones. The environment
variable `GRAPHOPT_TUNED` names another folder, or is `off` for built-in figures only, so that a result can be repeated
on another machine.

Beside them are files of the processor's name, which a short calibration writes at first use: what `graphopt tune`
measured goes before them. Each is plain JSON, to be copied to other machines of the kind.
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
    """Where tables are kept; None where they are switched off."""
    stated = os.environ.get(VARIABLE)
    if stated == "off":
        return None
    if stated:
        return Path(stated)
    return _configuration() / "graphopt" / "tuned"


def _configuration() -> Path:
    """Where this user's programs keep what they were told or found out."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def place(target: Target) -> Path | None:
    """The file of a target's figures; None where they are switched off."""
    root = folder()
    return root / f"{target.name}-nchwc{target.block}.json" if root is not None else None


def is_host(target: Target) -> bool:
    """Whether a target is this machine with its own cores, not only one whose models run here."""
    here = host()
    return target == here and target.core == here.core


def calibrated_place(target: Target) -> Path | None:
    """The file of what a short calibration found on this processor; None where tables are switched off."""
    root = folder()
    name = re.sub(r"[^a-z0-9]+", "-", f"{processor()} {target.core}".lower()).strip("-")
    return root / f"calibrated-{name}-{target.name}-nchwc{target.block}.json" if root is not None else None


def calibration(
    name: str, target: Target, measure: str, fits: Callable[[dict[str, Any]], bool] = lambda figures: True
) -> dict[str, Any] | None:
    """What a short calibration found for a pass on this machine: measured at first use, and kept from then on.

    Args:
        name: the pass.
        target: the machine.
        measure: where the function is that measures, as `module:function`; it gets the target.
        fits: whether figures are of the form that the pass works with; kept ones that are not are measured anew.

    Returns:
        The figures; None where tables are switched off, none can be kept, the target is not this machine, or there is
        no runtime to measure with.
    """
    path = calibrated_place(target)
    if path is None or not is_host(target):
        return None
    kept = _read(path, _stamp(path)).get(name)
    return kept if kept is not None and fits(kept) else _calibrate(path, name, target, measure)


@lru_cache(maxsize=8)
def _calibrate(path: Path, name: str, target: Target, measure: str) -> dict[str, Any] | None:
    """Measure and keep; what cannot be done is not tried twice in a process."""
    if not _can_write(path) or find_spec("onnxruntime") is None:
        return None
    module, _, function = measure.partition(":")
    try:
        measured: dict[str, Any] = getattr(import_module(module), function)(target)
        _write(path, target, {**_read(path, _stamp(path)), name: measured})
    except Exception as error:  # whatever the runtime or the disk says: the built-in figures stand
        import logging  # rarely needed, and a first call need not wait for it

        logging.getLogger("graphopt").info("no calibration for %s: %s", name, error)
        return None
    return measured


def _can_write(path: Path) -> bool:
    """Whether a file can be kept there, so that the next process finds it."""
    place = path.parent
    while not place.exists() and place != place.parent:
        place = place.parent
    return os.access(path if path.exists() else place, os.W_OK)


def figures(name: str, target: Target) -> dict[str, Any] | None:
    """What was measured for a pass on machines of a target.

    Args:
        name: the pass.
        target: the machine.

    Returns:
        The figures as the pass's tuner gave them; None where nothing (readable) was measured.
    """
    if target.core and not is_host(target):
        return None  # it was named for its own rates, and what is kept is of the cores here
    path = place(target)
    return _read(path, _stamp(path)).get(name) if path is not None else None


def keep(name: str, target: Target, measured: dict[str, Any]) -> Path:
    """Store what was measured for a pass; figures of other passes stay.

    Raises:
        ModelError: the file cannot be written, or tables are switched off.
    """
    path = place(target)
    if path is None:
        raise ModelError(f"{VARIABLE} is off: there is no place for what is measured")
    _write(path, target, {**_read(path, _stamp(path)), name: measured})
    return path


def forget(names: Iterable[str], target: Target) -> None:
    """Drop what was measured for passes, so that they use their built-in figures again.

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
    """The figures of each pass in a file; one that is absent, broken or of another version counts as empty.

    So do figures that are none: no object, or one whose rates are none.
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
