"""Stored verdicts on conversions: a run that is interrupted or repeated only judges new ones."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ.get("GRAPHOPT_CONVERSIONS", Path(tempfile.gettempdir()) / "graphopt-conversions"))
"""The folder of the ledgers."""


class Ledger:
    """Verdicts by key; a converted model is identified by its bytes, so a verdict survives changes of our code.

    Args:
        name: name of the file.
    """

    def __init__(self, name: str) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        self._path = FOLDER / f"{name}.jsonl"
        self._known: dict[str, Any] = {}
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                key, verdict = json.loads(line)
                self._known[key] = verdict

    def find(self, key: str) -> Any:
        """The verdict; None if there is none yet."""
        return self._known.get(key)

    def keep(self, key: str, verdict: Any) -> Any:
        """Store a verdict, and return it."""
        self._known[key] = verdict
        with self._path.open("a") as file:
            file.write(json.dumps([key, verdict]) + "\n")
        return verdict


def digest(data: bytes) -> str:
    """A digest of the bytes of a model."""
    return hashlib.sha256(data).hexdigest()[:24]
