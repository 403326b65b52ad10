"""What a plain installation does without the packages of its extras, and how it says what needs one of them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import onnx
import pytest

from graphopt.audit.html.rendering import _environment
from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]
EXTRAS = (
    "onnxruntime",
    "psutil",
    "jinja2",
    "networkx",
    "onnxoptimizer",
    "onnxsim",
    "onnxslim",
    "onnxscript",
    "onnx_ir",
)
ABSENT = """
import importlib.machinery, sys
from pathlib import Path
find, absent = importlib.machinery.PathFinder.find_spec, set(sys.argv[1].split(","))
def find_others(name, path=None, target=None):
    return None if name.partition(".")[0] in absent else find(name, path, target)
importlib.machinery.PathFinder.find_spec = find_others
from graphopt.cli.app import run
model, folder = sys.argv[2:]
for level in ("basic", "extended", "all"):
    assert run(["optimize", model, f"{folder}/{level}.onnx", "--level", level]) == 0
from graphopt import api
for function in (api.optimize, api.explain, api.inspect):
    function(model)
for words in (["explain", model], ["inspect", model], ["passes"], ["layout", model], ["diff", model, model], ["verify", model, model]):
    print(words[0], run(words), file=sys.stderr)
"""


def test_what_runs_no_model_needs_no_extra(model_file: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ABSENT, ",".join(EXTRAS), model_file, tmp_path],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *codes, complaint, last = done.stderr.splitlines()
    assert codes == ["explain 0", "inspect 0", "passes 0", "layout 0", "diff 0"]
    assert "pip install 'graphopt[ort]'" in complaint
    assert last == "verify 2"
    for level in ("basic", "extended", "all"):
        assert [node.op_type for node in onnx.load(tmp_path / f"{level}.onnx").graph.node][-1] == "Relu"


@pytest.mark.parametrize(
    ("absent", "words", "extra"),
    [
        ("onnxruntime", ("verify", "MODEL", "MODEL"), "ort"),
        ("onnxruntime", ("optimize", "MODEL", "OUT", "--verify"), "ort"),
        ("onnxruntime", ("profile", "MODEL"), "ort"),
        ("onnxruntime", ("bisect", "MODEL"), "ort"),
        ("onnxruntime", ("audit", "MODEL", "--against", "none"), "ort"),
        ("onnxruntime", ("tune",), "ort"),
        ("psutil", ("audit", "MODEL"), "tools"),
        ("jinja2", ("explain", "MODEL", "--html", "OUT"), "tools"),
        ("networkx", ("audit-passes", "MODEL", "--against", "onnxoptimizer"), "peers"),
    ],
)
@pytest.mark.usefixtures("model_file")
def test_what_needs_an_extra_says_so_in_one_line(
    run: Run, tmp_path: Path, absent: str, words: tuple[str, ...], extra: str
) -> None:
    places = {"MODEL": tmp_path / "small.onnx", "OUT": tmp_path / "out"}
    _environment.cache_clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, absent, None)  # as if it were not installed
        done = run(*(places.get(word, word) for word in words))
    assert done.exit_code == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert f"needs {absent}, which is not installed: pip install 'graphopt[{extra}]'" in done.stderr
    assert not done.stdout
    assert not (tmp_path / "out").exists()


def test_no_extra_but_ort_brings_a_runtime() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert not any(
        name.startswith("onnxruntime") for name in project["dependencies"] + extras["tools"] + extras["peers"]
    )


@pytest.mark.parametrize("level", ["basic", "all"])
def test_a_first_call_imports_nothing_that_is_dear(model_file: Path, tmp_path: Path, level: str) -> None:
    code = """
import sys
from graphopt.cli.app import run
from graphopt.cli.lifetime import import_in_parts
import_in_parts()
run(sys.argv[1:])
dear = "logging", "_hashlib", "subprocess", "asyncio", "tomllib", "heapq", "onnx.reference", "graphopt.system.sessions"
print([name for name in dear if name in sys.modules])
import dataclasses  # whose decorator compiles all methods of a class: see graphopt.records
ours = {name: module for name, module in sys.modules.items() if name.startswith(("graphopt.", "graphopt_passes."))}
print([name for name, module in ours.items() if getattr(module, "dataclass", None) is dataclasses.dataclass])
"""
    words = ["optimize", str(model_file), str(tmp_path / "out.onnx"), "-q", "--level", level]
    assert subprocess.check_output([sys.executable, "-c", code, *words], text=True) == "[]\n[]\n"


def test_commands_import_what_they_use(model_file: Path, tmp_path: Path) -> None:
    code = """
import sys, graphopt
print([name for name in ("onnx", "numpy", "rich", "logging") if name in sys.modules])
from graphopt.cli.app import run
run(sys.argv[1:])
heavy = "graphopt.audit", "graphopt.verify", "graphopt.opsets", "graphopt_passes.layout.nchwc", "graphopt_passes.algorithm.winograd"
print([name for name in sys.modules if name.partition(".")[0] in ("rich", "onnxruntime", "psutil") or name in heavy])
"""
    words = ["optimize", str(model_file), str(tmp_path / "out.onnx"), "-q"]
    assert subprocess.check_output([sys.executable, "-c", code, *words], text=True) == "[]\n[]\n"
