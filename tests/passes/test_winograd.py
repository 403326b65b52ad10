"""Winograd convolutions in NCHW: every form against the convolution, what the cost model picks, the budget."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt import Options, PassManager
from graphopt.errors import PassError
from graphopt.results import Result

PASS = "convert_conv_to_winograd"
TILES = (4, 2)
FLOAT = TensorProto.FLOAT


def convert(model: onnx.ModelProto, growth: float = 3.0, **settings: Any) -> Result:
    options = Options(max_weight_growth=growth, extra={PASS: settings})
    return PassManager(passes=PASS, strict=True, check=True, explain=True, options=options).run(model)


def run(model: onnx.ModelProto, **feeds: np.ndarray) -> np.ndarray:
    onnx.checker.check_model(model, full_check=True)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


def weights(outputs: int, inputs: int, seed: int = 1, kernel: tuple[int, int] = (3, 3)) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((outputs, inputs, *kernel))
    return np.asarray(values / np.sqrt(kernel[0] * kernel[1] * inputs), np.float32)


def layer(
    shape: tuple[int | str, ...], outputs: int, *, kernel: tuple[int, int] = (3, 3), bias: bool = True,
    relu: bool = True, opset: int = 17, **attrs: Any,
) -> onnx.ModelProto:  # fmt: skip
    nodes = [helper.make_node("Conv", ["x", "w", "b"] if bias else ["x", "w"], ["c" if relu else "y"], **attrs)]
    if relu:
        nodes.append(helper.make_node("Relu", ["c"], ["y"]))
    initializers = [numpy_helper.from_array(weights(outputs, int(shape[1]), kernel=kernel), "w")]
    if bias:
        initializers.append(numpy_helper.from_array(np.linspace(-1, 1, outputs, dtype=np.float32), "b"))
    x = helper.make_tensor_value_info("x", FLOAT, shape)
    y = helper.make_tensor_value_info("y", FLOAT, [None] * 4)
    graph = helper.make_graph(nodes, "layer", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def image(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ops(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def assert_same(model: onnx.ModelProto, result: onnx.ModelProto, **feeds: np.ndarray) -> None:
    expected, found = run(model, **feeds), run(result, **feeds)
    assert expected.shape == found.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * max(1.0, float(np.abs(expected).max(initial=0))))


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 3), (4, 4), (5, 9), (8, 7), (13, 4)])
@pytest.mark.parametrize(("bias", "relu"), list(product([False, True], [False, True])))
def test_sizes(tile: int, height: int, width: int, bias: bool, relu: bool) -> None:
    model = layer((1, 3, height, width), 5, bias=bias, relu=relu, pads=[1, 1, 1, 1])
    result = convert(model, force=tile)
    assert ops(result.model)["DepthToSpace"] == 1
    assert ops(result.model)["FusedGemm" if relu else "Gemm"] == 1
    assert ("Slice" in ops(result.model)) == bool(height % tile or width % tile)
    assert_same(model, result.model, x=image(1, 3, height, width))


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"pads": [0, 1, 2, 3]},
        {"pads": [2, 0, 0, 5]},
        {"auto_pad": "SAME_UPPER"},
        {"auto_pad": "SAME_LOWER"},
        {"auto_pad": "VALID"},
    ],
    ids=str,
)
def test_pads(tile: int, attrs: dict[str, Any]) -> None:
    model = layer((1, 4, 6, 11), 3, **attrs)
    assert_same(model, convert(model, force=tile).model, x=image(1, 4, 6, 11))


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(("bias", "relu"), list(product([False, True], [False, True])))
def test_batches(tile: int, plain: bool, bias: bool, relu: bool) -> None:
    model = layer((3, 2, 5, 6), 4, bias=bias, relu=relu, pads=[1, 1, 1, 1])
    result = convert(model, force=tile, plain=plain).model
    assert not plain or not any(node.domain for node in result.graph.node)
    assert_same(model, result, x=image(3, 2, 5, 6))


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize(("bias", "relu"), list(product([False, True], [False, True])))
def test_open_batch(tile: int, batch: int, bias: bool, relu: bool) -> None:
    model = layer(("N", 2, 5, 6), 4, bias=bias, relu=relu, pads=[1, 1, 1, 1])
    assert_same(model, convert(model, force=tile).model, x=image(batch, 2, 5, 6))


@pytest.mark.parametrize("opset", [11, 12, 13, 18, 21])
def test_opsets(opset: int) -> None:
    model = layer((1, 2, 6, 6), 4, opset=opset, pads=[1, 1, 1, 1])
    assert_same(model, convert(model, force=4).model, x=image(1, 2, 6, 6))


def chain(channels: int, depth: int, side: int, residual: bool = False) -> onnx.ModelProto:
    nodes, initializers, last = [], [], "x"
    for i in range(depth):
        initializers.append(numpy_helper.from_array(weights(channels, channels, i) * np.float32(1.4), f"w{i}"))
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]))
        if residual:
            nodes.append(helper.make_node("Add", [f"c{i}", last], [f"a{i}"]))
        nodes.append(helper.make_node("Relu", [f"a{i}" if residual else f"c{i}"], [f"r{i}"]))
        last = f"r{i}"
    nodes[-1].output[0] = "y"
    x = helper.make_tensor_value_info("x", FLOAT, [1, channels, side, side])
    y = helper.make_tensor_value_info("y", FLOAT, [1, channels, side, side])
    graph = helper.make_graph(nodes, "chain", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("residual", [False, True])
def test_layers_in_a_row_share_the_transforms(residual: bool) -> None:
    model = chain(4, 3, 9, residual)
    result = convert(model, force=4).model
    assert ops(result)["DepthToSpace"] == 3
    shapes = Counter(tuple(tensor.dims) for tensor in result.graph.initializer)
    assert shapes[36, 1, 6, 6] == 1
    assert shapes[16, 36] == 1
    assert_same(model, result, x=image(1, 4, 9, 9))


def test_one_weight_for_two_layers_is_transformed_once() -> None:
    model = chain(4, 2, 8)
    model.graph.node[2].input[1] = "w0"
    del model.graph.initializer[1]
    result = convert(model, force=4).model
    assert Counter(tuple(tensor.dims) for tensor in result.graph.initializer)[36, 4, 4] == 1
    assert_same(model, result, x=image(1, 4, 8, 8))


def test_inside_of_a_branch() -> None:
    text = """<ir_version: 9, opset_import: ["" : 17]>
    g (float[1,2,5,7] x, bool c) => (float[1,2,5,7] y) {
      y = If (c) <
        then_branch = yes () => (float[1,2,5,7] t) { a = Conv <pads = [1,1,1,1]> (x, w)  t = Relu (a) },
        else_branch = no () => (float[1,2,5,7] e) { e = Abs (x) }>
    }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(weights(2, 2), "w"))
    result = convert(model, force=4).model
    branch = helper.get_node_attr_value(result.graph.node[0], "then_branch")
    assert "DepthToSpace" in [node.op_type for node in branch.node]
    for c in (True, False):
        assert_same(model, result, x=image(1, 2, 5, 7), c=np.array(c))


def test_the_ceiling_keeps_it_out_unless_it_is_named() -> None:
    model = chain(64, 2, 56)
    assert "DepthToSpace" not in ops(PassManager("all", target="avx512").run(model).model)
    assert ops(convert(model, growth=5.0, rates="zen4").model)["DepthToSpace"] == 2


@pytest.mark.parametrize(
    ("channels", "side", "tile"), [(64, 56, 4), (128, 28, 4), (256, 14, 4), (512, 7, 2), (96, 28, 4), (32, 56, None)]
)
def test_the_cost_model_picks_what_was_measured_to_be_fastest(channels: int, side: int, tile: int | None) -> None:
    result = convert(layer((1, channels, side, side), channels, pads=[1, 1, 1, 1]), growth=100, rates="zen4")
    if tile is None:
        assert "expected to be" in result.near_misses[0].reason
    else:
        assert [event.detail for event in result.events] == [f"F({tile}x{tile},3x3)"]


@pytest.mark.parametrize(("channels", "side", "tile"), [(256, 56, 4), (512, 28, 4), (64, 56, None), (128, 28, None)])
def test_without_a_machine_a_layer_must_gain_on_all(channels: int, side: int, tile: int | None) -> None:
    result = convert(layer((1, channels, side, side), channels, pads=[1, 1, 1, 1]), growth=100)
    assert [event.detail for event in result.events] == ([] if tile is None else [f"F({tile}x{tile},3x3)"])


def test_unknown_rates_are_an_error() -> None:
    with pytest.raises(PassError, match="unknown rates 'vax': expected one of zen4, xeon"):
        convert(chain(2, 1, 4), rates="vax")


@pytest.mark.parametrize(("name", "settings"), [(PASS, "zen4"), ("convert_layout_nchwc", None)])
def test_settings_that_have_no_names_are_an_error(name: str, settings: object) -> None:
    manager = PassManager(passes=name, options=Options(extra={name: settings}), strict=True)
    with pytest.raises(PassError, match=f"settings of {name} are {settings!r}: expected a mapping"):
        manager.run(chain(2, 1, 4))


def test_growth_stays_within_the_budget_over_all_runs() -> None:
    model = chain(64, 3, 56)
    before = sum(len(numpy_helper.to_array(tensor).tobytes()) for tensor in model.graph.initializer)
    result = convert(model, growth=2.1, rates="zen4")
    assert ops(result.model)["DepthToSpace"] == 1
    assert "max_weight_growth = 2.1" in result.near_misses[0].reason
    assert result.after.bytes < 2.1 * before
    assert not convert(result.model, growth=2.1, rates="zen4").changed
    assert ops(convert(model, growth=5.0, rates="zen4").model)["DepthToSpace"] == 3


def test_an_unknown_tile_size_is_an_error() -> None:
    with pytest.raises(PassError, match="Winograd tile size 6: expected one of 4, 2"):
        convert(chain(2, 1, 4), force=6)
