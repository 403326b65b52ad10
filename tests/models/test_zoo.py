"""Every level on the graphs of the zoo: the same answers, no pass that fails, nothing left to do the second time."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from benchmarks.skeleton import load_skeleton, names, sample_inputs
from graphopt import PassManager

LEVELS = ("basic", "extended", "all")
SAMPLE = [
    key
    for key in (
        "ts/mobilenetv3_small_100",
        "dynamo_raw/mobilenetv2_100",
        "ts/shufflenet_v2_x1_0_dyn",
        "ts/bert_opset12",
    )
    if key in names()
]
REST = [key for key in names() if key not in SAMPLE]


def answers(model, feed):
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 3
    settings.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    return session.run(None, feed)


def check(key):
    model = load_skeleton(key)
    feed = sample_inputs(key, model)
    wanted = answers(model, feed)
    allowed = max(1e-4, 10 * sensitivity(model, feed, wanted))
    for level in LEVELS:
        result = PassManager(level).run(model)
        assert not result.failures, [f"{level}: {failure}" for failure in result.failures]
        if level == "basic":
            onnx.checker.check_model(result.model)
            again = PassManager(level).run(result.model)
            assert not again.changed, f"a second run still fires {again.hits}"
        worst = distance(answers(result.model, feed), wanted)
        assert worst < allowed, f"{level}: relative error {worst:.2g}, allowed {allowed:.2g}"


def distance(got, wanted):
    return max(np.abs(one - two).max() / np.abs(two).max() for one, two in zip(got, wanted, strict=True))


def sensitivity(model, feed, wanted):
    """How far the last bits of the input move the answer: sharp attention with drawn weights can be chaotic."""
    noise = np.random.default_rng(0)
    nudged = {
        name: (x * (1 + 1e-6 * noise.standard_normal(x.shape))).astype(x.dtype) if x.dtype == np.float32 else x
        for name, x in feed.items()
    }
    return distance(answers(model, nudged), wanted)


@pytest.mark.parametrize("key", SAMPLE)
def test_sample_keeps_its_answers(key):
    check(key)


@pytest.mark.slow
@pytest.mark.parametrize("key", REST)
def test_every_model_keeps_its_answers(key):
    check(key)
