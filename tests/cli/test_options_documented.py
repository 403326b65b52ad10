"""`docs/cli.md` names every command and every option, each command in the documentation parses, and links lead on."""

from __future__ import annotations

import inspect
import pkgutil
import re
import shlex
from pathlib import Path

import pytest

import graphopt
from graphopt import api, compat, integrations, testing
from graphopt.cli.app import COMMANDS
from graphopt.pipeline import registry
from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "passes"),
]
CLI = (ROOT / "docs" / "cli.md").read_text()
_CALL = re.compile(r"^(?:\$ |    )(graphopt .*)$", re.MULTILINE)


def rows() -> dict[str, str]:
    """The line of each command in the first table of docs/cli.md."""
    table = CLI.partition("Options that several of them share")[0]
    return {
        match[2]: match[1] for match in re.finditer(r"^(\| `([a-z-]+(?: [a-z-]+)*)[^|]*\|.*)$", table, re.MULTILINE)
    }


def shared() -> str:
    return CLI.partition("Options that several of them share")[2].partition("\n## ")[0]


def examples() -> list[tuple[str, list[str]]]:
    """Lines of blocks that call graphopt, in a console or indented."""
    lines = [(page.name, line) for page in PAGES for line in _CALL.findall(page.read_text())]
    return [(page, shlex.split(line, comments=True)[1:]) for page, line in lines]


def test_every_command_has_its_line() -> None:
    assert set(rows()) == set(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_option_is_documented(name: str) -> None:
    options = {option for option in COMMANDS[name].options if option.startswith("--")}
    named = set(re.findall(r"--[a-z-]+", rows()[name] + shared()))
    assert not options - named


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_no_option_is_invented(name: str) -> None:
    options = set(COMMANDS[name].options)
    assert not set(re.findall(r"--[a-z-]+", rows()[name])) - options


@pytest.mark.parametrize(("page", "words"), [pytest.param(*each, id=f"{each[0]}-{each[1][0]}") for each in examples()])
def test_commands_in_pages_parse(page: str, words: list[str]) -> None:
    count = 1 if words[0] in COMMANDS else 2
    name = " ".join(words[:count])
    assert name in COMMANDS, page
    assert COMMANDS[name].parse(words[count:])


def test_commands_are_found_in_pages() -> None:
    assert {"README.md", "layout.md", "extended.md", "field-reports.md"} <= {page for page, _ in examples()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    blocks = re.split(r"\n\n+", page.read_text())
    prose = "\n".join(block for block in blocks if not all(line.startswith("    ") for line in block.splitlines()))
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", prose)
    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not missing


FUNCTIONS = dict.fromkeys(
    each
    for module in (graphopt, api, testing)
    for name in module.__all__
    if inspect.isfunction(each := getattr(module, name))
)


@pytest.mark.parametrize("what", [graphopt.PassManager, graphopt.Options, *FUNCTIONS])
def test_every_argument_is_documented(what: object) -> None:
    text = inspect.getdoc(what) or ""
    for name in inspect.signature(what).parameters:  # type: ignore[arg-type]
        assert re.search(rf"^\s*\**{name}: \S", text, re.MULTILINE), name


def test_every_public_name_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text()
    shown = re.findall(r"^::: (\S+)$|members: \[(.*)\]", page, re.MULTILINE)
    names = {name.rpartition(".")[2] for name, _ in shown} | {
        each for _, listed in shown for each in listed.split(", ")
    }
    errors = {name for name in vars(graphopt.errors) if name.endswith("Error")}
    assert set(graphopt.__all__) | set(api.__all__) <= names | errors | {"demo"}
    for package in (compat, integrations):
        modules = {module.name for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")}
        assert modules - {"graphopt.compat.interface"} <= {name for name, _ in shown}


@pytest.mark.parametrize("options", [(), ("--peers",)])
def test_catalogue_names_every_pass_at_80_columns(run: Run, options: tuple[str, ...]) -> None:
    done = run("passes", *options, env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    lost = [name for name in registry().names() if registry().owner(name) == "graphopt" and name not in done.stdout]
    assert not lost or options
    assert "eliminate_consecutive_idempotent_ops" in done.stdout
    assert "…" not in done.stdout
