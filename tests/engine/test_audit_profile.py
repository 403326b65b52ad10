"""Profiles: provenance across optimizers, denormals, thread tables."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

from graphopt import demo
from graphopt.audit.bench import Variant
from graphopt.audit.machine import Machine
from graphopt.audit.profile import alone, kernels, profile
from graphopt.audit.profile.alone import flops
from graphopt.audit.profile.findings import findings
from graphopt.audit.profile.forms import other_form
from graphopt.audit.profile.peak import Peak
from graphopt.audit.profile.provenance import Provenance, blocks
from graphopt.audit.profile.record import Block, Denormals, LevelTotal, Lone, Part, Profile
from graphopt.audit.profile.values import denormals
from graphopt.audit.profile.view import render_profile
from graphopt.audit.settings import Settings
from graphopt.audit.statistics import Spread
from graphopt.errors import UsageError
from graphopt.ir import Model, Node
from graphopt.peers import by_name
from graphopt.rewrite import Level


@pytest.fixture(scope="module")
def raw(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("models") / "mobilenet.onnx"
    onnx.save(demo.mobilenet_v2(), path)
    return path


@pytest.fixture(scope="module", params=["ort-all", "ort-extended", "graphopt"])
def optimized(request, raw: Path, tmp_path_factory) -> Model:
    path = tmp_path_factory.mktemp("optimized") / "model.onnx"
    if request.param == "graphopt":
        Settings(Level.ALL).run(raw)[0].save(path)
    else:
        assert by_name(request.param).optimize_file(raw, path).ok
    return Model.load(path)


def test_every_node_that_runs_has_its_origins(raw: Path, optimized: Model) -> None:
    original = Model.load(raw)
    provenance = Provenance(original, optimized)
    owners: dict[str, Node] = {}
    for node in optimized.graph:
        origins = provenance.origins(node)
        assert bool(origins) != provenance.hidden(node), node
        for origin in origins:
            owner = owners.setdefault(origin.name, node)
            # A node may become two that follow one another, like a Gemm with its operands swapped and a Transpose.
            follows = any(v is not None and v.producer is owner for v in node.inputs)
            assert owner is node or follows, f"{origin.name} claimed twice"
    worked = {"Conv", "BatchNormalization", "Clip", "Add", "Gemm", "GlobalAveragePool"}
    assert {n.name for n in original.graph if n.op in worked} <= owners.keys()


def test_blocks_are_the_smallest_common_groups() -> None:
    graph = Model.load(demo.resnet18()).graph
    a, b, c, d, *_ = graph
    numbers = blocks([[[a], [b], [c], [d]], [[a, b], [c]], [[b], [c, d]]])
    assert numbers[a] == numbers[b] == 0
    assert numbers[c] == numbers[d] == 1


def test_flops_of_convolutions_and_products() -> None:
    def node(op: str):
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
        graph = helper.make_graph(
            [helper.make_node(op, ["x", "w"], ["y"])],
            "g",
            [x, helper.make_tensor_value_info("w", 1, None)],
            [helper.make_tensor_value_info("y", 1, None)],
        )
        return next(iter(Model.load(helper.make_model(graph, ir_version=8)).graph))

    x, w, y = np.zeros((1, 3, 8, 8)), np.zeros((16, 3, 3, 3)), np.zeros((1, 16, 6, 6))
    assert flops(node("Conv"), [x, w], y) == 2 * 16 * 36 * 27
    assert flops(node("MatMul"), [np.zeros((5, 7)), np.zeros((7, 3))], np.zeros((5, 3))) == 2 * 5 * 7 * 3
    assert flops(node("Add"), [x, x], x) is None


def test_denormals_are_counted() -> None:
    assert denormals(np.array([0.0, 1e-40, -1e-39, 1e-30, np.nan, np.inf], np.float32)) == 2
    assert denormals(np.array([1e-6, 1.0], np.float16)) == 1
    assert denormals(np.array([1, 2])) == 0


def small(weight: float) -> onnx.ModelProto:
    w = numpy_helper.from_array(np.full((16, 16, 3, 3), weight, np.float32), "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["v"], name="conv"),
        helper.make_node("Relu", ["v"], ["y"], name="relu"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16, 12, 12])
    graph = helper.make_graph(nodes, "small", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_a_whole_profile() -> None:
    parts = ("levels", "denormals", "threads")
    found = profile(small(1e-40), parts=parts, rounds=3, budget=0.2, thread_counts=(1,), dims={"n": 2})
    assert found.inputs == {"x": [2, 16, 12, 12]}
    assert [level.name for level in found.levels] == ["graphopt", "none", "basic", "extended", "all"]
    (block,) = [b for b in found.blocks if b.names == ["conv", "relu"]]
    assert set(block.parts) == {level.name for level in found.levels}
    assert block.parts["none"].ops == ["Conv", "Relu"]
    assert [op.rpartition("::")[2] for op in block.parts["all"].ops] == ["Conv"]
    assert block.parts["all"].hidden_ops
    assert found.level("all").hidden > 0
    assert found.denormals is not None
    assert found.denormals.weights == {"w": 16 * 16 * 9}
    assert set(found.denormals.flushed) == set(found.denormals.cured) == {"none", "all"}
    assert found.denormals.penalty is not None
    assert any("session.set_denormal_as_zero" in text for text in found.findings)
    assert any("products with denormal weights" in text for text in found.findings)
    assert found.contention[0].beside is not None
    assert any("denormal numbers: 2304 in weights" in text for text in found.findings)
    assert found.to_dict()["schema"] == 1


def test_a_profile_of_a_model_with_its_weights_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    onnx.save(small(1e-40), path, save_as_external_data=True, location="w.data", size_threshold=0)
    found = profile(path, parts=("levels", "denormals"), rounds=2, budget=0, dims={"n": 1})
    assert [level.failure for level in found.levels] == [""] * 5
    assert found.denormals is not None
    assert found.denormals.weights == {"w": 16 * 16 * 9}


@pytest.mark.parametrize(("budget", "rounds"), [(0.0, 3), (600.0, 5)])
def test_rounds_of_slow_models_end_with_the_budget(
    budget: float, rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half precision without optimization takes seconds for a run; the events are read for as many as there were."""
    seen: list[int] = []

    class Order:
        def shuffle(self, order: list[str]) -> None:
            seen.append(len(order))

    monkeypatch.setattr(kernels.random, "Random", lambda _: Order())
    text = '<ir_version: 9, opset_import: ["" : 17]> g (float[3] x) => (float[3] y) { y = Exp (x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    variant = Variant("none", str(tmp_path / "m.onnx"), "none")
    job = kernels.KernelJob([variant], {"x": np.ones(3, np.float32)}, 1, 5, budget)
    (found,) = kernels.measure_kernels(job)
    assert (len(seen), [kernel.calls for kernel in found.kernels], found.failure) == (rounds, [1.0], "")


def test_a_gain_without_denormals_is_not_told_as_one_of_flushing() -> None:
    measured = Denormals({}, {}, {}, (1, 1, 1), speedup={"all": Spread(5.0, 4.0, 6.0, 9), "none": Spread(1.0, 1, 1, 9)})
    found = Profile("m", {}, Machine("", 1, 0, "", "", {}, None), 1, denormals=measured)
    of_all, of_none = (text for text in findings(found) if "denormal_as_zero" in text)
    assert "noise" in of_all
    assert "makes no difference" in of_none


@pytest.mark.parametrize("width", [80, 200])
def test_shapes_and_other_forms_are_shown_at_every_width(width: int) -> None:
    lone = Lone("all", "conv", "Conv", "[1, 3] x [3, 4] -> [1, 4]", 1.0, form="near the machine's limit")
    found = Profile("m", {}, Machine("", 1, 0, "", "", {}, None), 1, lone=[lone])
    console = Console(file=StringIO(), width=width)
    for part in render_profile(found, width):
        console.print(part)
    shown = " ".join(console.file.getvalue().split())
    assert lone.shapes in shown
    assert lone.form in shown


@pytest.mark.parametrize("width", [80, 100, 200])
def test_long_names_are_shortened_to_what_fits(width: int) -> None:
    name = "/encoder/layer.0/intermediate/dense/" + 10 * "MatMul"
    levels = [LevelTotal(level, 3, 1.0, 1.0) for level in ("basic", "extended", "all", "ort-all")]
    block = Block(
        ["MatMul", "Add"], [name], {level.name: Part(["FusedMatMul"], [name], [0.2], 0.2) for level in levels}
    )
    lone = Lone("all", name, "MatMul", "[1, 3] x [3, 4] -> [1, 4]", 1.0, 1.0, 1.0)
    found = Profile("m", {}, Machine("", 1, 0, "", "", {}, None), 1, levels=levels, blocks=[block], lone=[lone])
    console = Console(file=StringIO(), width=width)
    for part in render_profile(found, width):
        console.print(part)
    text = console.file.getvalue()
    for title in ("Operators, aligned", "The slowest operators"):
        words = text[text.index(title) :].split("MatMul", 1)[1].split()
        shown = next(word for word in words if word.startswith("…"))
        assert name.endswith(shown[1:])
        assert 12 <= len(shown) <= 40


def test_unknown_part() -> None:
    with pytest.raises(UsageError, match="unknown part 'magic'"):
        profile(small(1.0), parts=("magic",))


def test_an_operator_alone(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(alone, "_FLUSH_LIMIT", 1 << 20)
    path = tmp_path / "small.onnx"
    onnx.save(small(0.5), path)
    feed = {"x": np.ones((1, 16, 12, 12), np.float32)}
    peak = Peak(100.0, 10.0, 1, 1 << 20)
    found = alone.time_alone("none", path, {"conv": 0.1, "relu": 0.01}, feed=feed, peak=peak)
    assert [lone.op for lone in found] == ["Conv", "Relu"]
    for lone in found:
        assert lone.warm is not None
        assert lone.cold is not None
        assert lone.failure == ""
    conv = found[0]
    assert conv.shapes == "[1, 16, 12, 12] x [16, 16, 3, 3] -> [1, 16, 10, 10]"
    assert conv.flops == 2 * 1600 * 144
    assert conv.compute == pytest.approx(conv.flops / 1e-4 / 100e9)
    assert found[1].memory == pytest.approx(2 * 6400 / 1e-5 / 10e9)


@pytest.mark.parametrize(
    ("inside", "warm", "cold", "word"),
    [
        (2.0, 1.0, 2.1, "not in the cache there"),
        (9.0, 1.0, 2.1, "more than the cache explains"),
        (9.0, 4.0, 2.1, "more than the cache explains"),
        (1.1, 1.0, 2.1, ""),
        (1.4, 1.0, 1.05, ""),
    ],
)
def test_the_cache_is_blamed_only_for_what_it_costs(inside: float, warm: float, cold: float, word: str) -> None:
    lone = Lone("all", "conv", "Conv", "", inside, warm, cold)
    told = findings(Profile("m", {}, Machine.here(), 1, lone=[lone]))
    assert (word in told[0]) if word else told == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(float[1,20,64,64] x) => (float[1,20,64,64] y) { y = Softmax <axis = 1> (x) }", "convert_softmax_to_rows"),
        ("(float[64,64] x) => (float[64,64] y) { y = Softmax (x) }", "the normalized elements of x are contiguous"),
        ("(float[64,64] x) => (float[64,64] y) { y = Relu (x) }", ""),
        (
            "(float[1,64,28,28] x) => (float[1,64,28,28] y) <float[1] s = {0.25}> { y = PRelu (x, s) }",
            "replace_prelu_with_leaky_relu",
        ),
    ],
)
def test_other_forms_of_an_operator_are_named(text: str, expected: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> g {text}')
    found = other_form(model)
    assert found.startswith(expected) if expected else not found


def test_below_is_what_the_better_used_limit_leaves() -> None:
    assert Lone("all", "conv", "Conv", "", 1.0, compute=0.25, memory=0.1).below == 4
    assert Lone("all", "conv", "Conv", "", 1.0).below is None


def test_an_operator_without_a_name_is_called_by_what_it_is() -> None:
    assert Lone("all", "", "com.microsoft::FusedConv", "", 1.0).called() == "FusedConv"
    assert Lone("all", "/layer/conv", "Conv", "", 1.0).called(5) == "Conv …conv"
