"""Transposed convolutions in blocks: every attribute against the runtime's own, the forms that stay, the cost model."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.operators.phases import Axis
from graphopt.system.machine import host
from tests.passes.layout_emulation import emulate
from tests.passes.layout_models import assert_close, blocked_ops, convert, run

needs_kernels = pytest.mark.skipif(host().block == 1, reason="no blocked kernels on this machine")

Feeds = dict[str, np.ndarray]
OPEN = {"N": 0, "H": 2, "W": 3}


def layer(
    shape: tuple[int, int, int, int], outputs: int, kernel: tuple[int, int], *, bias: bool = True,
    after: str = "", opset: int = 17, dynamic: str = "", **attrs: Any,
) -> tuple[onnx.ModelProto, Feeds]:  # fmt: skip
    """A ConvTranspose, what follows it, and an input; `dynamic` names the sizes that are not fixed."""
    random = np.random.default_rng(0)
    weight = random.standard_normal((shape[1], outputs, *kernel)).astype(np.float32)
    constants = [numpy_helper.from_array(weight, "w")]
    if bias:
        constants.append(numpy_helper.from_array(random.standard_normal(outputs).astype(np.float32), "b"))
    inputs = [tensor.name for tensor in constants]
    nodes = [helper.make_node("ConvTranspose", ["x", *inputs], ["c"], **attrs)]
    if after:
        nodes.append(helper.make_node(after, ["c", "c"] if after == "Add" else ["c"], ["y"]))
    nodes[-1].output[0] = "y"
    dims: list[int | str] = list(shape)
    for name in dynamic:
        dims[OPEN[name]] = name
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return model, {"x": random.standard_normal(shape).astype(np.float32)}


def assert_same(model: onnx.ModelProto, feeds: Feeds) -> onnx.ModelProto:
    """The blocked model gives the same numbers; it is returned."""
    result = convert(model).model
    assert "Conv" in blocked_ops(result)
    assert "ConvTranspose" not in [node.op_type for node in result.graph.node]
    assert_close(run(model, feeds), run(result, feeds))
    return result


@needs_kernels
@pytest.mark.parametrize(("kernel", "stride"), [(k, s) for k in range(1, 6) for s in range(1, min(k, 3) + 1)])
@pytest.mark.parametrize("pads", [(0, 0), (1, 1), (0, 2), (3, 1)])
def test_kernels_strides_and_pads(kernel: int, stride: int, pads: tuple[int, int]) -> None:
    """Vertically; horizontally the pads are turned round and the kernel is larger."""
    sides = [pads[0], pads[1], pads[1], pads[0]]
    for extra in range(stride):
        model, feeds = layer(
            (1, 20, 6, 5), 24, (kernel, kernel + 1), strides=[stride] * 2, pads=sides, output_padding=[extra, 0]
        )
        assert_same(model, feeds)


@needs_kernels
@pytest.mark.parametrize("strides", [[1, 2], [3, 1], [2, 4], [3, 4]])
def test_strides_that_differ(strides: list[int]) -> None:
    assert_same(*layer((2, 16, 4, 7), 16, (3, 4), strides=strides, pads=[1, 0, 0, 1]))


@needs_kernels
@pytest.mark.parametrize(("inputs", "outputs"), [(3, 1), (16, 16), (20, 7), (100, 40)])
@pytest.mark.parametrize("bias", [False, True])
def test_channels_that_do_not_fill_blocks(inputs: int, outputs: int, bias: bool) -> None:
    assert_same(*layer((1, inputs, 4, 5), outputs, (4, 4), bias=bias, strides=[2, 2], pads=[1] * 4))


@needs_kernels
@pytest.mark.parametrize("after", ["Relu", "Sigmoid", "Tanh", "Add"])
def test_activations_go_into_the_convolution_and_sums_do_not(after: str) -> None:
    result = assert_same(*layer((1, 16, 4, 5), 20, (2, 2), after=after, strides=[2, 2]))
    names = [node.op_type for node in result.graph.node]
    assert ("Add" in names) == (after == "Add")
    assert after == "Add" or after not in names


@needs_kernels
@pytest.mark.parametrize(
    ("dynamic", "batch"), [("N", 0), ("N", 3), ("H", 1), ("W", 2), ("HW", 1), ("NHW", 0), ("NHW", 3)]
)
@pytest.mark.parametrize("attrs", [{}, {"pads": [1] * 4}, {"pads": [1] * 4, "output_padding": [1, 1]}], ids=str)
def test_open_sizes(dynamic: str, batch: int, attrs: dict[str, Any]) -> None:
    assert_same(*layer((batch, 16, 4, 5), 20, (3, 3), dynamic=dynamic, strides=[2, 2], **attrs))


@needs_kernels
@pytest.mark.parametrize("kernel", [2, 3])
def test_between_others(kernel: int) -> None:
    """What a Concat joined with a gap goes in, a residual sum and a convolution of stride 1 read the result."""
    random = np.random.default_rng(1)
    weights = {"a": (20, 16, 1, 1), "b": (12, 16, 1, 1), "t": (32, 20, kernel, kernel), "c": (20, 20, 3, 3)}
    constants = [
        numpy_helper.from_array(random.standard_normal(dims).astype(np.float32) / 4, name)
        for name, dims in weights.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["p"]),
        helper.make_node("Conv", ["x", "b"], ["q"]),
        helper.make_node("Concat", ["p", "q"], ["j"], axis=1),
        helper.make_node("ConvTranspose", ["j", "t"], ["u"], strides=[2, 2], output_padding=[kernel - 2] * 2),
        helper.make_node("Conv", ["u", "c"], ["v"], pads=[1] * 4),
        helper.make_node("Add", ["u", "v"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 5, 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    result = assert_same(model, {"x": random.standard_normal((1, 16, 5, 6)).astype(np.float32)})
    assert blocked_ops(result).count("ReorderOutput") == 1


@needs_kernels
def test_inside_of_a_branch() -> None:
    """The weight is of the outer graph, and so is what is read."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,16,4,5] x, bool c) => (float[1,16,8,10] y) {
      o = Relu (x)
      y = If (c) <
        then_branch = yes () => (float[1,16,8,10] t) { t = ConvTranspose <strides = [2,2]> (o, w) },
        else_branch = no () => (float[1,16,8,10] e) { e = ConvTranspose <strides = [2,2]> (x, w) }>
    }"""
    model = onnx.parser.parse_model(text)
    random = np.random.default_rng(0)
    model.graph.initializer.append(numpy_helper.from_array(random.standard_normal((16, 16, 2, 2), np.float32), "w"))
    result = convert(model).model
    x = random.standard_normal((1, 16, 4, 5)).astype(np.float32)
    for condition in (True, False):
        feeds = {"x": x, "c": np.array(condition)}
        assert_close(run(model, feeds), run(result, feeds))


@needs_kernels
def test_any_size_where_nothing_has_to_be_moved() -> None:
    assert_same(*layer((2, 16, 4, 5), 20, (3, 3), dynamic="NHW", pads=[1] * 4))


@needs_kernels
@pytest.mark.parametrize("opset", [7, 9, 10, 11, 13, 22])
def test_opsets(opset: int) -> None:
    assert_same(*layer((1, 16, 4, 5), 20, (4, 4), opset=opset, after="Relu", strides=[2, 2], pads=[1] * 4))


@needs_kernels
@pytest.mark.parametrize("kernel", [2, 3, 4, 5])
def test_extremes(kernel: int) -> None:
    """An infinity reaches the same results, NaN as well; what does not read them is as before."""
    model, feeds = layer((1, 16, 6, 6), 16, (kernel, kernel), strides=[2, 2], pads=[kernel // 3] * 4)
    result = convert(model).model
    for value in (np.inf, np.nan, 1e30, 1e-38):
        feeds["x"][0, 3, 2, 2] = value
        before, after = run(model, feeds)[0], run(result, feeds)[0]
        np.testing.assert_array_equal(np.isfinite(before), np.isfinite(after))
        np.testing.assert_allclose(after[..., :2], before[..., :2], rtol=1e-4, atol=1e-4)
    feeds["x"][:] = 0
    np.testing.assert_array_equal(run(result, feeds)[0], run(model, feeds)[0])


@pytest.mark.parametrize(("kernel", "pads", "extra"), [(2, 0, 0), (4, 1, 0), (3, 1, 1)])
def test_blocks_of_8(kernel: int, pads: int, extra: int) -> None:
    model, feeds = layer(
        (2, 8, 4, 5), 12, (kernel, kernel), after="Relu", strides=[2, 2], pads=[pads] * 4, output_padding=[extra] * 2
    )
    result = convert(model, "avx2").model
    assert "Conv" in blocked_ops(result)
    assert_close(run(model, feeds), emulate(result, 8, feeds))


@pytest.mark.parametrize(("kernel", "pads", "extra"), [(2, 0, 0), (4, 1, 0), (6, 2, 0), (3, 0, 0)])
def test_no_taps_of_zero(kernel: int, pads: int, extra: int) -> None:
    """Where the stride divides the kernel one convolution does it all; otherwise each place has its own.

    Taps of zero would make NaN of an infinity.
    """
    model, _ = layer((1, 16, 4, 5), 16, (kernel, kernel), strides=[2, 2], pads=[pads] * 4, output_padding=[extra] * 2)
    result = convert(model, "avx512").model
    sizes = [int(np.prod(tensor.dims)) for tensor in result.graph.initializer if len(tensor.dims) == 4]
    assert sum(sizes) == 16 * 16 * kernel * kernel
    assert len(sizes) == (1 if kernel % 2 == 0 else 4)


def test_sizes_of_an_axis() -> None:
    for kernel, stride, begin, end in product(range(1, 6), range(1, 4), range(4), range(4)):
        for extra, source in product(range(stride if stride <= kernel else 0), range(1, 5)):
            axis = Axis.of(kernel, stride, (begin, end), extra)
            assert axis.size(source) == stride * (source - 1) + extra + kernel - begin - end
            assert min(axis.skip, axis.tail, axis.after, axis.taps_at(stride - 1) - 1 - axis.first) >= 0


def test_the_cost_model_blocks_what_was_measured_to_gain() -> None:
    """Kernel of 4 at 64x64 took 0.64 of the time in NCHW; one channel of results would be padding for the most part."""
    gains, _ = layer((1, 64, 64, 64), 32, (4, 4), strides=[2, 2], pads=[1] * 4)
    loses, _ = layer((1, 64, 64, 64), 1, (2, 2), strides=[2, 2])
    assert convert(gains, "avx512", force=False).changed
    assert not convert(loses, "avx512", force=False).changed
