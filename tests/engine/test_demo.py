"""Demo models: raw as an exporter leaves them, deterministic, and numerically alive all the way down."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import graphopt
from graphopt import demo, verify
from graphopt.demo.moments import Moments

NETWORKS = ("mobilenet_v2", "resnet18")
SINGLE = ("conv_alone", "conv_maxpool")
WRITTEN = ("mobilenet_v3", "mobilenet_v2_int8")
"""What other tools wrote."""


@cache
def built(name: str) -> onnx.ModelProto:
    return demo.MODELS[name]()


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def images(count: int, seed: int = 0) -> np.ndarray:
    """Half of them noise, half of them patches of colour, so that they differ in more than one way."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((count, 3, 224, 224))
    patches = np.kron(rng.standard_normal((count, 3, 14, 14)), np.ones((1, 1, 16, 16)))
    return np.where(np.arange(count)[:, None, None, None] % 2, noise, patches).astype(np.float32)


def attributes(node: onnx.NodeProto) -> dict:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def test_the_models_by_name():
    assert set(demo.MODELS) == {*NETWORKS, *SINGLE, *WRITTEN}
    assert all(demo.MODELS[name] is getattr(demo, name) for name in demo.MODELS)


@pytest.mark.parametrize("name", demo.MODELS)
def test_valid_and_the_same_bytes_each_time(name):
    model = built(name)
    onnx.checker.check_model(model, full_check=True)
    assert demo.MODELS[name]().SerializeToString() == model.SerializeToString()
    names = [n.name for n in model.graph.node]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", NETWORKS)
def test_nothing_has_been_optimized(name):
    graph = built(name).graph
    count = Counter(n.op_type for n in graph.node)
    assert count["BatchNormalization"] == count["Conv"] == {"mobilenet_v2": 52, "resnet18": 20}[name]
    assert count["Identity"] > 0
    assert count["Dropout"] == 1
    assert count["Constant"] >= 5
    assert all(len(n.input) == 2 for n in graph.node if n.op_type == "Conv"), "the bias is BatchNormalization's"
    producer = {o: n for n in graph.node for o in n.output}
    chain = ["Reshape", "Concat", "Unsqueeze", "Gather", "Shape"]
    node = next(n for n in graph.node if n.op_type == "Reshape")
    found = [node.op_type]
    node = producer[node.input[1]]
    while node.op_type != "Shape":
        found.append(node.op_type)
        node = producer[node.input[0]]
    assert [*found, "Shape"] == chain


def test_relu6_is_a_clip_with_two_constant_nodes():
    graph = built("mobilenet_v2").graph
    producer = {o: n for n in graph.node for o in n.output}
    clips = [n for n in graph.node if n.op_type == "Clip"]
    assert len(clips) == 35
    for clip in clips:
        low, high = (onnx.numpy_helper.to_array(producer[i].attribute[0].t) for i in clip.input[1:])
        assert (low, high) == (0.0, 6.0)


@pytest.mark.parametrize("name", NETWORKS)
def test_batch_is_symbolic(name):
    graph = built(name).graph
    for value in (*graph.input, *graph.output):
        assert value.type.tensor_type.shape.dim[0].dim_param == "batch"
    runner = session(built(name))
    x = images(3)
    together = runner.run(None, {"input": x})[0]
    assert together.shape == (3, 1000)
    for i in range(3):
        alone = runner.run(None, {"input": x[i : i + 1]})[0]
        np.testing.assert_allclose(alone[0], together[i], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_are_finite_and_vary_with_the_input(name):
    y = session(built(name)).run(None, {"input": images(4)})[0]
    assert np.isfinite(y).all()
    spread = y.std(axis=1).mean()
    assert 0.1 < spread < 10
    between = np.abs(y[:, None] - y[None]).max(axis=2)[~np.eye(4, dtype=bool)]
    assert between.min() > 0.2 * spread, "two images must not give the same answer"


@pytest.mark.parametrize("name", NETWORKS)
def test_activations_stay_of_sane_magnitude(name):
    model = onnx.ModelProto.FromString(built(name).SerializeToString())
    inside = [n.output[0] for n in model.graph.node if n.op_type in {"BatchNormalization", "Add"}]
    model.graph.output.extend(onnx.helper.make_tensor_value_info(v, 1, ["batch", None, None, None]) for v in inside)
    values = session(model).run(None, {"input": images(2)})[1:]
    deviations = [float(v.std()) for v in values]
    assert min(deviations) > 0.3
    assert max(deviations) < 10
    assert all(np.isfinite(v).all() for v in values)
    dead = [float((v.std(axis=(0, 2, 3)) < 1e-3).mean()) for v in values]
    assert max(dead) < 0.1, "hardly any channel is constant"


@pytest.mark.parametrize("name", NETWORKS)
def test_statistics_are_not_those_of_a_fresh_network(name):
    graph = built(name).graph
    arrays = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    for node in graph.node:
        if node.op_type == "BatchNormalization":
            scale, shift, mean, var = (arrays[i] for i in node.input[1:])
            assert (var > 0).all()
            assert min(scale.std(), shift.std(), mean.std()) > 0.01


def test_no_weight_is_denormal():
    for name in demo.MODELS:
        for tensor in built(name).graph.initializer:
            array = onnx.numpy_helper.to_array(tensor)
            if array.dtype.kind != "f":
                continue
            assert not ((np.abs(array) < np.finfo(array.dtype).tiny) & (array != 0)).any()


def test_the_pair_of_single_convolutions():
    alone, pooled = built("conv_alone"), built("conv_maxpool")
    assert [n.op_type for n in alone.graph.node] == ["Conv"]
    assert [n.op_type for n in pooled.graph.node] == ["Conv", "MaxPool"]
    for model in (alone, pooled):
        assert model.opset_import[0].version == 13
        weight = onnx.numpy_helper.to_array(model.graph.initializer[0])
        assert weight.shape == (32, 3, 5, 5)
        assert attributes(model.graph.node[0])["kernel_shape"] == [5, 5]
    assert attributes(pooled.graph.node[1])["kernel_shape"] == [2, 2]
    assert list(alone.graph.initializer) == list(pooled.graph.initializer)
    x = images(1)
    y, z = (session(m).run(None, {"input": x})[0] for m in (alone, pooled))
    assert y.shape == (1, 32, 220, 220)
    np.testing.assert_array_equal(z, y.reshape(1, 32, 110, 2, 110, 2).max(axis=(3, 5)))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_small_mistake_in_a_demo_model_is_seen(name):
    wrong = onnx.ModelProto.FromString(built(name).SerializeToString())
    node = [n for n in wrong.graph.node if n.op_type == "BatchNormalization"][7]
    next(a for a in node.attribute if a.name == "epsilon").f = 1e-2
    report = verify.compare(built(name), wrong, sets=["ordinary"], dims={"batch": 1})
    assert report.status == "mismatch"


@pytest.mark.parametrize("mean", [-1.0, 0.0, 0.5, 4.0])
def test_moments_agree_with_a_sample(mean):
    rng = np.random.default_rng(0)
    moments = Moments(np.array([mean]), np.array([2.0]))
    z = rng.normal(mean, np.sqrt(2.0), 400_000)
    for high, got in ((np.inf, moments.through_clip()), (6.0, moments.through_clip(6.0))):
        sample = np.clip(z, 0.0, high)
        assert got.mean[0] == pytest.approx(sample.mean(), abs=0.01)
        assert got.var[0] == pytest.approx(sample.var(), rel=0.02)


def test_moments_through_a_grouped_convolution():
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((6, 2, 3, 3))
    moments = Moments(np.arange(4.0), np.array([1.0, 4.0, 9.0, 0.25]))
    got = moments.through_conv(weight, groups=2)
    x = rng.normal(np.arange(4.0)[:, None], np.sqrt(moments.var)[:, None], (200_000, 4, 9)).reshape(-1, 2, 18)
    flat = weight.reshape(2, 3, 18)
    y = np.einsum("ngk,gok->ngo", x, flat).reshape(-1, 6)
    np.testing.assert_allclose(got.mean, y.mean(axis=0), atol=0.1)
    np.testing.assert_allclose(got.var, y.var(axis=0), rtol=0.02)


README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("row", "settings"),
    [
        ("as exported", None),
        (r"\*\*graphopt\*\*, standard operators only", {}),
        (r"\*\*graphopt\*\*, for this machine", {"level": "all", "target": "avx512"}),
    ],
)
def test_the_readme_states_what_is_left(row: str, settings: dict[str, Any] | None) -> None:
    (stated,) = re.findall(rf"^\| {row} \|(.*)\|$", README, re.MULTILINE)
    models = [demo.mobilenet_v3(), demo.mobilenet_v2()]
    left = [model if settings is None else graphopt.optimize(model, **settings) for model in models]
    assert [int(cell.strip(" *")) for cell in stated.split("|")][:2] == [len(model.graph.node) for model in left]


def test_the_readme_states_what_is_left_with_avx2() -> None:
    (stated,) = re.findall(r"the runtime leaves \d+ nodes, graphopt (\d+)", README)
    assert int(stated) == len(graphopt.optimize(demo.mobilenet_v3(), level="all", target="avx2").graph.node)
