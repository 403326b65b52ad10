"""Entry points are those of `importlib.metadata`, whichever way they are found."""

from __future__ import annotations

import sys
import zipfile
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from graphopt.pipeline.plugins import OnlyEntry, entry_points
from tests.plugin.installing import register

GROUP = "acme.passes"


def found(group: str = GROUP) -> list[tuple[str, str, str]]:
    """What is found; it must be what `importlib.metadata` finds."""
    ours = sorted((each.name, each.module, getattr(each, "attribute", "") or each.attr) for each in entry_points(group))
    theirs = sorted((each.name, each.module, each.attr) for each in metadata.entry_points(group=group))
    assert ours == theirs
    return ours


def distribution(folder: Path, name: str, text: str) -> None:
    register(folder, name, {})
    (folder / f"{name}-0.1.0.dist-info" / "entry_points.txt").write_text(text)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is alone on the path, where distributions are found as in a new process.

    The package `importlib_metadata`, once another test's packages import it, puts a finder of its own in the place of
    the standard library's and deletes the latter's method.
    """
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "none")])
    find = staticmethod(metadata.MetadataPathFinder.find_distributions)
    monkeypatch.setattr(PathFinder, "find_distributions", find, raising=False)
    usual = [each for each in sys.meta_path if each is PathFinder or not hasattr(each, "find_distributions")]
    monkeypatch.setattr(sys, "meta_path", usual)
    return tmp_path


def test_those_of_this_environment() -> None:
    assert ("graphopt", "graphopt_passes", "catalogue") in found("graphopt.passes")


def test_the_only_one_is_found_by_a_look(site: Path) -> None:
    distribution(site, "acme", f"[console_scripts]\nx = y:z\n\n[{GROUP}]\nmine = acme.passes:all\n\n[other]\na = b:c\n")
    assert found() == [("mine", "acme.passes", "all")]
    (entry,) = entry_points(GROUP)
    assert isinstance(entry, OnlyEntry)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"[x.{GROUP}]\na = b:c\n",
        f"[{GROUP}]\n",
        f"[{GROUP}]\n# a = b:c\n",
        f"[{GROUP}]\na = b:c\nd = e:f\n",
        f"[{GROUP}]\na = b:c [extra]\n",
        f"[{GROUP}]\na = b:c.d\n",
        f"[{GROUP}]\na.b = b:c\n",
        f"# {GROUP}\n[{GROUP}]\r\na = b:c\r\n",
        f"[{GROUP}]\na = b:c\n[{GROUP}]\nd = e:f\n",
        f"  [{GROUP}]\n  a=b:c\n",
        f"[other]\nx = {GROUP}:y\n",
    ],
)
def test_texts_of_other_forms(site: Path, text: str) -> None:
    distribution(site, "acme", text)
    found()


def test_several_distributions(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(site, "acme", f"[{GROUP}]\na = b:c\n")
    distribution(site, "else", f"[{GROUP}]\nd = e:f\n")
    assert len(found()) == 2
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "second")])
    distribution(tmp_path / "second", "acme", f"[{GROUP}]\nshadowed = b:c\n")
    assert len(found()) == 2  # the second of a name is not seen


def test_an_archive_on_the_path(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(site, "acme", f"[{GROUP}]\na = b:c\n")
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as packed:
        packed.writestr("packed-0.1.dist-info/METADATA", "Name: packed\nVersion: 0.1\n")
        packed.writestr("packed-0.1.dist-info/entry_points.txt", f"[{GROUP}]\nd = e:f\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "packed.zip")])
    assert len(found()) == 2


def test_an_egg_on_the_path(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (site / "old.egg" / "EGG-INFO").mkdir(parents=True)
    (site / "old.egg" / "EGG-INFO" / "PKG-INFO").write_text("Name: old\nVersion: 0.1\n")
    (site / "old.egg" / "EGG-INFO" / "entry_points.txt").write_text(f"[{GROUP}]\nd = e:f\n")
    monkeypatch.setattr(sys, "path", [str(site / "old.egg")])
    assert found() == [("d", "e", "f")]


def test_a_finder_of_its_own(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(site, "acme", f"[{GROUP}]\na = b:c\n")
    distribution(site / "hidden", "more", f"[{GROUP}]\nd = e:f\n")

    class Finder:
        """Knows a distribution that is in no folder of the path."""

        @staticmethod
        def find_spec(*_: object) -> None:
            return None

        @staticmethod
        def find_distributions(context: object) -> list[metadata.Distribution]:
            return [metadata.PathDistribution(site / "hidden" / "more-0.1.0.dist-info")]

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert len(found()) == 2
