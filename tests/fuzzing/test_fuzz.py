"""`graphopt fuzz` finds what is wrong, reduces it and names the pass; and graphopt itself has no fault in a small run."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings

import graphopt
from graphopt.errors import StaleError, UsageError
from graphopt.fuzzing import session, subjects
from graphopt.fuzzing.building import Builder, Sample, evaluate
from graphopt.fuzzing.drawing import Draw
from graphopt.fuzzing.embedding import is_open
from graphopt.fuzzing.models import finish, sample
from graphopt.fuzzing.shrinking import narrow, shrink
from graphopt.fuzzing.stock import FragmentName, Stock, fragment
from graphopt.fuzzing.subjects import Alone, Converter
from graphopt.fuzzing.templates import TEMPLATES, Writer
from graphopt.fuzzing.variants import KINDS
from graphopt.fuzzing.verdicts import Judge, NotUsableError
from graphopt.fuzzing.working import FuzzSettings, Worker
from graphopt.opsets import ConversionError
from graphopt.system.processes import ChildError
from graphopt.testing import draw_sample, models
from graphopt.verify.runners import open_runner
from graphopt.verify.source import Source
from tests.engine.misbehaving import serve_unless_first
from tests.versions import sound_inference

PLUGIN = Path(__file__).parents[1] / "plugin" / "wrong_passes.py"


def run(arguments: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GRAPHOPT_TUNED": "off", **more}
    command = [sys.executable, "-m", "graphopt", "fuzz", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture
def wrong(tmp_path: Path) -> str:
    """A path on which a library with a wrong pass is installed."""
    place = tmp_path / "plugin"
    info = place / "wrong_passes-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong-passes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[graphopt.passes]\nwrong = wrong_passes:catalogue\n")
    shutil.copy(PLUGIN, place)
    return os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")])


def test_a_wrong_pass_is_found_reduced_and_named(tmp_path: Path, wrong: str) -> None:
    arguments = [
        "--pass",
        "drop_abs_before_relu",
        "--ops",
        "Abs,Relu,Add,Concat",
        "--models",
        "30",
        "--seed",
        "7",
        "--json",
    ]
    done = run([*arguments, "--corpus", "found"], tmp_path, PYTHONPATH=wrong)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    (finding,) = report["findings"]
    assert (finding["kind"], finding["cause"]) == ("wrong", "drop_abs_before_relu")
    assert finding["reduced_nodes"] == 2
    assert "--pass drop_abs_before_relu" in finding["command"]
    model = onnx.parser.parse_model(finding["text"])
    assert [node.op_type for node in model.graph.node] == ["Abs", "Relu"]
    (place,) = (tmp_path / "found" / "findings").iterdir()
    assert {path.name for path in place.iterdir()} == {"golden.onnxtxt", "model.onnx", "model.onnxtxt", "report.md"}
    assert "# RUN: drop_abs_before_relu" in (place / "golden.onnxtxt").read_text()


def test_a_session_goes_on_where_it_was(tmp_path: Path) -> None:
    chosen = {"levels": ("basic",), "seed": "again", "corpus": tmp_path}
    first = graphopt.fuzz(models=2, **chosen)
    both = graphopt.fuzz(models=2, **chosen)
    assert both.models + sum(both.discarded.values()) == 4
    assert both.ops.total() > first.ops.total()
    assert both.distinct == both.models
    with pytest.raises(UsageError, match="another seed"):
        graphopt.fuzz(models=1, levels=("basic",), seed="other", corpus=tmp_path)


def test_a_process_that_starts_late_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_START_SECONDS", (0.0, 120.0))
    found = graphopt.fuzz(levels=("basic",), models=1)
    assert found.models + sum(found.discarded.values()) == 1


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_process_that_the_system_kills_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("KILLED_ONCE", str(tmp_path / "killed"))
    monkeypatch.setattr(session, "serve", serve_unless_first)
    found = graphopt.fuzz(levels=("basic",), models=1)
    assert (tmp_path / "killed").exists()
    assert found.models + sum(found.discarded.values()) == 1


def test_a_session_of_which_no_process_starts_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_START_SECONDS", (0.0, 0.0))
    with pytest.raises(ChildError, match="stopped after 0 s"):
        graphopt.fuzz(levels=("basic",), models=1, corpus=tmp_path)
    assert (tmp_path / "session.json").is_file()


def test_equal_seeds_give_equal_models() -> None:
    one, other = ([sample(f"same/{n}") for n in range(8)] for _ in range(2))
    texts = [[s.model.SerializeToString(deterministic=True) for s in drawn if s is not None] for drawn in (one, other)]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) > 4


@pytest.mark.parametrize(("step", "usable"), [(1000000000, True), (1, False)])
def test_what_counts_too_far_is_no_model(step: int, *, usable: bool) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]> g () => (int64[1] y)
        <int32 start = {{-2000000000}}, int32 limit = {{2000000000}}, int32 step = {{{step}}}>
        {{ r = Range (start, limit, step)  y = Shape (r) }}
    """)
    assert (evaluate(model) is not None) == usable


def test_models_are_valid_and_most_of_them_say_something() -> None:
    worker = Worker(FuzzSettings("valid", subjects=()))
    usable = 0
    for number in range(24):
        drawn = worker.draw(number)
        try:
            usable += drawn is not None and bool(Judge(drawn).expected)
        except NotUsableError:
            continue
    assert usable > 16


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn=models(ops=["Add", "Relu", "Conv", "Reshape"]))
def test_the_strategy_draws_models_that_run(drawn: Sample) -> None:
    outputs = open_runner(Source(drawn.model, "drawn")).run(drawn.feeds[0])
    assert len(outputs) == len(drawn.model.graph.output)


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_structures_are_built_whole(name: str) -> None:
    b = Builder(Draw(name), 17)
    last = TEMPLATES[name](Writer(b))
    assert last == b.order[-1]
    assert Judge(finish(b)).expected


def test_reducing_keeps_what_fails_and_nothing_else() -> None:
    b = Builder(Draw("reduce"), 17)
    TEMPLATES["attention"](Writer(b))
    small = shrink(finish(b), lambda s: any(n.op_type == "Softmax" for n in s.model.graph.node), seconds=60)
    (node,) = small.model.graph.node
    assert (node.op_type, len(node.attribute), small.feeds[0][node.input[0]].size) == ("Softmax", 0, 1)


def test_products_of_nothing_say_nothing() -> None:
    """The runtime leaves what it gives unset, so that two right models differ."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (uint8[2,k] x) => (int32[2,4] y) <uint8[{0},4] w = {{{1}}}> {{ y = MatMulInteger (x, w) }}"""
    something = onnx.parser.parse_model(text.format(1, "1,2,3,4"))
    assert Judge(Sample(something, [{"x": np.ones((2, 1), np.uint8)}])).expected
    nothing = onnx.parser.parse_model(text.format(0, ""))
    with pytest.raises(NotUsableError):
        Judge(Sample(nothing, [{"x": np.ones((2, 0), np.uint8)}]))


@pytest.mark.parametrize(("opset", "sizes", "usable"), [(7, "3,2", False), (7, "2,3", True), (11, "3,2", True)])
def test_branches_of_two_shapes_say_nothing_below_opset_11(opset: int, sizes: str, usable: bool) -> None:
    """Inference calls that an error as soon as it sees it; in the original the list comes from outside."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : {opset}]>
    g (float[1,6] x, bool c, int64[2] s) => (float[?,?] y) <int64[2] t = {{{sizes}}}> {{
        y = If (c) <then_branch = a () => (float[?,?] p) {{ p = Reshape (x, s) }},
                    else_branch = b () => (float[?,?] q) {{ u = Identity (t) q = Reshape (x, u) }}> }}""")
    feed = {"x": np.ones((1, 6), np.float32), "c": np.array(True), "s": np.array([2, 3])}
    try:
        assert Judge(Sample(model, [feed])).expected
        assert usable
    except NotUsableError:
        assert not usable


def test_unknown_peers_and_nothing_to_test_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown peer"):
        graphopt.fuzz(models=1, peers=("nobody",))
    assert run(["--level", "none"], tmp_path).returncode == 2


def commit() -> str:
    """The commit, so that each is tried on models of its own."""
    told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=PLUGIN.parent, capture_output=True, text=True, check=False)
    return told.stdout.strip() or graphopt.__version__


@sound_inference
@pytest.mark.parametrize("seed", ["fixed", commit()], ids=["fixed", "commit"])
def test_graphopt_has_no_fault(seed: str) -> None:
    report = graphopt.fuzz(models=20, seed=seed, reduce=False)  # in a process of its own, which the runtime may end
    assert report.models > 12
    assert report.ok, [(found.kind, found.subject, found.cause, found.message) for found in report.findings]


def test_what_makes_signed_operators_floats_goes_on_as_in_a_level() -> None:
    """Without the pass that makes bytes unsigned, the fusions write again what they were given, for ever."""
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (int8[1,1] x) => (int8[?,?] y) <float s = {1}, int8 z = {1}, int8[1,1] w = {1}, int8 o = {0}, int32 b = {1}> {
       y = com.microsoft.QGemm (x, s, z, w, s, o, b, s, z)
    }"""
    model = onnx.parser.parse_model(text)
    alone = Alone()
    assert alone.takes(Sample(model, [], rules=("fuse_qdq_into_op", "convert_signed_operators")))
    assert alone.optimize(model).hits.keys() >= {"convert_int8_to_uint8", "convert_signed_operators"}


@pytest.mark.parametrize(("cause", "fault"), [(StaleError("Softmax is gone"), "raised"), (None, "")])
def test_what_a_conversion_took_away_itself_is_no_reason_to_refuse(
    monkeypatch: pytest.MonkeyPatch, cause: Exception | None, fault: str
) -> None:
    def refuse(*_: Any) -> None:
        raise ConversionError(13, [], "it is a string") from cause

    monkeypatch.setattr(subjects, "convert", refuse)
    assert Converter().optimize(onnx.ModelProto()).fault == fault


def test_cases_are_chosen_by_what_passes_lack() -> None:
    chosen = {"levels": ("alone",), "passes": ("fuse_gelu", "eliminate_nop_pad"), "until": 30, "seed": "lack"}
    report = graphopt.fuzz(models=600, **chosen)
    assert report.ok
    assert min(report.fired[name] for name in chosen["passes"]) >= 30
    assert report.models < 590  # it ends when nothing lacks
    assert set(report.declined) == set(chosen["passes"])
    assert min(n for reasons in report.declined.values() for n in reasons.values()) >= 3


def test_counts_go_on_from_earlier_reports(tmp_path: Path) -> None:
    chosen = {"levels": ("alone",), "passes": ("eliminate_nop_pad",), "until": 4, "seed": "after"}
    report = graphopt.fuzz(models=60, **chosen)
    place = tmp_path / "report.json"
    place.write_text(json.dumps(report.to_dict()))
    assert report.models > 2
    assert graphopt.fuzz(models=60, after=place, **chosen).models == 1  # which shows that nothing lacks


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"fired": {}, "declined": {"eliminate_nop_pad": 3}}'])
def test_what_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(UsageError, match=r"report\.json is not a report of a session"):
        graphopt.fuzz(models=1, until=4, after=[tmp_path / "report.json"])
    with pytest.raises(UsageError, match="`until`, which is not given"):
        graphopt.fuzz(models=1, after=[tmp_path / "report.json"])


def test_what_is_learned_does_not_depend_on_the_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphopt.fuzzing.learning._BLOCK", 2)
    monkeypatch.setattr("graphopt.fuzzing.learning._LAG", 2)
    monkeypatch.setattr("graphopt.fuzzing.session._RENEWED", 5)  # and neither on how often they are replaced
    chosen = {"levels": ("alone",), "passes": ("fuse_gelu", "eliminate_nop_pad"), "until": 40, "seed": "jobs"}
    found = [graphopt.fuzz(models=14, jobs=jobs, corpus=tmp_path / f"{jobs}", **chosen) for jobs in (1, 2)]
    one, other = ((r.models, r.distinct, r.fired, r.declined, r.forms, r.discarded) for r in found)
    assert one == other
    assert one[1] > 8
    wrote = [(tmp_path / f"{jobs}" / "distinct.json").read_text() for jobs in (1, 2)]
    assert wrote[0] == wrote[1]


def test_variants_of_a_case_are_known_by_their_names() -> None:
    worker = Worker(FuzzSettings("stock", subjects=()))
    case = next(name for name in worker.wishes.sown if name.startswith("fuse_erf_gelu/fires"))
    names = [f"{case}@17#{n}" for n in range(12)]
    assert [str(FragmentName.read(name)) for name in names] == names
    known = Stock("stock", worker.wishes.sown, worker.stock.kinds)
    made = [fragment for name in names if (fragment := known.get(name)) is not None]
    assert len({fragment.form for fragment in made}) > 2
    again = [fragment for name in names if (fragment := worker.stock.get(name)) is not None]
    assert [each.form for each in made] == [each.form for each in again]
    whole = worker.stock.get(case)
    assert whole is not None
    assert Judge(Sample(whole.model, [whole.feed])).expected


def test_of_several_parts_that_which_fails_is_kept() -> None:
    worker = Worker(FuzzSettings("parts", subjects=()))
    gelu = next(name for name in worker.wishes.sown if name.startswith("fuse_erf_gelu/fires"))
    others = [name for name in worker.wishes.sown if name.startswith("eliminate_nop_pad/fires")][:6]
    drawn = worker.draw(1, [*others, gelu])
    assert drawn is not None
    tried = []

    def fails(candidate: Sample) -> bool:
        tried.append(candidate)
        return any(node.op_type == "Erf" for node in candidate.model.graph.node)

    small = narrow(drawn, fails)
    assert fails(small)
    assert len(small.model.graph.node) < len(drawn.model.graph.node) / 1.5
    assert len(tried) < 10


def test_what_was_sown_gives_the_model_again() -> None:
    worker = Worker(FuzzSettings("sown", subjects=()))
    cases = ["eliminate_nop_pad/fires_zero", "eliminate_nop_reshape/keeps_unknown", "fuse_div_mul/fires_plain"]
    known = [case for case in cases if case in worker.wishes.sown]
    one, other = (worker.draw(3, known) for _ in range(2))
    assert one is not None
    assert other is not None
    assert one.model.SerializeToString(deterministic=True) == other.model.SerializeToString(deterministic=True)
    assert set(one.rules) <= {case.partition("/")[0] for case in known}


def test_what_a_case_leaves_open_stays_open() -> None:
    worker = Worker(FuzzSettings("open", subjects=()))
    cases = ["convert_arg_max_to_top_k/fires_smallest", "eliminate_nop_size/keeps_unknown_rank"]
    for case in cases:
        drawn = [found for index in range(4) if (found := worker.draw(index, [case])) is not None]
        inputs = [info for each in drawn for info in each.model.graph.input]
        assert any(map(is_open, inputs)), case
        assert all(Judge(each).expected for each in drawn)


class FixedRandom(random.Random):
    """Chooses one number."""

    def __init__(self, number: int) -> None:
        super().__init__(0)
        self.number = number

    def randrange(self, *_: int) -> int:
        return self.number


def test_the_last_nodes_go_into_branches() -> None:
    worker = Worker(FuzzSettings("branch", subjects=()))
    case = next(each for name, each in worker.wishes.sown.items() if name.startswith("fuse_erf_gelu/fires"))
    model = case.model()
    nodes = list(model.graph.node)
    cut = len(nodes) - 1
    assert KINDS["branch"](model, FixedRandom(cut))
    assert [node.op_type for node in model.graph.node] == [*(node.op_type for node in nodes[:cut]), "If"]
    inner = [node for attribute in model.graph.node[-1].attribute for node in attribute.g.node]
    assert [node.op_type for node in inner] == [nodes[cut].op_type] * 2
    assert all(list(node.input) == list(nodes[cut].input) for node in inner)  # computed in front of the branches
    found = fragment(case.rule, model, Draw("branch"))
    assert found is not None
    assert Judge(Sample(found.model, [found.feed])).expected


def test_operators_that_no_model_can_have_are_refused_wherever_they_are_given() -> None:
    for call in (
        lambda: draw_sample(1, ["Nope"]),
        lambda: models(["Relu", "Nope"]),
        lambda: graphopt.fuzz(ops=["Nope"]),
    ):
        with pytest.raises(UsageError, match="expected operators of the standard, found 'Nope'"):
            call()
