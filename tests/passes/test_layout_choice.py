"""What the plan of the blocked layout chooses: by the rates of a machine, and by how far these may be off."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest

from benchmarks.architectures.net import Net
from graphopt import Options, PassManager
from graphopt.demo.skeletons import refill
from graphopt.errors import PassError
from graphopt.ir import Model
from graphopt.system.machine import host
from graphopt_passes.layout import timing
from graphopt_passes.layout.plan import Setting, blocks_something
from tests.passes import layout_models as models

SURE = dataclasses.replace(timing.ZEN5, error=0.0)


def convert(net: Net, result: str, rates: timing.LayoutRates = SURE) -> onnx.ModelProto:
    """The network in blocks, checked to give the same numbers."""
    model = refill(net.model(result))
    options = Options(extra={models.PASS: {"rates": rates}})
    made = PassManager(passes=models.PASS, target="avx512", options=options, strict=True).run(model).model
    feed = {spec.name: np.random.default_rng(0).standard_normal(spec.shape, np.float32) for spec in net.inputs}
    if host().block == 16:
        models.assert_close(models.run(model, feed), models.run(made, feed))
    return made


def blocked(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node if node.domain]


def test_few_channels_that_come_blocked_are_read_in_nchw() -> None:
    n = Net(act="")
    x = n.pool(n.conv(n.input(1, 1, 28, 28), 8, 5))
    made = convert(n, n.conv(x, 16, 5))
    kernels = [len(node.input) and node.input[1] for node in made.graph.node if node.op_type == "Conv"]
    sizes = {tensor.name: list(tensor.dims) for tensor in made.graph.initializer}
    assert [sizes[name][1] for name in kernels] == [1, 8], "padding was multiplied"
    assert blocked(made) == ["Conv", "MaxPool", "ReorderOutput", "Conv", "ReorderOutput"]


def test_few_channels_come_blocked_where_the_reorder_takes_longer() -> None:
    n = Net(act="")
    x = n.conv(n.input(1, 3, 112, 112), 15, 3)
    made = convert(n, n.conv(x, 16, 3))
    assert blocked(made) == ["Conv", "Conv", "ReorderOutput"]


def _dense(channels: int, count: int) -> tuple[Net, str]:
    n = Net(act="")
    x = n.conv(n.input(1, 1, 64, 64), channels)
    for _ in range(count):
        x = n.concat(x, n.conv(x, channels))
    return n, n.conv(x, 16)


def test_pieces_that_leave_lanes_empty_are_packed_where_convolutions_read_them() -> None:
    made = convert(*_dense(12, 5))
    assert any(node.op_type == "Concat" and not _is_blocked(made, node.input[0]) for node in made.graph.node)
    sizes = {tensor.name: list(tensor.dims) for tensor in made.graph.initializer}
    last = [node for node in made.graph.node if node.op_type == "Conv"][-1]
    assert sizes[last.input[1]][1] == 80, "72 channels take five blocks"


def test_pieces_that_fill_their_blocks_are_joined_in_blocks() -> None:
    made = convert(*_dense(16, 5))
    assert all(_is_blocked(made, node.input[0]) for node in made.graph.node if node.op_type == "Concat")


def test_only_pieces_that_take_more_blocks_are_packed() -> None:
    n = Net(act="")
    image = n.conv(n.input(1, 3, 64, 64), 16)
    two_blocks = n.concat(n.conv(image, 8), n.conv(image, 16))
    three_blocks = n.concat(n.conv(two_blocks, 8), n.conv(two_blocks, 8), n.conv(two_blocks, 16))
    made = convert(n, n.conv(three_blocks, 64))
    joins = [node for node in made.graph.node if node.op_type == "Concat"]
    assert [_is_blocked(made, node.input[0]) for node in joins] == [True, False]


def _is_blocked(model: onnx.ModelProto, name: str) -> bool:
    makers = {output: node for node in model.graph.node for output in node.output}
    maker = makers.get(name)
    if maker is None or maker.op_type == "ReorderOutput":
        return False
    return bool(maker.domain) or _is_blocked(model, maker.input[0])


@pytest.mark.parametrize(("error", "in_blocks"), [(0.0, False), (0.3, True)])
def test_what_gains_less_than_the_error_is_as_the_runtime_has_it(error: float, in_blocks: bool) -> None:
    """A chain of 20 channels: by the rates of Zen 4 a little faster in NCHW; the runtime blocks it."""
    n = Net(act="")
    x = n.input(1, 20, 56, 56)
    for _ in range(6):
        x = n.conv(x, 20)
    rates = dataclasses.replace(timing.ZEN4, blocked=(78e3, 72e3, 75e3), error=error)
    assert bool(blocked(convert(n, x, rates))) is in_blocks


@pytest.mark.parametrize(("error", "in_blocks"), [(0.0, True), (1.0, False)])
def test_what_the_runtime_leaves_has_to_gain_more_than_the_error(error: float, in_blocks: bool) -> None:
    """Channels that do not come in fours."""
    n = Net(act="")
    x = n.input(1, 31, 40, 40)
    for _ in range(6):
        x = n.conv(x, 31)
    assert bool(blocked(convert(n, x, dataclasses.replace(SURE, error=error)))) is in_blocks


def test_rates_by_name_are_an_error() -> None:
    n = Net(act="")
    model = refill(n.model(n.conv(n.input(1, 16, 8, 8), 16, 3)))
    manager = PassManager(passes=models.PASS, options=Options(extra={models.PASS: {"rates": "zen4"}}), strict=True)
    with pytest.raises(PassError, match="rates are 'zen4': expected LayoutRates"):
        manager.run(model)


def _in_blocks(body: str, error: float) -> bool:
    weights = ", ".join(f"float[16,16,1,1] w{n} = {{{', '.join(['0.1'] * 256)}}}" for n in range(2))
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[1,16,56,56] x) => (float[1,16,56,56] y) <{weights}> {{ {body} }}
    """)
    rates = dataclasses.replace(timing.ZEN4, blocked=(30e3, 30e3, 30e3), error=error)
    return blocks_something(Model.load(model).graph, Setting(16, force=False, rates=rates))


def test_an_activation_counts_the_same_once_it_is_fused() -> None:
    """What is not worth it by itself is not worth it in a second run."""
    before = "a = Conv (x, w0) b = LeakyRelu (a) c = Conv (b, w1) y = LeakyRelu (c)"
    after = """
        b = com.microsoft.FusedConv <activation = "LeakyRelu", activation_params = [0.01]> (x, w0)
        y = com.microsoft.FusedConv <activation = "LeakyRelu", activation_params = [0.01]> (b, w1)
    """
    errors = np.linspace(0, 2, 101)
    chosen = [_in_blocks(before, error) for error in errors]
    assert set(chosen) == {False, True}
    assert chosen == [_in_blocks(after, error) for error in errors]


@pytest.mark.parametrize(("factor", "op"), [(2, "Upsample"), (8, "MatMul")])
def test_only_large_linear_resizes_stay_plain_for_products(factor: int, op: str) -> None:
    """What replaces an operator in NCHW after the layout counts for the layout's choice."""
    side = 28 * factor
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 17]> g (float[1,64,28,28] x) => (float[1,64,{side},{side}] y)
        <float[64,64,1,1] w = {{{", ".join(["0.1"] * 4096)}}}, float[4] s = {{1, 1, {factor}, {factor}}}>
        {{ c = Conv (x, w) r = Relu (c) y = Resize <mode = "linear"> (r, , s) }}
    """)
    made = PassManager("all", target="avx512-zen5", strict=True).run(model).model
    assert {"Upsample", "MatMul", "Resize"} & {node.op_type for node in made.graph.node} == {op}
