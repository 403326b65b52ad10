"""Tensors whose data does not fit their dimensions are refused by name, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.errors import ModelError
from graphopt.manager import PassManager, optimize_file
from graphopt.verify import compare


def raw(dims: list[int], size: int, dtype: int = TensorProto.FLOAT) -> TensorProto:
    return TensorProto(name="wrong", data_type=dtype, dims=dims, raw_data=bytes(size))


def typed(dims: list[int], dtype: int, **data: list[object]) -> TensorProto:
    return TensorProto(name="wrong", data_type=dtype, dims=dims, **data)


WRONG = {
    "too few bytes": raw([4], 15),
    "too many bytes": raw([4], 17),
    "bytes for nothing": raw([0], 4),
    "no bytes": raw([4], 0),
    "no data at all": typed([4], TensorProto.FLOAT),
    "terabytes": raw([1 << 20, 1 << 20], 16),
    "more than 64 bits count": raw([1 << 40, 1 << 40], 16),
    "a product that wraps to nothing": raw([1 << 32, 1 << 32], 0),
    "sizes beside a zero": raw([0, 1 << 62, 1 << 62], 0),
    "negative": raw([-4], 16),
    "two negatives": raw([-2, -2], 16),
    "the smallest number": raw([-(1 << 63)], 16),
    "too few floats": typed([4], TensorProto.FLOAT, float_data=[1.0]),
    "too many integers": typed([1], TensorProto.INT64, int64_data=[1, 2]),
    "floats for integers": typed([2], TensorProto.INT64, float_data=[1.0, 2.0]),
    "halves": typed([3], TensorProto.FLOAT16, int32_data=[1, 2]),
    "packed": typed([4], TensorProto.INT4, int32_data=[1, 2, 3, 4]),
    "half a complex number": typed([1], TensorProto.COMPLEX64, float_data=[1.0]),
    "too few strings": typed([3], TensorProto.STRING, string_data=[b"a"]),
}

RIGHT = {
    "nothing": raw([0, 5], 0),
    "a scalar": raw([], 4),
    "packed": typed([3], TensorProto.INT4, int32_data=[1, 2]),
    "complex": typed([1], TensorProto.COMPLEX64, float_data=[1.0, 2.0]),
    "unsigned": typed([1], TensorProto.UINT32, uint64_data=[1]),
    "boolean": typed([1], TensorProto.BOOL, int32_data=[1]),
    "strings": typed([1], TensorProto.STRING, string_data=[b"a"]),
    "a type of tomorrow": typed([4], 99),
}


def holding(tensor: TensorProto, place: str) -> onnx.ModelProto:
    """A model with a tensor somewhere in it that nothing reads."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    constant = onnx.NodeProto(op_type="Constant", output=["c"])
    constant.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(tensor)
    if place == "main":
        model.graph.initializer.append(tensor)
    elif place == "constant":
        model.graph.node.append(constant)
    elif place == "function":
        model.functions.append(helper.make_function("local", "F", [], ["c"], [constant], [helper.make_opsetid("", 21)]))
    elif place == "branch":
        out = helper.make_tensor_value_info("p", TensorProto.FLOAT, [2])
        branch = helper.make_graph([helper.make_node("Neg", ["x"], ["p"])], "b", [], [out], [tensor])
        flag = helper.make_tensor_value_info("d", TensorProto.BOOL, [])
        model.graph.input.append(flag)
        model.graph.node.append(helper.make_node("If", ["d"], ["i"], then_branch=branch, else_branch=branch))
    else:
        indices = numpy_helper.from_array(np.array([0], np.int64))
        model.graph.sparse_initializer.add(values=tensor, indices=indices, dims=[9])
    return model


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("place", ["main", "constant", "function", "branch", "sparse"])
def test_what_does_not_fit_is_refused(name: str, place: str, tmp_path: Path) -> None:
    model = holding(WRONG[name], place)
    path = tmp_path / "in.onnx"
    path.write_bytes(model.SerializeToString())
    for source in (model, model.SerializeToString(), path):
        with pytest.raises(ModelError, match=r"'(wrong|value)'.*(needs|negative|counted)"):
            PassManager("basic").run(source)
    with pytest.raises(ModelError, match=r"'(wrong|value)'"):
        optimize_file(path, tmp_path / "out.onnx")
    with pytest.raises(ModelError, match=r"'(wrong|value)'"):
        compare(path, path)
    assert [p.name for p in tmp_path.iterdir()] == ["in.onnx"]


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("place", ["main", "constant", "function", "branch"])
def test_what_fits_is_taken(name: str, place: str) -> None:
    """A type that this version does not know too: nothing computes with it, or compares what it holds."""
    model = holding(RIGHT[name], place)
    again = model.graph.initializer.add()
    again.CopyFrom(RIGHT[name])
    again.name = "again"
    model.graph.node.add(op_type="Strange", domain="strange", input=["again"], output=["strange"])
    assert PassManager("basic", strict=True).run(model).model.graph.node


def test_weights_left_in_the_file_are_counted(tmp_path: Path) -> None:
    """Above some megabytes the weights are not read at all, their size is."""
    model = holding(raw([2], 8), "main")
    model.graph.initializer.append(
        TensorProto(name="large", data_type=1, dims=[2 << 20], raw_data=bytes((8 << 20) - 1))
    )
    path = tmp_path / "in.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=f"'large'.*needs {8 << 20} bytes, it has {(8 << 20) - 1}"):
        optimize_file(path, tmp_path / "out.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["in.onnx"]
