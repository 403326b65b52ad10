"""What conversions were found to be, kept on disk: a run that is cut short, or comes again, judges only what is new."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ.get("GRAPHOPT_CONVERSIONS", Path(tempfile.gettempdir()) / "graphopt-conversions"))
"""Where they are kept."""


class Ledger:
    """Verdicts by what they are about; what was converted is told by its bytes, so a verdict outlives our code.

    Args:
        name: of the file.
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
        """The verdict, None where there is none yet."""
        return self._known.get(key)

    def keep(self, key: str, verdict: Any) -> Any:
        """Enter a verdict, and give it back."""
        self._known[key] = verdict
        with self._path.open("a") as file:
            file.write(json.dumps([key, verdict]) + "\n")
        return verdict


def digest(data: bytes) -> str:
    """What stands for the bytes of a model."""
    return hashlib.sha256(data).hexdigest()[:24]
