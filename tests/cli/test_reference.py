"""The generated pages are what the records, the cases and the peers say now; `make docs` writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphopt.audit.equivalents import PEERS, equivalents
from graphopt.cli.reference import WIDTH, Page, write_pages
from graphopt.peers import by_name
from graphopt.pipeline import registry

DOCS = Path(__file__).parents[2] / "docs"
STALE = "is not current: run `make docs`"


def test_pages_of_passes_are_current() -> None:
    files = write_pages(registry(), DOCS / "passes")
    assert set(files) == set((DOCS / "passes").glob("*.md")), STALE
    for path, text in files.items():
        assert path.read_text() == text, f"{path.name} {STALE}"


def test_table_of_peers_is_current() -> None:
    absent = [name for name, peer in PEERS.items() if not by_name(peer).available()]
    if absent:
        pytest.skip(f"not installed: {', '.join(absent)}")
    page = (DOCS / "peers.md").read_text()
    found = equivalents()
    if any(f"## {peer} {version}\n" not in page for peer, version in found.versions.items()):
        pytest.skip("the page is of other versions of the peers")
    assert page == found.to_markdown(), STALE


@pytest.mark.parametrize("name", [n for n in registry().names() if registry().owner(n) == "graphopt"])
def test_page_has_an_example_and_fits_the_terminal(name: str) -> None:
    page = Page.of(registry().rule_class(name), "graphopt")
    assert page.example is not None
    assert page.keeps
    text = page.to_text()
    models = {line.strip() for part in (page.example.before, page.example.after or "") for line in part.splitlines()}
    wide = [line for line in text.splitlines() if len(line) > WIDTH and line.strip() not in models]
    assert not [line for line in wide if " " in line.strip()[:WIDTH]]
