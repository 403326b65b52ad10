"""Texts of a model that are not UTF-8, which protobuf returns as bytes: no report, message or path fails on them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import graphopt
from graphopt import PassManager, UsageError
from graphopt.api import verify
from graphopt.audit.difference import diff
from graphopt.compat import onnxoptimizer

PLACES = ["producer", "version", "document", "metadata-key", "metadata-value", "symbol", "annotation"]
NOT_TEXT = b"\xff\xfe\xc3("


@pytest.fixture
def plain() -> onnx.ModelProto:
    """A model with a text in each of the places."""
    x, y = (helper.make_tensor_value_info(name, 1, ["symbol", 2]) for name in "xy")
    nodes = [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Mul", ["a", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(np.ones(2, np.float32), "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, doc_string="document")
    model.producer_name, model.producer_version = "producer", "version"
    helper.set_model_props(model, {"metadata-key": "metadata-value"})
    note = graph.quantization_annotation.add(tensor_name="w")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="annotation")
    model.graph.CopyFrom(graph)
    return model


@pytest.mark.parametrize("place", PLACES)
def test_every_report_is_made(plain: onnx.ModelProto, place: str) -> None:
    data = plain.SerializeToString().replace(place.encode(), NOT_TEXT.ljust(len(place)))
    before = onnx.ModelProto.FromString(data)
    result = PassManager(strict=True).run(data)
    assert [node.op_type for node in result.model.graph.node] == ["Mul"]
    assert NOT_TEXT in result.model.SerializeToString()
    reports = [result, graphopt.inspect(data), diff(before, plain), diff(plain, before), verify(data, result.model)]
    for report in reports:
        json.dumps(report.to_dict())
        assert str(report)
    assert verify(data, result.model).ok
    onnxoptimizer.optimize(before, ["rename_input_output"])


def test_the_symbols_that_there_are_can_be_named(plain: onnx.ModelProto) -> None:
    data = plain.SerializeToString().replace(b"symbol", NOT_TEXT + b"ab")
    with pytest.raises(UsageError, match=r"the inputs have \\xff\\xfe\\xc3\(ab"):
        graphopt.optimize(data, dims={"n": 2})
    fixed = graphopt.optimize(data, dims={r"\xff\xfe\xc3(ab": 3})
    assert fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 3


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are texts")
@pytest.mark.parametrize("opaque", [None, "missing", "all"])
def test_a_file_of_weights_may_have_any_name(tmp_path: Path, plain: onnx.ModelProto, opaque: str | None) -> None:
    weight = plain.graph.initializer[0]
    (tmp_path / os.fsdecode(NOT_TEXT)).write_bytes(weight.raw_data)
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="here")
    path = tmp_path / "model.onnx"
    path.write_bytes(plain.SerializeToString().replace(b"here", NOT_TEXT))
    result = PassManager(opaque_weights=opaque).run(path)
    json.dumps(result.to_dict())
    result.save(tmp_path / "result.onnx")
    assert len(onnx.load(tmp_path / "result.onnx", load_external_data=False).graph.node) == 1
    if opaque != "all":
        np.testing.assert_array_equal(
            numpy_helper.to_array(onnx.load(tmp_path / "result.onnx").graph.initializer[0]), 1
        )
