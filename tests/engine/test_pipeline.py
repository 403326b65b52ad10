"""Pipelines as text, the registry, levels, and a third party's passes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphopt
from graphopt.errors import ModelError, PassError, PluginWarning, UsageError
from graphopt.manager import PassManager
from graphopt.pipeline import LEVELS, Pipeline, Registry, registry
from graphopt.rewrite import Level, Numerics, OpRule, Target

MODEL = onnx.parser.parse_model(
    '<ir_version: 9, opset_import: ["" : 18]> g (float[2] x) => (float[2] y) { a = Identity (x)  y = Relu (a) }'
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no passes given"),
        ("a,,b", "expected a pass name"),
        ("repeat(a", "expected ',' or '\\)', found its end"),
        ("{a,b", "expected ',' or '}', found its end"),
        ("a b", "expected ',' or the end, found 'b'"),
        ("nosuch/*", "unknown pass family 'nosuch'"),
        ("elimination/eliminate_identiti", "unknown pass 'eliminate_identiti'; did you mean eliminate_identity"),
        ("fusion/eliminate_identity", "eliminate_identity is elimination/eliminate_identity@basic"),
        ("elimination/eliminate_identity@extended", "eliminate_identity is elimination/eliminate_identity@basic"),
        ("fusion/*@nosuch", "unknown level 'nosuch'"),
        ("eliminate_identiti", r"did you mean eliminate_identity\?$"),
        ("quick_gelu", r"did you mean fuse_quick_gelu or convert_quick_gelu_to_silu\?$"),
        ("eliminate_nop", r"(eliminate_nop_\w+ or ){4}eliminate_nop_\w+, \.\.\.\?$"),
    ],
)
def test_malformed_pipelines_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PassManager(passes=text)


names = st.sampled_from(["eliminate_identity", "fusion/*", "folding/*@extended", "a_pass"])
stages = st.recursive(
    st.one_of(names, st.lists(names, min_size=1, max_size=3).map(lambda parts: "{" + ",".join(parts) + "}")),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"repeat({','.join(parts)})"),
)


@given(st.lists(stages, min_size=1, max_size=4).map(",".join))
def test_pipelines_read_back(text: str) -> None:
    assert str(Pipeline.parse(text)) == text
    assert Pipeline.parse(text.replace(",", " , ")) == Pipeline.parse(text)


@pytest.mark.parametrize("level", list(Level))
def test_levels_are_pipelines_that_exist(level: Level) -> None:
    assert str(Pipeline.parse(LEVELS[level])) == LEVELS[level]
    assert "eliminate_identity" in PassManager(level).plan.names()


@pytest.mark.parametrize("numerics", list(Numerics))
@pytest.mark.parametrize("level", list(Level))
def test_levels_keep_to_the_numerics_that_are_allowed(level: Level, numerics: Numerics) -> None:
    names = PassManager(level, numerics=numerics).plan.names()
    assert [name for name in names if registry().card(name).numerics > numerics] == []


def test_a_family_has_passes_by_name_that_it_does_not_have_by_itself() -> None:
    """And neither where the numerics do not allow them."""
    name = "convert_signed_operators"
    assert PassManager(passes=f"fusion/{name}@extended").plan.names() == [name]
    assert name not in PassManager(passes="fusion/*@extended").plan.names()
    assert PassManager(passes=f"fusion/{name}@extended", numerics="exact").plan.names() == []
    assert PassManager(passes=name, numerics="exact").plan.names() == [name]


def test_skip_leaves_a_pass_out() -> None:
    assert "eliminate_identity" not in PassManager(skip=["eliminate_identity"]).plan.names()
    with pytest.raises(UsageError, match="unknown pass 'nosuch'"):
        PassManager(skip=["nosuch"])
    assert PassManager(skip=None).plan.names() == PassManager().plan.names()


@pytest.mark.parametrize(
    "settings", [{"level": "nosuch"}, {"numerics": "nosuch"}, {"target": "nosuch"}, {"target": "avx2/nchwc16"}]
)
def test_unknown_settings_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="nosuch|avx2/nchwc16"):
        PassManager(**settings)


def test_runs_with_the_same_settings_have_their_passes_in_common() -> None:
    first, again, other = PassManager("basic"), PassManager("basic"), PassManager("basic", skip=["fold_constants"])
    assert first.plan is again.plan
    assert other.plan.names() == [name for name in first.plan.names() if name != "fold_constants"]


def test_of_two_passes_of_one_name_the_first_stays() -> None:
    with pytest.warns(PluginWarning, match="pass 'p' of two is left out: one has one of that name"):
        assert Registry({"one": {"p": "m:P"}, "two": {"p": "m:P"}}).names() == ("p",)


class Unfinished(OpRule):
    """A pass without a rewrite."""

    name = "unfinished"


def test_a_pass_that_cannot_be_loaded_is_named() -> None:
    with pytest.raises(PassError, match="pass 'p' of one cannot be loaded from no.such:P"):
        Registry({"one": {"p": "no.such:P"}}).rule_class("p")
    with pytest.raises(PassError, match="is not a pass of that name"):
        Registry({"one": {"p": "graphopt_passes.elimination.nop:EliminateIdentity"}}).rule_class("p")
    with pytest.raises(PassError, match="is not a pass of that name"):
        Registry({"one": {"p": "graphopt_passes.elimination.nop:ChangesNothing"}}).rule_class("p")
    with pytest.raises(PassError, match=f"{__name__}:Unfinished lacks rewrite"):
        Registry({"one": {"unfinished": f"{__name__}:Unfinished"}}).rule_class("unfinished")


def test_a_model_written_for_another_target_is_refused() -> None:
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    model.metadata_props.add(key="graphopt.target", value="neon/nchwc16")
    with pytest.raises(ModelError, match="written for target neon/nchwc16"):
        PassManager(target="avx2").run(model)
    assert PassManager(target="neon").run(model).changed


def test_targets_read_back() -> None:
    for name in ("avx2", "avx512", "neon"):
        assert Target.parse(str(Target.parse(name))) == Target.parse(name)


def test_optimize_leaves_its_input_alone_unless_told_otherwise() -> None:
    before = MODEL.SerializeToString()
    result = graphopt.optimize(MODEL)
    assert [n.op_type for n in result.graph.node] == ["Relu"]
    assert MODEL.SerializeToString() == before
    copy = onnx.ModelProto.FromString(before)
    assert graphopt.optimize(copy, inplace=True) is copy
    assert [n.op_type for n in copy.graph.node] == ["Relu"]


def test_a_run_reports_what_it_did() -> None:
    result = PassManager(explain=True).run(MODEL)
    assert result.changed
    assert result.before.nodes == 2
    assert result.after.nodes == 1
    assert result.hits == {"eliminate_identity": 1}
    assert result.stats["eliminate_identity"].hits == 1
    assert str(result.events[0]) == "eliminate_identity: Identity(a) -> nothing"


def test_optimizing_twice_changes_nothing_more() -> None:
    once = graphopt.optimize(MODEL)
    assert graphopt.optimize(once).SerializeToString() == once.SerializeToString()


def test_the_built_in_library_comes_in_by_entry_point() -> None:
    assert registry().owner("eliminate_identity") == "graphopt"


def test_importing_graphopt_imports_nothing_heavy() -> None:
    script = "import sys, graphopt; print(sorted(m for m in ('onnx', 'numpy', 'onnxruntime', 'networkx', 'rich') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("level", ["basic", "all"])
def test_the_same_bytes_come_out_for_the_same_bytes(level: str) -> None:
    """Neither hash seeds nor addresses may show: two processes give one result."""
    script = (
        "import hashlib, graphopt\n"
        "from benchmarks.skeleton import load_skeleton\n"
        "for name in ('ts/shufflenet_v2_x1_0', 'dynamo_raw/bert_dyn'):\n"
        f"    model = graphopt.optimize(load_skeleton(name), level={level!r}, target='avx512')\n"
        "    print(hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest())\n"
    )
    root = Path(__file__).parents[2]
    results = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment, cwd=root, check=False
        )
        assert done.stderr == ""
        results.append(done.stdout)
    assert results[0] == results[1]
