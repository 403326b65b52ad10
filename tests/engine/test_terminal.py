"""What reports have in common on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.table import Table

from graphopt.printable import console, counted


@pytest.mark.parametrize(("number", "words"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes"), (1234, "1,234 nodes")])
def test_a_number_agrees_with_its_noun(number: int, words: str) -> None:
    assert counted(number, "node") == words


def test_a_title_is_not_broken_at_the_width_of_its_table() -> None:
    table = Table(title="What each did, and what it cost", title_justify="left", box=None, pad_edge=False)
    table.add_column("nodes")
    table.add_row("1")
    for _ in range(2):
        out = io.StringIO()
        console(file=out, width=60).print(table)
        assert [line.rstrip() for line in out.getvalue().splitlines()] == [table.title, "nodes", "1"]
