"""Shapes and contents that are claimed of onnx's operator cases are those of the outputs that come with them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from graphopt.analysis import ShapeAnalysis, infer_types
from graphopt.ir import Model
from tests.backend_models import backend_cases


def _models():
    return [case for case in backend_cases() if case.model is not None and case.data_sets]


def _analysis(model):
    view = Model.load(model)
    infer_types(view)
    return view, ShapeAnalysis(view, zero_sizes=True)


def _check(name, view, analysis, outputs):
    known = 0
    for value, array in zip(view.graph.outputs, outputs, strict=False):
        shape = analysis.shape(value)
        if shape is None or not isinstance(array, np.ndarray):
            continue
        assert len(shape) == array.ndim, f"{name}: {value.name} is {array.shape}, not {shape}"
        for claimed, size in zip(shape, array.shape, strict=True):
            assert not isinstance(claimed, int) or claimed == size, (
                f"{name}: {value.name} is {array.shape}, not {shape}"
            )
        known += all(isinstance(dim, int) for dim in shape)
        data = analysis.data(value)
        if data is not None and data.dtype.kind in "biu":
            assert np.array_equal(data, array), f"{name}: {value.name} holds {array}, not {data}"
    return known


def test_claims_hold_of_every_case():
    known = 0
    for case in _models():
        view, analysis = _analysis(case.model)
        for _, outputs in case.data_sets:
            known += _check(case.name, view, analysis, outputs)
    assert known > 1200


def test_claims_hold_with_symbols_in_the_place_of_sizes():
    """Every size of an input becomes a symbol of its own; what is claimed must be true of the sizes at hand."""
    settled = 0
    for case in _models():
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        sizes = {}
        for value in model.graph.input:
            for axis, dim in enumerate(value.type.tensor_type.shape.dim):
                name = f"{value.name}_{axis}"
                sizes[name] = dim.dim_value
                dim.dim_param = name
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")
        del model.graph.value_info[:]
        view, analysis = _analysis(model)
        for _, outputs in case.data_sets:
            for value, array in zip(view.graph.outputs, outputs, strict=False):
                shape = analysis.shape(value)
                if shape is None or not isinstance(array, np.ndarray):
                    continue
                assert len(shape) == array.ndim, case.name
                for claimed, size in zip(analysis.to_dims(shape), array.shape, strict=True):
                    wanted = sizes.get(claimed, claimed) if isinstance(claimed, str) else claimed
                    if isinstance(wanted, int):
                        settled += 1
                        assert wanted == size, f"{case.name}: {value.name} is {array.shape}, not {shape}"
    assert settled > 1500


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_keep_the_batch(op, direction):
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    count = 2 if direction == "bidirectional" else 1
    text = (
        '<ir_version: 9, opset_import: ["" : 18]> g (float[T,B,5] x) => (y, h) '
        f"<float[{count},{gates * 7},5] w = {{{','.join('0' * (count * gates * 35))}}}, "
        f"float[{count},{gates * 7},7] r = {{{','.join('0' * (count * gates * 49))}}}> "
        f'{{ y, h = {op} <hidden_size = 7, direction = "{direction}"> (x, w, r) }}'
    )
    view, analysis = _analysis(onnx.parser.parse_model(text))
    y, h = (analysis.to_dims(analysis.shape(value)) for value in view.graph.outputs)
    assert y == ("T", count, "B", 7)
    assert h == (count, "B", 7)
