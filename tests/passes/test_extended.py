"""Level extended as a whole: what single passes' cases cannot show."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import onnx
import pytest

from graphopt import optimize
from graphopt.manager import PassManager
from graphopt.system.extras import release_of
from graphopt.verify import assert_equivalent
from graphopt_passes.fusion.contrib import normalization, operands

QUANTIZED = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,4,8,8] x) => (float[1,4] y)
<float s = {0.02}, int8 z = {-8}, int8[4,4,1,1] w = {1, 2, 3, 4, -5, 6, 7, 8, 9, -10, 11, 12, 13, 14, -15, 16},
 float ws = {0.01}, int8 wz = {0}, int64[2] shape = {1, 4}>
{
  q = QuantizeLinear (x, s, z)
  d = DequantizeLinear (q, s, z)
  v = DequantizeLinear (w, ws, wz)
  a = Conv (d, v)
  r = Relu (a)
  e = QuantizeLinear (r, s, z)
  f = DequantizeLinear (e, s, z)
  b = Conv (f, v)
  h = QuantizeLinear (b, s, z)
  i = DequantizeLinear (h, s, z)
  c = Add (i, f)
  j = QuantizeLinear (c, s, z)
  k = DequantizeLinear (j, s, z)
  p = GlobalAveragePool (k)
  l = QuantizeLinear (p, s, z)
  m = DequantizeLinear (l, s, z)
  t = Reshape (m, shape)
  n = QuantizeLinear (t, s, z)
  y = DequantizeLinear (n, s, z)
}
"""

NORMALIZED = """
<ir_version: 8, opset_import: ["" : 13]>
g (float[2,4] x) => (float[2,4] y)
<float two = {2}, float e = {0.00001}>
{
  p = Pow (x, two)
  m = ReduceMean <axes = [-1]> (p)
  a = Add (m, e)
  s = Sqrt (a)
  y = Div (x, s)
}
"""


def operators(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def test_signed_quantized_model_computes_on_bytes_alone() -> None:
    model = onnx.parser.parse_model(QUANTIZED.replace("r = Relu (a)", "r = Identity (a)"))
    result = optimize(model, level="extended", target="avx512")
    onnx.checker.check_model(result, full_check=True)
    assert operators(result) == {
        "QuantizeLinear": 1, "QLinearConv": 2, "QLinearAdd": 1, "QLinearGlobalAveragePool": 1, "Reshape": 1,
        "DequantizeLinear": 1,
    }  # fmt: skip
    assert_equivalent(model, result, numerics="rounding")


def test_quantized_model_has_channels_last_from_its_one_transpose_on() -> None:
    model = onnx.parser.parse_model(QUANTIZED.replace("r = Relu (a)", "r = Identity (a)"))
    result = optimize(model, level="all", target="avx512")
    onnx.checker.check_model(result, full_check=True)
    assert operators(result)["Transpose"] == 1  # back from channels last behind the pool is a view
    assert all(node.domain == "com.microsoft" for node in result.graph.node if node.op_type.startswith("QLinear"))
    assert_equivalent(model, result, numerics="rounding")


def test_exact_numerics_leaves_quantized_operators() -> None:
    model = onnx.parser.parse_model(QUANTIZED)
    result = optimize(model, level="extended", numerics="exact", target="avx512")
    assert operators(result)["Conv"] == 2


def test_runtime_without_the_kernel_keeps_what_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalization, "in_runtime", lambda name: False)
    result = PassManager(passes="fuse_branchwise_rms_norm", explain=True).run(onnx.parser.parse_model(NORMALIZED))
    assert not result.changed
    assert [miss.reason for miss in result.near_misses] == ["this ONNX Runtime has no BranchwiseRMSNorm"]


@pytest.mark.parametrize("op_type", operands._SINCE)
def test_a_release_has_the_kernels_that_it_is_known_to_have(op_type: str) -> None:
    assert operands.in_runtime(op_type) == bool(operands.kernel_versions(op_type, operands.DOMAIN))


def test_a_known_release_of_the_runtime_is_not_imported() -> None:
    if release_of("onnxruntime") < operands._SINCE["BranchwiseRMSNorm"]:
        pytest.skip("this ONNX Runtime is older than the releases known to have the kernel: it is imported to be asked")
    script = (
        "import onnx, sys; from graphopt import optimize; r = optimize(onnx.parser.parse_model(sys.argv[1]), 'all')"
    )
    tell = "print('onnxruntime' in sys.modules, [node.op_type for node in r.graph.node])"
    command = [sys.executable, "-c", f"{script}; {tell}", NORMALIZED]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.strip() in ("False ['BranchwiseRMSNorm']", "False ['RMSNormalization']")


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ('"""Runs models."""\n__version__ = "1.31.0"\n', (1, 31)),
        ("__version__ = '2.0.11'\n", (2, 0)),
        ('__version__ = "1.31.0.dev20260101"\n', (0, 0)),
        ('__version__ = "1.31.0+cpu"\n', (0, 0)),
        ("from .versions import __version__\n", (0, 0)),
        (None, (0, 0)),
    ],
)
def test_a_release_is_read_without_an_import(
    text: str | None, release: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    if text is not None:
        (tmp_path / "a_runtime.py").write_text(text + "raise ImportError\n")
    assert release_of("a_runtime") == release


def test_result_runs_under_the_optimizer_too() -> None:
    """A converted model is not spoiled for users who leave the runtime's optimizer on."""
    import numpy as np
    import onnxruntime as ort

    model = onnx.parser.parse_model(QUANTIZED)
    result = optimize(model, level="all")
    feed = {"x": np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype(np.float32)}
    answers = []
    for level in (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL):
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        session = ort.InferenceSession(result.SerializeToString(), options, providers=["CPUExecutionProvider"])
        answers.append(session.run(None, feed)[0])
    np.testing.assert_array_equal(*answers)


ATTENTION = "(float[2,4,5,8] q, float[2,4,5,8] k, float[2,4,5,8] v) => (float[2,4,5,8] y)"


knows_windows = pytest.mark.skipif(onnx.defs.onnx_opset_version() < 25, reason="onnx does not know opset 25")


@knows_windows
@pytest.mark.parametrize(
    ("opset", "attributes", "ops"),
    [
        (24, "softcap = 2.0", "FusedMatMul Tanh Mul Softmax MatMul"),
        (25, "scale = 0.3", "FusedMatMul Softmax MatMul"),
        (25, "is_causal = 1, left_window_size = 2", "FusedMatMul Add Softmax MatMul"),
    ],
)
def test_attention_without_a_fast_kernel_becomes_two_products(opset: int, attributes: str, ops: str) -> None:
    head = f'<ir_version: 10, opset_import: ["" : {opset}]>'
    model = onnx.parser.parse_model(f"{head} g {ATTENTION} {{ y = Attention <{attributes}> (q, k, v) }}")
    result = PassManager("extended", verify=True, strict=True).run(model)
    assert [node.op_type for node in result.model.graph.node] == ops.split()
    assert not PassManager("extended").run(result.model).changed


@knows_windows
def test_attention_with_a_kernel_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphopt_passes.fusion.contrib.functions._has_kernel", lambda op_type, since: True)
    for opset in (24, 25):
        head = f'<ir_version: 10, opset_import: ["" : {opset}]>'
        model = onnx.parser.parse_model(f"{head} g {ATTENTION} {{ y = Attention (q, k, v) }}")
        assert [node.op_type for node in PassManager("all").run(model).model.graph.node] == ["Attention"]
