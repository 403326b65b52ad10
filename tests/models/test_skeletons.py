"""The committed skeletons: whole, the same on every load, valid, and with answers that mean something."""

import hashlib

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from benchmarks.skeleton import FOLDER, is_recipe, load_skeleton, names, read_skeleton, sample_inputs, tensors
from benchmarks.zoo import ZOO

SAMPLE = [
    key
    for key in (
        "ts/mobilenetv3_small_100",
        "dynamo_raw/shufflenet_v2_x1_0",
        "dynamo/bert_dyn",
        "ts/crnn",
        "dynamo_raw/llama",
    )
    if key in names()
]
REST = [key for key in names() if key not in SAMPLE]


def run(model, feed):
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 3
    settings.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    return session.run(None, feed)


def check(key):
    model = load_skeleton(key)
    assert not any(is_recipe(tensor) for tensor in tensors(model))
    onnx.checker.check_model(model)
    one, two = (run(model, sample_inputs(key, model, seed=seed)) for seed in (0, 1))
    for first, second in zip(one, two, strict=True):
        assert np.isfinite(first).all()
        assert 1e-3 < first.std() < 1e3
        assert np.abs(first - second).max() > 1e-3 * first.std(), "the answer does not depend on the input"


@pytest.mark.parametrize("key", SAMPLE)
def test_sample_is_sane(key):
    check(key)


@pytest.mark.slow
@pytest.mark.parametrize("key", REST)
def test_every_skeleton_is_sane(key):
    check(key)


def test_refill_is_deterministic():
    key = SAMPLE[0]
    digests = {hashlib.sha256(load_skeleton(key).SerializeToString()).hexdigest() for _ in range(2)}
    assert len(digests) == 1


def test_refill_gives_the_numbers_of_the_day_it_was_written():
    model = onnx.ModelProto()
    tensor = model.graph.initializer.add(name="w", data_type=onnx.TensorProto.FLOAT, dims=[3, 2])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for field, value in {"location": "*skeleton*", "seed": "7", "mean": "0.5", "std": "2"}.items():
        tensor.external_data.add(key=field, value=value)
    from benchmarks.skeleton import refill

    got = onnx.numpy_helper.to_array(refill(model).graph.initializer[0])
    want = np.array(
        [
            0.9076937437057495,
            3.27610182762146,
            2.8054542541503906,
            -1.6109368801116943,
            -1.679546594619751,
            -1.1961073875427246,
        ],
        np.float32,
    ).reshape(3, 2)
    np.testing.assert_array_equal(got, want)


def test_skeletons_are_of_the_zoo_and_small():
    files = sorted(FOLDER.rglob("*.onnx.gz"))
    assert {f"{path.parent.name}/{path.name.removesuffix('.onnx.gz')}" for path in files} == set(names())
    assert sum(path.stat().st_size for path in files) < 20_000_000
    assert len({key.split("/")[1] for key in names()}) >= 30
    assert {key.split("/")[1] for key in names()} <= set(ZOO)


def test_no_path_of_the_exporting_machine_is_left():
    for key in SAMPLE:
        model = read_skeleton(FOLDER / f"{key}.onnx.gz")
        for node in model.graph.node:
            assert not any('File "/' in item.value for item in node.metadata_props), node.name
