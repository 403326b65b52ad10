"""The generated pages are what the records, the cases and the peers say now; `make docs` writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphopt.audit.equivalents import PEERS, equivalents
from graphopt.cli.reference import WIDTH, Page, write_pages
from graphopt.peers import by_name
from graphopt.pipeline import registry
from tests.cli.conftest import Run

DOCS = Path(__file__).parents[2] / "docs"
STALE = "is not current: run `make docs`"


def test_pages_of_passes_are_current() -> None:
    files = write_pages(registry(), DOCS / "passes")
    assert set(files) == set((DOCS / "passes").glob("*.md")), STALE
    for path, text in files.items():
        assert path.read_text() == text, f"{path.name} {STALE}"


def test_only_pages_that_the_index_lists_are_removed(run: Run, tmp_path: Path) -> None:
    index, gone, own = (tmp_path / name for name in ("README.md", "eliminate_what_was.md", "notes.md"))
    own.write_text("my own")
    index.write_text("# A project")
    done = run("passes", "--write", tmp_path)
    assert done.exit_code == 2
    assert "is no index of passes" in done.stderr
    assert index.read_text() == "# A project"
    gone.write_text("of a pass")
    start = (DOCS / "passes" / "README.md").read_text()
    index.write_text(f"{start}| [{gone.stem}]({gone.name}) | basic | exact | Gone. |\n")
    assert run("passes", "--write", tmp_path).exit_code == 0
    assert index.read_text() == start
    assert own.read_text() == "my own"
    assert not gone.exists()


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
