"""Versions of all software in an audit, so exact that equal versions give equal counts."""

from __future__ import annotations

import hashlib
import importlib
from functools import lru_cache
from pathlib import Path

from graphopt import __version__
from graphopt.audit.rivals import version_of as version_of_peer
from graphopt.pipeline import registry
from graphopt.system.extras import version_of

_ALWAYS = ("onnx", "onnxruntime", "numpy")


@lru_cache(maxsize=4)
def versions(peers: tuple[str, ...]) -> dict[str, str]:
    """The versions of all software that may change a record.

    Args:
        peers: the peers of the audit.

    Returns:
        Versions by name. Those of graphopt and of each library of passes include a digest of the source, since a
        version under development keeps its number.
    """
    owners = {registry().owner(name): registry().rule_class(name).__module__.partition(".")[0]
              for name in registry().names()}  # fmt: skip
    found = {name: version_of(name) or "" for name in _ALWAYS}
    for owner, package in owners.items():
        if owner != "graphopt":
            found[f"passes of {owner}"] = f"{version_of(owner) or ''}+{_source(package)}"
    own = owners.get("graphopt")
    found["graphopt"] = f"{__version__}+{_source('graphopt', *([own] if own else []))}"
    return {**found, **{peer: version_of_peer(peer) for peer in peers}}


def _source(*packages: str) -> str:
    total = hashlib.sha256()
    for package in packages:
        place = importlib.import_module(package).__file__
        folder = Path(place or ".").parent
        for file in sorted(folder.rglob("*.py")):
            total.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes())
    return total.hexdigest()[:8]
