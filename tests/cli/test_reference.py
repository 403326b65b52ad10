"""The generated pages are what the records, the cases and the peers say now; `make docs` writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphopt.audit.equivalents import PEERS, equivalents
from graphopt.cli.app import COMMANDS, overview
from graphopt.cli.reference import WIDTH, Page, write_pages
from graphopt.peers import by_name
from graphopt.pipeline import registry
from graphopt.testing import Case
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
    assert "is not an index of passes" in done.stderr
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


def test_a_page_shows_no_case_before_it_is_blessed(tmp_path: Path, monkeypatch) -> None:
    """It showed a result without a line, and `no match` as a reason that nobody gave."""
    bare = tmp_path / "fires_plain.onnxtxt"
    bare.write_text(
        '# RUN: eliminate_identity\n<ir_version: 9, opset_import: ["" : 18]>\n'
        "g (float[2] x) => (float[2] y)\n{\n  a = Identity (x)\n  y = Neg (a)\n}\n"
    )
    monkeypatch.setattr("graphopt.cli.reference.cases_of", lambda rule: [Case.read(bare)])
    page = Page.of(registry().rule_class("eliminate_identity"), "graphopt")
    assert page.example is None
    assert not page.keeps


def test_the_list_of_commands_has_a_line_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, overview().splitlines())) <= 80
    monkeypatch.setenv("COLUMNS", "200")
    lines = overview().splitlines()
    start = lines.index("Commands:") + 1
    assert [line.split("  ")[1] for line in lines[start:-2]] == list(COMMANDS)
