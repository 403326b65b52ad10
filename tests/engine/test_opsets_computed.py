"""Conversion down where operands are computed, and operators that are written out; what was wrong once stays right."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest

from benchmarks.conversion import attempt, case_of, differs, run_model
from benchmarks.conversion_networks import same_graph
from graphopt.opsets import convert

WRITTEN_OUT = {
    "test_reduce_l2_negative_axes_keep_dims_random": 9, "test_reduce_log_sum_desc_axes": 12,
    "test_unsqueeze_unsorted_axes": 9, "test_squeeze_negative_axes": 9, "test_slice_neg_steps": 9,
    "test_center_crop_pad_pad": 10, "test_wrap_pad": 13, "test_split_variable_parts_2d_opset13": 12, "test_top_k_smallest": 9,
    "test_cumprod_2d_axis_1": 13, "test_dft_rfft": 12, "test_dft_irfft_opset19": 12, "test_gridsample_bicubic": 11,
    "test_gridsample_reflection_padding": 15, "test_gridsample_volumetric_bilinear_align_corners_1": 19,
    "test_deform_conv_with_multiple_offset_groups": 18, "test_scan9_sum": 8, "test_reversesequence_time": 9,
    "test_depthtospace_crd_mode_example": 9, "test_bitshift_right_int32_negative_input": 10,
    "test_bitwise_and_ui64_bcast_3v1d": 17, "test_mod_float32_mixed_sign_fmod_0": 26,
    "test_linear_attention_decode_step": 13, "test_asinh": 8, "test_greater_uint64": 8,
}  # fmt: skip
"""Backend cases, with the opset that each goes down to."""


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_written_out(name: str) -> None:
    case = case_of(name)
    assert case is not None
    assert attempt(case, WRITTEN_OUT[name]) == ("right", "")


@pytest.mark.parametrize("name", ["test_col2im_dilations", "test_stft_with_window"])
def test_written_out_where_sizes_are_stated(name: str) -> None:
    case = case_of(name)
    assert case is not None
    model, feed = onnx.ModelProto(), dict(case.feed)
    model.CopyFrom(case.model)
    for info in list(model.graph.input)[1:]:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(feed.pop(info.name)), info.name))
        model.graph.input.remove(info)
    assert attempt(dataclasses.replace(case, model=model, feed=feed), 11) == ("right", "")


CHOSEN = """
<ir_version: 8, opset_import: ["" : 11]>
g (bool[n,1] c, float[m] x, float[n,m] z) => (float[n,m] y) { y = Where (c, x, z) }
"""


@pytest.mark.parametrize("target", [7, 8])
def test_nothing_that_is_not_chosen_comes_through_whatever_the_sizes(target: int) -> None:
    model = onnx.parser.parse_model(CHOSEN)
    x, z = np.asarray([1, np.inf, 3], np.float32), np.asarray([[np.nan, 1, 2], [4, -np.inf, 6]], np.float32)
    feed = {"c": np.asarray([[True], [False]]), "x": x, "z": z}
    assert differs(run_model(model, feed), run_model(convert(model, opset=target), feed)) is None


PAIR = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2,3,4] x) => (float[2,3] y) { a = ReduceMean <axes = [2], keepdims = 0> (x)  y = Softmax (a) }
"""


def test_graphs_are_the_same_whatever_is_stated_at_its_default() -> None:
    one = onnx.parser.parse_model(PAIR)
    two = onnx.parser.parse_model(PAIR.replace("Softmax (a)", "Softmax <axis = -1> (a)"))
    three = onnx.parser.parse_model(PAIR.replace("Softmax (a)", "Softmax <axis = 0> (a)"))
    assert same_graph(one, two)
    assert not same_graph(one, three)
    assert same_graph(one, convert(convert(one, opset=21), opset=17))
