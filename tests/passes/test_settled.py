"""A golden case optimized at the level of its pass is left alone by a second run at that level.

Nor is more known of its values when the result is read again, by which a pass might fire that did not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from graphopt.analysis.types import infer_types
from graphopt.ir import Model, Value
from graphopt.manager import PassManager
from graphopt.pipeline import registry
from graphopt.rewrite import Level, Numerics
from graphopt.testing import Case, cases
from graphopt_passes.layout import nhwc_plan
from tests.models.settle import SAME, verdict

GOLDEN = Path(__file__).parents[1] / "golden"
PASSES = [name for name in registry().names() if (GOLDEN / name).is_dir()]


def learnt_from(proto: onnx.ModelProto, model: Model) -> list[str]:
    """Values of a model that was read of which more is known than of those that were optimized."""
    read = Model.load(proto)
    infer_types(read)
    before = {value.name: value for value in values_of(model)}
    return [value.name for value in values_of(read) if value.name in before and knows_more(before[value.name], value)]


def values_of(model: Model) -> Iterator[Value]:
    for graph in model.graphs():
        for node in graph if not graph.in_function else ():
            yield from node.results


def knows_more(old: Value, new: Value) -> bool:
    """Whether an element type, a rank or a size is known that was not."""
    if new.shape is None or old.shape is None:
        return (new.shape is not None and old.shape is None) or (new.dtype is not None and old.dtype is None)
    pairs = zip(old.shape, new.shape, strict=True)
    return any(isinstance(size, int) and not isinstance(was, int) for was, size in pairs)


def check(name: str, level: Level, numerics: Numerics) -> None:
    """Every case of a pass; the report names all that are not settled, with what the second run did."""
    found = []
    for path in cases(GOLDEN / name):
        case = Case.read(path)
        manager = PassManager(str(level), numerics=str(numerics), target=case.target, strict=True)
        model = Model.load(case.model())
        once = manager.run(model).model
        again = manager.run(once)
        if learnt := learnt_from(once, model):
            found.append(f"{path.stem}: more is known of {learnt}")
        if verdict(once, again.model) != SAME:
            found.append(f"{path.stem}: {again.hits}")
    assert not found, f"{name} at {level}, {numerics}: {found}"


@pytest.mark.parametrize("name", PASSES)
def test_cases_are_settled_after_one_run_at_their_level(name: str) -> None:
    rule = registry().rule_class(name)
    check(name, rule.level, max(rule.numerics, Numerics.ROUNDING))


@pytest.mark.slow
@pytest.mark.parametrize("level", [Level.BASIC, Level.EXTENDED, Level.ALL])
@pytest.mark.parametrize("name", PASSES)
def test_cases_are_settled_after_one_run_at_every_level(name: str, level: Level) -> None:
    for numerics in Numerics:
        check(name, level, numerics)


def leading_mean() -> onnx.ModelProto:
    """A mean of leading axes with an axis of size 1 before them, scaled: the product that adds it up takes the scale."""
    return onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18]>
        g (float[1,256,64,64] x) => (float[64,64] y)
        <int64[1] axes = {1}, int64[2] shape = {64, 64}>
        {
            mean = ReduceMean <keepdims = 0> (x, axes)
            y = Reshape (mean, shape)
        }
    """)


def test_what_a_slow_kernel_is_replaced_with_is_fused() -> None:
    manager = PassManager("extended", strict=True)
    result = manager.run(leading_mean())
    assert {"convert_leading_reduction_to_matmul", "fuse_scale_into_matmul"} <= result.hits.keys()
    assert not manager.run(result.model).events


def pool_behind_gather() -> onnx.ModelProto:
    """A pool that gains from channels last once the `Transpose` behind a convolution has moved to it."""
    return onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18, "com.microsoft" : 1]>
        g (uint8[2,2,50,50] x) => (uint8[2,3,5,5] y)
        <float s = {0.05}, uint8 n = {1}, int8[3,2,1,1] w = {1, -2, 3, 4, -5, 6}, float[1] ws = {0.1},
         int8[1] wn = {0}, int64[6] picked = {3, 9, 4, 20, 31, 8}>
        {
            c = QLinearConv (x, s, n, w, ws, wn, s, n)
            rows = Gather <axis = 2> (c, picked)
            image = Gather <axis = 3> (rows, picked)
            y = com.microsoft.QLinearAveragePool <kernel_shape = [2, 2]> (image, s, n, s, n)
        }
    """)


def test_orders_of_images_are_chosen_again_where_others_freed_some() -> None:
    manager = PassManager("all", strict=True)
    result = manager.run(pool_behind_gather())
    assert result.hits == {"convert_layout_nhwc": 2, "move_transposes": 2}
    assert not manager.run(result.model).events


def test_orders_of_images_are_chosen_once_where_others_freed_none() -> None:
    """A look at a model in which no kernel gains any more is no second plan."""
    model = pool_behind_gather()
    model.graph.node.pop()
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("image", onnx.TensorProto.UINT8, (2, 3, 6, 6)))
    with patch.object(nhwc_plan, "choose", wraps=nhwc_plan.choose) as chosen:
        result = PassManager("all", strict=True).run(model)
    assert result.hits["convert_layout_nhwc"] == 1
    assert chosen.call_count == 1


def quantized_shuffle() -> onnx.ModelProto:
    """A shuffle of channels that is quantized after each of its steps, as by the runtime's quantizer."""
    pairs = [f"q{n} = QuantizeLinear (f{n}, s, z) d{n} = DequantizeLinear (q{n}, s, z)" for n in range(4)]
    return onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[1,4,3,3] f0) => (float[1,4,3,3] d3)
        <float s = {{0.05}}, uint8 z = {{100}}, int64[5] apart = {{1, 2, 2, 3, 3}}, int64[4] whole = {{1, 4, 3, 3}}>
        {{
            {pairs[0]}
            f1 = Reshape (d0, apart)
            {pairs[1]}
            f2 = Transpose <perm = [0, 2, 1, 3, 4]> (d1)
            {pairs[2]}
            f3 = Reshape (d2, whole)
            {pairs[3]}
        }}
    """)


def test_a_shuffle_of_bytes_is_one_operator_in_the_first_run() -> None:
    manager = PassManager("all", strict=True)
    result = manager.run(quantized_shuffle())
    assert [node.op_type for node in result.model.graph.node] == ["QuantizeLinear", "Gather", "DequantizeLinear"]
    assert not manager.run(result.model).events


def quantized_volumes() -> onnx.ModelProto:
    """A convolution of volumes of 3 channels, too few for the kernel on bytes, between quantize operators."""
    weight = np.random.default_rng(0).integers(-127, 128, (16, 3, 1, 7, 7)).astype(np.int8)
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (uint8[1,3,6,32,32] x) => (uint8[1,16,6,16,16] y) <float s = {0.01}, float t = {0.3}, uint8 z = {128}, int8 n = {0}>
        {
            f = DequantizeLinear (x, s, z)
            v = DequantizeLinear (w, s, n)
            c = Conv <pads = [0, 3, 3, 0, 3, 3], strides = [1, 2, 2]> (f, v)
            y = QuantizeLinear (c, t, z)
        }
    """)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


def test_volumes_whose_weights_are_left_are_slices_in_the_first_run() -> None:
    manager = PassManager("all", strict=True)
    result = manager.run(quantized_volumes())
    assert result.hits["convert_conv_3d_to_2d"] == 1
    assert not manager.run(result.model).events
