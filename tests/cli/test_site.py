"""The documentation site: every page is on it, and it builds without a warning."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAV = re.findall(r"([\w/-]+\.md|[\w-]+/)\s*$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)


def test_every_page_is_on_the_site() -> None:
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    named = {each for each in NAV if not each.endswith("/")}
    inside = {page for page in pages if any(page.startswith(each) for each in NAV if each.endswith("/"))}
    assert pages == named | inside


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed; `make site` builds it")
def test_the_site_builds(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "graphopt optimize" in (tmp_path / "reference" / "commands.html").read_text()
