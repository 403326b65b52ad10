"""What a wheel holds besides the code: the golden cases, in one archive instead of thousands of small files."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_TIME = (2020, 1, 1, 0, 0, 0)
"""Of every file in the archive, so that equal sources give equal wheels."""


class CustomBuildHook(BuildHookInterface):
    """Pack the golden cases, which `graphopt passes NAME` shows examples from."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Put the archive among the wheel's files; an editable installation reads the sources."""
        if version != "standard":
            return
        self._folder = tempfile.TemporaryDirectory()
        archive = Path(self._folder.name, "golden.zip")
        cases = Path(self.root, "tests", "golden")
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
            for case in sorted(cases.rglob("*.onnxtxt")):
                name = zipfile.ZipInfo(case.relative_to(cases).as_posix(), _TIME)
                name.compress_type = zipfile.ZIP_DEFLATED
                packed.writestr(name, case.read_bytes())
        build_data["force_include"][str(archive)] = "graphopt_passes/golden.zip"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the archive."""
        if version == "standard":
            self._folder.cleanup()
