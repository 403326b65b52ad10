"""Labels by keys: which of equal keys counts, and whether NaN is one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks.conversion import differs, run_model
from graphopt.opsets import ConversionError, convert


def _labels(version: int, kind: int, **attrs: Any) -> onnx.ModelProto:
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", default_int64=9, **attrs)
    inputs, outputs = (helper.make_tensor_value_info(*each, [3]) for each in (("x", kind), ("y", TensorProto.INT64)))
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(helper.make_graph([node], "g", [inputs], [outputs]), opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("target", [2, 3, 4])
def test_the_last_of_equal_classes_counts(target: int) -> None:
    model = _labels(1, TensorProto.STRING, classes_strings=["a", "b", "a"])
    feed = {"x": np.asarray(["a", "b", "c"], object)}
    found = run_model(model, feed)
    assert found[0].tolist() == [2, 1, 9]
    assert differs(found, run_model(convert(model, ml_opset=target), feed)) is None


def test_nan_is_a_key_from_opset_4_on() -> None:
    feed = {"x": np.asarray([math.nan, 1, 2], np.float32)}
    keys = {"keys_floats": [math.nan, 1.0], "values_int64s": [5, 6]}
    older, newer = (_labels(version, TensorProto.FLOAT, **keys) for version in (2, 4))
    assert run_model(older, feed)[0].tolist() == [9, 6, 9]
    assert run_model(newer, feed)[0].tolist() == [5, 6, 9]
    assert run_model(convert(older, ml_opset=4), feed)[0].tolist() == [9, 6, 9]
    with pytest.raises(ConversionError, match="a key is NaN"):
        convert(newer, ml_opset=3)
