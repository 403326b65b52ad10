"""Winograd convolutions in blocks: every form against the blocked convolution, chains, the cost model."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt import Options, PassManager
from graphopt.errors import PassError
from graphopt.results import Result
from graphopt.system.machine import Target, host
from graphopt_passes.algorithm.blocked import unblocked
from graphopt_passes.algorithm.blocked_cost import BUILT_IN, BlockedRates, Size
from graphopt_passes.algorithm.tuning import CASES, WinogradTuner, fit
from graphopt_passes.layout.weights import both_blocked
from tests.passes.test_winograd import TILES, assert_same, chain, image, layer, ops, run, weights

PASS = "convert_conv_to_winograd"
LAYOUT = "convert_layout_nchwc"
needs_kernels = pytest.mark.skipif(host().block == 1, reason="no blocked kernels on this machine")
pytestmark = needs_kernels


def convert(model: onnx.ModelProto, growth: float = 1e9, target: str | None = None, **settings: Any) -> Result:
    options = Options(max_weight_growth=growth, extra={PASS: settings, LAYOUT: {"force": True}})
    passes = f"{LAYOUT},{PASS}"
    return PassManager(passes=passes, target=target, strict=True, check=True, explain=True, options=options).run(model)


def reasons(result: Result) -> list[str]:
    return [miss.reason for miss in result.near_misses if miss.rule == PASS]


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 3), (4, 4), (5, 9), (13, 4)])
@pytest.mark.parametrize(("bias", "relu"), list(product([False, True], [False, True])))
def test_sizes(tile: int, height: int, width: int, bias: bool, relu: bool) -> None:
    model = layer((1, 32, height, width), 16, bias=bias, relu=relu, pads=[1, 1, 1, 1])
    result = convert(model, force=tile)
    assert ops(result.model)["Gather"] == 2
    assert ops(result.model)["FusedGemm"] == relu
    assert ops(result.model)["Gemm"] == 0
    assert_same(model, result.model, x=image(1, 32, height, width))


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize(
    "attrs",
    [{}, {"pads": [0, 1, 2, 3]}, {"pads": [2, 0, 0, 5]}, {"auto_pad": "SAME_LOWER"}, {"auto_pad": "VALID"}],
    ids=str,
)
def test_pads(tile: int, attrs: dict[str, Any]) -> None:
    model = layer((1, 16, 6, 11), 32, **attrs)
    assert_same(model, convert(model, force=tile).model, x=image(1, 16, 6, 11))


OTHERS = {(5, 5): (2,), (1, 3): (4, 2), (3, 1): (4, 2), (1, 5): (2,), (5, 1): (2,), (1, 7): (2,), (7, 1): (2,)}
"""Kernels besides 3x3, and their tiles."""


@pytest.mark.parametrize("attrs", [{}, {"pads": [0, 1, 3, 2]}, {"auto_pad": "SAME_UPPER"}], ids=str)
@pytest.mark.parametrize("shape", [(1, 16, 9, 11), (2, 16, 8, 7), ("N", 16, 7, 8)], ids=str)
@pytest.mark.parametrize(("kernel", "tile"), [(kernel, tile) for kernel, tiles in OTHERS.items() for tile in tiles])
def test_other_kernels(kernel: tuple[int, int], tile: int, shape: tuple[int | str, ...], attrs: dict[str, Any]) -> None:
    model = layer(shape, 32, kernel=kernel, **attrs)
    result = convert(model, force=tile)
    (rows, columns), (height, width) = kernel, (tile if side > 1 else 1 for side in kernel)
    assert f"F({height}x{width},{rows}x{columns})" in [event.detail for event in result.events]
    # A product for each axis and direction; the last one is Gemm where the activation goes into it.
    assert ops(result.model)["MatMul"] + ops(result.model)["FusedGemm"] == (4 if min(kernel) > 1 else 2)
    assert_same(model, result.model, x=image(3 if shape[0] == "N" else int(shape[0]), *(int(n) for n in shape[1:])))


@pytest.mark.parametrize(("batch", "opset"), [(1, 17), (2, 17), ("N", 17), (1, 7), (2, 8), (1, 10), (1, 22)])
def test_rows_and_columns_in_a_row_hand_on_their_tiles(batch: int | str, opset: int) -> None:
    """1x3 after 3x1, as Inception has them, with a residual sum at the end."""
    nodes, constants, last = [], [], "x"
    for i, kernel in enumerate(((3, 1), (1, 3), (3, 3))):
        constants.append(numpy_helper.from_array(weights(16, 16, i, kernel), f"w{i}"))
        pads = [kernel[0] // 2, kernel[1] // 2] * 2
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], pads=pads))
        last = f"c{i}"
    nodes.append(helper.make_node("Add", [last, "x"], ["a"]))
    nodes.append(helper.make_node("Relu", ["a"], ["y"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, 16, 7, 9]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "row", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    result = convert(model, force=4).model
    # Tiles of inputs for each layer, the image at the end, and tiles of what is added.
    assert ops(result)["Gather"] == 5
    for size in (2, 0) if batch == "N" else (int(batch),):
        assert_same(model, result, x=image(size, 16, 7, 9))


def test_a_dynamic_batch_needs_operators_of_opset_11() -> None:
    model = layer(("N", 16, 8, 8), 16, opset=10, pads=[1] * 4)
    assert not [event for event in convert(model, force=4).events if event.rule == "convert_conv_to_winograd"]


IMPATIENT = replace(BUILT_IN, direct=BUILT_IN.direct / 100)
"""A machine on which anything is faster than a direct convolution."""


@pytest.mark.parametrize("strides", [[2, 2], [1, 2], [3, 1]])
@pytest.mark.parametrize("kernel", [(3, 3), (5, 5), (1, 3), (7, 1)])
@pytest.mark.parametrize("attrs", [{}, {"pads": [0, 1, 3, 2]}, {"pads": [1] * 4}, {"auto_pad": "VALID"}], ids=str)
def test_strides_gather_taps_as_channels(strides: list[int], kernel: tuple[int, int], attrs: dict[str, Any]) -> None:
    model = layer((1, 16, 13, 15), 32, kernel=kernel, strides=strides, **attrs)
    result = convert(model, blocked_rates=IMPATIENT)
    size = run(model, x=image(1, 16, 13, 15)).shape[2:]
    taken = size[0] * size[1] % 6 != 5
    assert ops(result.model)["Gather"] == taken
    assert taken == (f"F(1x1,{kernel[0]}x{kernel[1]})" in [event.detail for event in result.events])
    assert_same(model, result.model, x=image(1, 16, 13, 15))


def test_taps_keep_bias_sum_and_activation_and_read_tiles() -> None:
    """A layer of stride 1 hands on its tiles to one of stride 2, which adds a shortcut."""
    constants = [numpy_helper.from_array(weights(16, 16, i, (3, 3) if i < 2 else (1, 1)), f"w{i}") for i in range(3)]
    constants.append(numpy_helper.from_array(np.linspace(-1, 1, 16, dtype=np.float32), "b"))
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"], pads=[1] * 4),
        helper.make_node("Conv", ["c", "w1", "b"], ["d"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Conv", ["x", "w2"], ["s"], strides=[2, 2]),
        helper.make_node("Add", ["d", "s"], ["a"]),
        helper.make_node("Sigmoid", ["a"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16, n, n]) for name, n in (("x", 8), ("y", 4))]
    graph = helper.make_graph(nodes, "shortcut", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    result = convert(model, blocked_rates=IMPATIENT).model
    assert ops(result)["Gather"] == 2
    assert ops(result)["Sigmoid"] + ops(result)["Add"] == 0
    assert_same(model, result, x=image(1, 16, 8, 8))


@pytest.mark.parametrize("batch", [2, "N"])
def test_taps_of_batches_stay(batch: int | str) -> None:
    model = layer((batch, 16, 8, 8), 16, strides=[2, 2], pads=[1] * 4)
    assert "direct convolution is expected" in reasons(convert(model, blocked_rates=IMPATIENT))[0]


def test_strides_with_same_pads_stay() -> None:
    model = layer((1, 16, 8, 8), 16, strides=[2, 2], auto_pad="SAME_UPPER")
    assert "SAME_UPPER" in reasons(convert(model, blocked_rates=IMPATIENT))[0]


def test_taps_pay_where_pixels_are_few() -> None:
    """As measured: 2.14 ms in place of 2.43 from 14x14 to 7x7, 1.23 in place of 1.13 from 28x28 to 14x14."""
    few = layer((1, 192, 14, 14), 1280, strides=[2, 2], pads=[1] * 4)
    many = layer((1, 128, 28, 28), 256, strides=[2, 2], pads=[1] * 4)
    assert convert(few, blocked_rates=BUILT_IN).hits[PASS] == 1
    assert "F(1x1,3x3)" in reasons(convert(many, blocked_rates=BUILT_IN))[0]


def test_other_kernels_pay_where_channels_are_many() -> None:
    assert reasons(convert(layer((1, 16, 9, 9), 16, kernel=(5, 5)), force=4)) == ["there is no F(4x4,5x5)"]
    assert reasons(convert(layer((1, 16, 9, 9), 16, kernel=(1, 5)), force=4)) == ["there is no F(1x4,1x5)"]
    for kernel, side, few, many in (((5, 5), 28, 16, 64), ((1, 3), 8, 64, 384), ((3, 1), 8, 64, 384)):
        pads = [kernel[0] // 2, kernel[1] // 2] * 2
        narrow, wide = (layer((1, count, side, side), count, kernel=kernel, pads=pads) for count in (few, many))
        assert "expected to be faster" in reasons(convert(narrow, blocked_rates=BUILT_IN))[0]
        assert convert(wide, blocked_rates=BUILT_IN).hits[PASS] == 1


def test_channels_that_do_not_fill_blocks() -> None:
    model = layer((1, 20, 6, 7), 28, pads=[1, 1, 1, 1])
    result = convert(model, force=4).model
    assert ops(result)["Gather"] == 2
    assert_same(model, result, x=image(1, 20, 6, 7))


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize(("bias", "relu"), list(product([False, True], [False, True])))
@pytest.mark.parametrize(("shape", "batch"), [(3, 3), ("N", 0), ("N", 1), ("N", 3)])
def test_batches(tile: int, bias: bool, relu: bool, shape: int | str, batch: int) -> None:
    model = layer((shape, 16, 5, 6), 32, bias=bias, relu=relu, pads=[1, 1, 1, 1])
    result = convert(model, force=tile).model
    assert ops(result)["Gather"] == 2
    assert_same(model, result, x=image(batch, 16, 5, 6))


def row(activation: str, *extra: np.ndarray, **attrs: Any) -> onnx.ModelProto:
    """Convolution and activation, three times."""
    nodes, constants, last = [], [numpy_helper.from_array(value, f"e{n}") for n, value in enumerate(extra)], "x"
    for i in range(3):
        constants.append(numpy_helper.from_array(weights(16, 16, i), f"w{i}"))
        constants.append(numpy_helper.from_array(np.linspace(-1, 1, 16, dtype=np.float32), f"b{i}"))
        nodes.append(helper.make_node("Conv", [last, f"w{i}", f"b{i}"], [f"c{i}"], pads=[1] * 4))
        inputs = [f"c{i}", *(f"e{n}" for n in range(len(extra)))]
        nodes.append(helper.make_node(activation, inputs, [f"r{i}"], **attrs))
        last = f"r{i}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16, 7, 9]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "row", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


LIMITS = {
    "to six": (np.float32(0), np.float32(6)),
    "above zero": (np.float32(0.5), np.float32(2)),
}


@pytest.mark.parametrize("name", ["Relu", "Sigmoid", "Tanh", "HardSwish", "LeakyRelu", "HardSigmoid", *LIMITS])
def test_activations_keep_the_padding_of_the_next_layer_zero(name: str) -> None:
    limits = [np.array(limit) for limit in LIMITS.get(name, ())]
    attrs = {"LeakyRelu": {"alpha": 0.3}, "HardSigmoid": {"alpha": 0.3, "beta": 0.4}}.get(name, {})
    model = row("Clip" if limits else name, *limits, **attrs)
    result = convert(model, force=4).model
    assert ops(result)["MatMul"] + ops(result)["FusedGemm"] == 12
    assert_same(model, result, x=image(1, 16, 7, 9))


def batched(model: onnx.ModelProto, batch: int | str) -> onnx.ModelProto:
    for end in (*model.graph.input, *model.graph.output):
        size = end.type.tensor_type.shape.dim[0]
        if isinstance(batch, str):
            size.dim_param = batch
        else:
            size.dim_value = batch
    return model


@pytest.mark.parametrize("shape", [1, 2, "N"])
def test_layers_in_a_row_hand_on_their_tiles(shape: int | str) -> None:
    model = batched(chain(16, 3, 9), shape)
    result = convert(model, force=4).model
    # Into the first layer, between layers, out of the last one.
    assert ops(result)["Gather"] == 4
    assert (ops(result)["Pad"] if shape == "N" else ops(result)["Concat"]) == 3
    assert ops(result)["Expand"] == (2 if shape == "N" else 0)
    assert_same(model, result, x=image(2 if shape == "N" else int(shape), 16, 9, 9))


@pytest.mark.parametrize(("shape", "batch"), [(1, 1), (2, 2), ("N", 2), ("N", 0)])
def test_residual_sums_are_added_to_tiles(shape: int | str, batch: int) -> None:
    model = batched(chain(16, 3, 9, residual=True), shape)
    result = convert(model, force=4).model
    # One more than without sums: the first image becomes tiles of results.
    assert ops(result)["Gather"] == 5
    # The product of the output transform adds the sum, where the batch is fixed.
    assert ops(result)["FusedGemm"] == (0 if shape == "N" else 3)
    assert ops(result)["Add"] == (3 if shape == "N" else 0)
    assert_same(model, result, x=image(batch, 16, 9, 9))


def test_constants_are_shared() -> None:
    result = convert(chain(16, 4, 9), force=4).model
    counts = {
        len(numpy_helper.to_array(tensor))
        for tensor in result.graph.initializer
        if tensor.name.startswith("winograd_tiles")
    }
    tables = [tensor for tensor in result.graph.initializer if tensor.name.startswith("winograd_tiles")]
    assert len(tables) == 2
    assert len(counts) == 1


def test_layers_of_different_tiles_hand_on_too() -> None:
    model = chain(16, 2, 8)
    once = convert(model, force=4)
    four, two = ops(once.model), ops(convert(model, force=2).model)
    assert four["Gather"] == two["Gather"] == 3


def test_inside_of_a_branch() -> None:
    text = """<ir_version: 9, opset_import: ["" : 17]>
    g (float[1,16,5,7] x, bool c) => (float[1,16,5,7] y) {
      o = Conv <pads = [1,1,1,1]> (x, w)
      y = If (c) <
        then_branch = yes () => (float[1,16,5,7] t) { a = Conv <pads = [1,1,1,1]> (o, w)  t = Relu (a) },
        else_branch = no () => (float[1,16,5,7] e) { e = Abs (o) }>
    }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(weights(16, 16), "w"))
    result = convert(model, force=4).model
    branch = next(node for node in result.graph.node if node.op_type == "If")
    inner = helper.get_node_attr_value(branch, "then_branch")
    assert "FusedGemm" in [node.op_type for node in inner.node]
    for c in (True, False):
        assert_same(model, result, x=image(1, 16, 5, 7), c=np.array(c))


@pytest.mark.parametrize(
    ("attrs", "reason"),
    [({"strides": [2, 2]}, "its strides are (2, 2)"), ({"dilations": [2, 2]}, "its dilations are (2, 2)")],
)
def test_other_windows_stay_direct(attrs: dict[str, Any], reason: str) -> None:
    result = convert(layer((1, 16, 9, 9), 16, pads=[1, 1, 1, 1], **attrs), force=4)
    assert reasons(result) == [reason]


def test_plain_inputs_and_open_sizes_stay_direct() -> None:
    assert "block size" in reasons(convert(layer((1, 3, 9, 9), 16), force=4))[0]
    assert "not known" in reasons(convert(layer((1, 16, "H", 9), 16), force=4))[0]


def test_weights_that_overflow_stay_direct() -> None:
    model = layer((1, 16, 9, 9), 16, bias=False)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.full((16, 16, 3, 3), 3e38, np.float32), "w"))
    assert reasons(convert(model, force=2)) == ["the transformed weights overflow in float32"]


def test_unblocked_is_the_inverse() -> None:
    kernel = weights(32, 48)
    np.testing.assert_array_equal(unblocked(both_blocked(kernel, (48,), (32,), 16), 16), kernel)


def test_level_all_takes_it_where_numerics_are_fast() -> None:
    model = chain(64, 2, 56)
    fast = Options(max_weight_growth=6.0)
    assert "Gather" not in ops(PassManager("all", target="avx512").run(model).model)
    assert ops(PassManager("all", target="avx512", numerics="fast", options=fast).run(model).model)["Gather"] == 3


@pytest.mark.parametrize(
    ("channels", "side", "tile"), [(64, 56, 4), (128, 28, 4), (256, 14, 4), (512, 7, 2), (96, 28, 4), (32, 56, None)]
)
def test_the_cost_model_picks_what_was_measured_to_be_fastest(channels: int, side: int, tile: int | None) -> None:
    result = convert(layer((1, channels, side, side), channels, pads=[1] * 4), blocked_rates=BUILT_IN)
    details = [event.detail for event in result.events if event.rule == PASS]
    assert details == ([] if tile is None else [f"F({tile}x{tile},3x3)"])
    assert (tile is not None) or "direct convolution is expected to be faster" in reasons(result)[0]


def test_growth_stays_within_the_budget() -> None:
    model = chain(64, 3, 56)
    result = convert(model, 2.5, "avx512", blocked_rates=BUILT_IN)
    assert len([event for event in result.events if event.rule == PASS]) == 1
    assert "max_weight_growth = 2.5" in reasons(result)[0]
    assert result.view.metadata["graphopt.winograd_growth"].isdecimal()


@pytest.mark.parametrize("limit", [2.0, 3.0, 4.0, 5.0, 6.0])
def test_the_budget_is_for_index_tables_too(limit: float) -> None:
    model = chain(64, 5, 56)
    before, after = (
        sum(numpy_helper.to_array(tensor).nbytes for tensor in one.graph.initializer if np.prod(tensor.dims) > 64)
        for one in (model, convert(model, limit, "avx512", blocked_rates=BUILT_IN).model)
    )
    assert before < after <= limit * before


# ---------------------------------------------------------------------- measuring


def pretended(rates: BlockedRates) -> dict[int, list[dict[str, float]]]:
    """What a machine of given rates would measure."""
    kinds = ("gather", "inward", "product", "outward", "stream")
    taken: dict[int, list[dict[str, float]]] = {0: [], **{tile: [] for tile in TILES}}
    for case in CASES:
        macs, read = case.direct_work
        taken[0].append(dict.fromkeys(kinds, 0.0) | {"product": macs / rates.direct + read / rates.weights[0]})
        for tile in TILES:
            amounts, (inward, outward) = case.work(tile), rates.far(case, tile)
            product_time = amounts["product"] / rates.product + amounts["weights"] / rates.weights[1]
            speeds = {
                "gather": rates.gather, "stream": rates.stream, "inward": rates.inward[inward],
                "outward": rates.outward[outward],
            }  # fmt: skip
            taken[tile].append(
                {kind: amounts[kind] / speed for kind, speed in speeds.items()} | {"product": product_time}
            )
    return taken


def test_the_fit_finds_the_rates_of_a_machine() -> None:
    rates = BlockedRates(
        90e6, 80e6, (10e6, 20e6), (40e6, 20e6), (30e6, 10e6), BUILT_IN.cache, 9e6, 50e6, BUILT_IN.start
    )
    found = fit(CASES, pretended(rates))
    for name, value in rates.stated().items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-6), name


def test_rates_read_back() -> None:
    assert BUILT_IN.read(BUILT_IN.stated()) == BUILT_IN
    assert BUILT_IN.read(BUILT_IN.stated() | {"weights": [1.0]}) is None
    assert BUILT_IN.read(BUILT_IN.stated() | {"gather": -1.0}) is None


def test_the_tuner_shows_the_built_in_figures() -> None:
    head, *rows = WinogradTuner().rows(None, Target("avx512", 16))
    assert len(head) == 4
    assert len(rows) == len(CASES)


def test_a_residual_sum_costs() -> None:
    plain, added = Size(64, 64, (56, 56)), Size(64, 64, (56, 56), residual=True, late=1)
    assert BUILT_IN.winograd_time(plain, 4) < BUILT_IN.winograd_time(added, 4)


def test_settings_of_the_wrong_kind_are_an_error() -> None:
    with pytest.raises(PassError, match="blocked_rates"):
        convert(chain(16, 1, 8), blocked_rates="zen4")
