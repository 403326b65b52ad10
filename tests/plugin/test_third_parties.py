"""Passes of third parties run at the level that they state; those that do not work cost a line and nothing else."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, PathDistribution, entry_points
from pathlib import Path

import onnx
import pytest

import graphopt
from graphopt import PassManager
from graphopt.audit.equivalents import equivalent_passes
from graphopt.errors import PassError, PluginWarning
from graphopt.pipeline import registry
from graphopt.pipeline.tuning import tuners
from tests.plugin.installing import GROUP, register, run

PLUGIN = '''
"""A third party's passes: one for each level and family, each of which says that it ran."""
from graphopt.rewrite import GraphPass, Level

ran = []

class Ran(GraphPass):
    """Say that it ran."""

    def run_model(self, model, rw):
        ran.append(self.name)

{classes}

def catalogue():
    return {{name: "acme_plugin:" + name for name in {names!r}}}
'''
STATED = {
    "plain": "",
    "own": 'family = "acme"',
    "extended": 'family = "acme"; level = Level.EXTENDED',
    "fusing": 'family = "fusion"; level = Level.EXTENDED',
    "layout": "level = Level.LAYOUT",
    "last": "level = Level.ALL",
    "named": "default = False",
}
IDENTITY = '<ir_version: 9, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { a = Identity (x)  y = Relu (a) }'


class Site:
    """A folder of the path with packages in it, as this process sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: list[EntryPoint] = list(entry_points(group=GROUP))

    def add(self, package: str, module: str, text: str) -> None:
        register(self.folder, package, {module: f"{module}:catalogue"})
        if text:
            (self.folder / f"{module}.py").write_text(text)
        found = PathDistribution(self.folder / f"{package.replace('-', '_')}-0.1.0.dist-info")
        self.entries += found.entry_points


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Where a plug-in is installed that works."""
    site = Site(tmp_path)
    classes = "\n".join(f"class {name}(Ran):\n    'Say.'\n    name = {name!r}; {text}" for name, text in STATED.items())
    site.add("acme-passes", "acme_plugin", PLUGIN.format(classes=classes, names=list(STATED)))
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("graphopt.pipeline.registry")
    monkeypatch.setattr(module, "entry_points", lambda group: site.entries)
    registry.cache_clear()
    yield site
    registry.cache_clear()
    for name in ("acme_plugin", "broken"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("settings", "ran"),
    [
        ({"level": "basic"}, ["own", "plain"]),
        ({"level": "extended"}, ["extended", "fusing", "own", "plain"]),
        ({"level": "all"}, ["extended", "fusing", "last", "layout", "own", "plain"]),
        ({"passes": "acme/*"}, ["own"]),
        ({"passes": "custom/*"}, ["own", "plain"]),
        ({"passes": "repeat({custom/*@extended,named})"}, ["extended", "named"]),
        ({"level": "basic", "skip": ["own"]}, ["plain"]),
    ],
    ids=str,
)
@pytest.mark.usefixtures("site")
def test_a_third_partys_pass_runs_at_the_level_that_it_states(settings: dict, ran: list[str]) -> None:
    graphopt.optimize(onnx.parser.parse_model(IDENTITY), **settings)
    assert sorted(set(importlib.import_module("acme_plugin").ran)) == ran


PASS = """
from graphopt.rewrite import Level, OpRule, PatternRule

class P(OpRule):
    "A pass."
    name = "p"
    ops = ("Relu",)

    def rewrite(self, node, rw):
        return None

def catalogue():
    return {"p": "broken:P"}
"""
BROKEN = {
    "no such module": ("", "ModuleNotFoundError: No module named 'broken'"),
    "syntax error": ("def", "SyntaxError"),
    "raises when imported": ("raise ValueError('not today')", "ValueError: not today"),
    "ends the process": ("import sys; sys.exit(3)", "SystemExit: 3"),
    "no catalogue": ("x = 1", "AttributeError: module 'broken' has no attribute 'catalogue'"),
    "catalogue raises": ("def catalogue(): raise KeyError('k')", "KeyError: 'k'"),
    "catalogue is a list": ("def catalogue(): return ['p']", "must give pass names with their places, found ['p']"),
    "places are classes": ("def catalogue(): return {'p': int}", "found {'p': <class 'int'>}"),
    "module of a pass is missing": ("def catalogue(): return {'p': 'nowhere:P'}", "cannot be loaded from nowhere:P"),
    "place without a class": ("def catalogue(): return {'p': 'broken'}", "cannot be loaded from broken"),
    "no pass": ("class P: pass\ndef catalogue(): return {'p': 'broken:P'}", "broken:P is not a pass of that name"),
    "name of another": (PASS.replace('{"p"', '{"eliminate_identity"'), "graphopt has one of that name"),
    "no rewrite": (PASS.replace("def rewrite", "def rewritten"), "broken:P lacks rewrite"),
    "level is text": (PASS.replace("ops =", "level = 'basic'; ops ="), "level is 'basic', expected a Level"),
    "opsets make no sense": (PASS.replace("ops =", "opsets = 'new'; ops ="), "opsets 'new': expected something like"),
    "cannot be made": (PASS.replace("def rewrite", "def __init__(self): 1 / 0\n    def rewrite"), "ZeroDivisionError"),
    "pattern is none": (
        PASS.replace("P(OpRule)", "P(PatternRule)").replace("ops = ", "def pattern(self, op, x): return 3\n    no = "),
        "pass 'p' of broken-passes cannot be made",
    ),
}


@pytest.mark.parametrize("way", BROKEN)
def test_a_package_that_does_not_work_costs_a_warning_and_nothing_else(site: Site, way: str) -> None:
    text, message = BROKEN[way]
    site.add("broken-passes", "broken", text)
    with pytest.warns(PluginWarning) as told:
        hits = everything()
    assert message in str(told[0].message)
    assert "broken-passes" in str(told[0].message)
    assert len(told) == 1, "said once"
    assert hits == {"eliminate_identity": 1}
    assert "own" in importlib.import_module("acme_plugin").ran


def everything() -> dict[str, int]:
    """All that goes through all passes, each once or twice; the rewrites of one run."""
    model = onnx.parser.parse_model(IDENTITY)
    result = PassManager("extended").run(model)
    assert result.model == graphopt.optimize(model, "extended")
    assert ("onnxoptimizer", "eliminate_identity") in equivalent_passes()
    assert "convert_layout_nchwc" in tuners()
    return result.hits


def test_a_pass_that_is_named_and_cannot_be_loaded_is_an_error(site: Site) -> None:
    site.add("broken-passes", "broken", "def catalogue(): return {'p': 'nowhere:P'}")
    with pytest.raises(
        PassError, match="pass 'p' of broken-passes cannot be loaded from nowhere:P: ModuleNotFoundError"
    ):
        PassManager(passes="p")


def test_the_commands_say_it_in_one_line(tmp_path: Path) -> None:
    register(tmp_path, "broken-passes", {"broken": "nowhere:catalogue"})
    done = run(["-m", "graphopt", "passes", "--family", "layout"], tmp_path)
    assert done.returncode == 0
    assert "convert_layout_nchwc" in done.stdout
    assert done.stderr == (
        "graphopt: warning: the passes of broken-passes are left out: entry point 'broken' of group graphopt.passes "
        "cannot be loaded: ModuleNotFoundError: No module named 'nowhere'\n"
    )
