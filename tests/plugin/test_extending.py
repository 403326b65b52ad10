"""The guide for passes in other packages, followed word for word from an empty folder, and its template."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from graphopt.errors import UsageError
from graphopt.testing import Case, cases, run_case
from tests.plugin.installing import install, run

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "extending.md"
TEMPLATE = ROOT / "examples" / "graphopt-arithmetic"
STEP = re.compile(r"(?:^`([^`\n]+)`:\n\n)?^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAMS = {"graphopt": ["-m", "graphopt"], "python": []}
ELSEWHERE = ("sh",)
"""The language of blocks that need the network: publishing."""


class Reader:
    """Somebody who follows the guide in a folder; `site` is where packages are installed."""

    def __init__(self, folder: Path, site: Path) -> None:
        self.folder, self.site = folder, site

    def follow(self, guide: str) -> None:
        for name, language, text in STEP.findall(guide):
            if name:
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / name).write_text(text)
            elif language == "console":
                self.type(text)
            else:
                assert language in ELSEWHERE, f"a block that nobody follows:\n{text}"

    def type(self, text: str) -> None:
        """Type each command, and find the lines below it in what it prints, in order."""
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, *expected = part.splitlines()
            printed = iter(self.run(command).splitlines())
            for line in expected:
                assert any(line in found for found in printed), f"{command}: {line!r}"

    def run(self, line: str) -> str:
        settings = dict(re.findall(r"^([A-Z]+)=(\S+) ", line))
        program, *rest = [word for word in shlex.split(line) if "=" not in word]
        if program == "mkdir":
            (self.folder / rest[0]).mkdir()
        elif program == "cd":
            self.folder /= rest[0]
        elif line == "pip install -e .":
            install(self.folder, self.site)
        elif program in ("cat", "head"):
            count = int(rest[1]) if rest[0] == "-n" else None
            return "\n".join((self.folder / rest[-1]).read_text().splitlines()[:count])
        else:
            return self.python([*PROGRAMS[program], *rest], **settings)
        return ""

    def python(self, command: list[str], **settings: str) -> str:
        done = run(command, self.site, self.folder / "src", folder=self.folder, **settings)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert not done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Somebody who followed the guide to its end."""
    reader = Reader(tmp_path_factory.mktemp("empty"), tmp_path_factory.mktemp("site"))
    reader.follow(GUIDE.read_text())
    return reader


def files(folder: Path) -> dict[str, str]:
    found = (
        path for path in folder.rglob("*") if path.is_file() and not {".pytest_cache", "__pycache__"} & {*path.parts}
    )
    return {str(path.relative_to(folder)): path.read_text() for path in found}


def test_the_guide_makes_the_template(reader: Reader) -> None:
    made = files(reader.folder)
    assert made.pop("try_it.py")
    assert made == files(TEMPLATE)


def test_the_page_of_the_pass_has_its_example(reader: Reader) -> None:
    page = reader.run("graphopt passes fuse_neg_into_sub")
    for line in (
        "family     arithmetic",
        "from       graphopt-arithmetic (graphopt_arithmetic.negation)",
        "z = Sub (x, y)",
    ):
        assert line in page
    assert "n has other readers (other uses)" in page


MISTAKEN = """
import pathlib
from graphopt.testing import Case, GoldenError, cases, run_case
for path in cases(pathlib.Path("tests")):
    case = Case.read(path)
    run_case(case)
    case.head["FIRES" if case.after else "KEEPS"] = "7"
    try:
        run_case(case)
    except GoldenError as error:
        print(str(error).partition(": ")[2].replace("\\n", ""))
"""


def test_the_harness_says_what_it_expected_and_found(reader: Reader) -> None:
    assert reader.python(["-c", MISTAKEN]).splitlines() == [
        "expected 7 rewrites, found 1",
        "expected the reason  7found  n has other readers",
    ]


def test_without_the_package_its_cases_say_what_is_missing() -> None:
    with pytest.raises(UsageError, match="unknown pass 'fuse_neg_into_sub'"):
        run_case(Case.read(cases(TEMPLATE)[0]))
