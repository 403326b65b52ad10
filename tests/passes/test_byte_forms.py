"""Other forms of quantized convolutions, wherever they are right, against the convolution itself: equal bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from graphopt.manager import PassManager
from graphopt.rewrite.options import Options
from graphopt.system.sessions import open_session

MICROSOFT = "com.microsoft"
FORMS = (
    "convert_byte_outputs_to_neighbours", "convert_byte_outputs_to_lanes", "convert_byte_groups_to_dense",
    "convert_depthwise_bytes_to_lanes",
)  # fmt: skip


@st.composite
def convolutions(draw: st.DrawFn) -> onnx.ModelProto:
    """A convolution with channels last, of any window, with parameters in every form."""

    def number(low: int, high: int) -> int:
        return draw(st.integers(low, high))

    group = draw(st.sampled_from([1, 1, 1, 2, 3, 8]))
    outputs, inputs = draw(st.sampled_from([1, 1, 2, 3, 5, 8, 9])) * group, number(1, 5)
    if draw(st.booleans()) and group == 8:
        outputs, inputs = group, 1
    kernel = (number(1, 3), number(1, 4))
    strides, dilations = (number(1, 2), number(1, 3)), (number(1, 2), number(1, 2))
    pads = [number(0, 2) for _ in range(4)]
    random = np.random.default_rng(number(0, 9))
    signed = draw(st.booleans())
    weight = random.integers(-64, 64, (outputs, inputs, *kernel))
    dtype = np.int8 if signed else np.uint8
    zero = 0 if signed else number(110, 130)
    size = draw(st.sampled_from([(), (1,), (outputs,)]))
    constants: dict[str, Any] = {
        "s": np.float32(0.02), "z": np.uint8(number(0, 255)), "t": np.float32(0.7), "u": np.uint8(100),
        "w": (weight if signed else weight + 120).astype(dtype),
        "ws": random.uniform(0.005, 0.02, size).astype(np.float32), "wz": np.full(size, zero, dtype),
    }  # fmt: skip
    if draw(st.booleans()):
        constants["b"] = random.integers(-999, 999, outputs).astype(np.int32)
    image = [1, number(7, 9), number(7, 12), inputs * group]
    node = helper.make_node(
        "QLinearConv", ["x", "s", "z", "w", "ws", "wz", "t", "u", *(["b"] if "b" in constants else [])], ["y"],
        domain=MICROSOFT, channels_last=1, group=group, kernel_shape=list(kernel), pads=pads, strides=list(strides),
        dilations=list(dilations),
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.UINT8, image)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, _result(image, outputs, kernel, node))],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _result(image: list[int], outputs: int, kernel: tuple[int, ...], node: onnx.NodeProto) -> list[int]:
    attrs = {attr.name: list(attr.ints) for attr in node.attribute}
    sizes = [
        (image[1 + at] + attrs["pads"][at] + attrs["pads"][2 + at] - attrs["dilations"][at] * (kernel[at] - 1) - 1)
        // attrs["strides"][at] + 1
        for at in range(2)
    ]  # fmt: skip
    return [1, *sizes, outputs]


@settings(max_examples=100, deadline=None)
@given(convolutions())
def test_forms_are_equal(model: onnx.ModelProto) -> None:
    image = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    feed = {"x": np.random.default_rng(1).integers(0, 256, image).astype(np.uint8)}
    wanted = open_session(model).run(None, feed)[0]
    for form in FORMS:
        options = Options(extra={form: {"force": True}})
        result = PassManager(passes=form, target="avx2", options=options, strict=True).run(model)
        if result.changed:
            assert np.array_equal(open_session(result.model).run(None, feed)[0], wanted), form
