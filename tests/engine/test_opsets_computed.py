"""Conversion down where operands are computed, and operators that are written out; what was wrong once stays right."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import onnx
import pytest

from benchmarks.conversion import (
    Case,
    attempt,
    case_model,
    case_of,
    case_outputs,
    differs,
    feed_of,
    names,
    run_model,
)
from benchmarks.conversion_networks import same_graph
from graphopt.opsets import ConversionError, convert

WRITTEN_OUT = {
    "test_reduce_l2_negative_axes_keep_dims_random": 9, "test_reduce_log_sum_desc_axes": 12,
    "test_unsqueeze_unsorted_axes": 11, "test_squeeze_negative_axes": 11, "test_slice_neg_steps": 9,
    "test_center_crop_pad_pad": 10, "test_wrap_pad": 13, "test_split_variable_parts_2d_opset13": 12, "test_top_k_smallest": 9,
    "test_cumprod_2d_axis_1": 13, "test_dft_rfft": 12, "test_dft_irfft_opset19": 12, "test_gridsample_bicubic": 11,
    "test_gridsample_reflection_padding": 15, "test_gridsample_volumetric_bilinear_align_corners_1": 19,
    "test_deform_conv_with_multiple_offset_groups": 18, "test_scan9_sum": 8, "test_reversesequence_time": 9,
    "test_depthtospace_crd_mode_example": 9, "test_bitshift_right_int32_negative_input": 10,
    "test_bitwise_and_ui64_bcast_3v1d": 17, "test_mod_float32_mixed_sign_fmod_0": 26,
    "test_linear_attention_decode_step": 13, "test_asinh": 8, "test_greater_uint64": 8,
    "test_hardsigmoid_expanded_ver18": 7, "test_clip": 7, "test_dft_irfft": 7, "test_compress_0": 8, "test_compress_1": 7,
    "test_nonzero_example": 7, "test_onehot_negative_indices": 8, "test_onehot_without_axis": 7,
    "test_scatter_with_axis": 7, "test_scatter_elements_with_duplicate_indices": 8,
    "test_maxunpool_export_without_output_shape": 7, "test_unique_sorted_with_negative_axis": 10,
    "test_unique_not_sorted_without_axis": 7, "test_unique_sorted_without_axis": 9, "test_det_nd": 7,
    "test_optional_has_element_empty_no_input_name_tensor_input": 7, "test_optional_get_element_tensor": 9, "test_cumsum_2d_int32": 7,
    "test_top_k_same_values": 9, "test_einsum_batch_diagonal": 8, "test_convinteger_with_padding": 8,
    "test_qlinearconv": 7, "test_affine_grid_3d_align_corners": 8, "test_nonmaxsuppression_two_classes": 7,
    "test_nonmaxsuppression_center_point_box_format": 9, "test_resize_upsample_sizes_cubic": 10,
    "test_resize_downsample_scales_cubic_A_n0p5_exclude_outside": 9, "test_resize_upsample_sizes_nearest_not_larger": 8,
    "test_resize_tf_crop_and_resize_axes_3_2": 10, "test_resize_downsample_sizes_linear_pytorch_half_pixel": 7,
    "test_upsample_nearest": 8, "test_erf": 7, "test_mod_mixed_sign_float32": 8, "test_stft_with_window": 13,
}  # fmt: skip
"""Backend cases, with the opset that each goes down to."""


def _skip_what_this_onnx_lacks(name: str, opset: int = 0) -> None:
    newest = onnx.defs.onnx_opset_version()
    if newest < 26 and (opset > newest or name not in names()):
        pytest.skip(f"onnx {onnx.__version__} has opsets up to {newest}, and no case of that: 1.23 has")


def _case(name: str) -> Case:
    """A case with what it gives; where the runtime does not take its opset, what the suite says that it gives."""
    _skip_what_this_onnx_lacks(name)
    return case_of(name) or Case(name, case_model(name), feed_of(name), case_outputs(name))


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_written_out(name: str) -> None:
    assert attempt(_case(name), WRITTEN_OUT[name]) == ("right", "")


@pytest.mark.parametrize("name", ["test_unsqueeze_unsorted_axes", "test_squeeze_negative_axes"])
def test_computed_axes_stay_where_branches_have_one_rank(name: str) -> None:
    outcome, why = attempt(_case(name), 10)
    assert outcome == "refused"
    assert "branches of different ranks require opset 11" in why


@pytest.mark.parametrize(
    ("name", "target"), [("test_scan_sum", 9), ("test_scan_sum", 26), ("test_upsample_nearest", 13)]
)
def test_written_out_on_the_way_up(name: str, target: int) -> None:
    _skip_what_this_onnx_lacks(name, target)
    case = case_of(name)
    assert case is not None
    assert attempt(case, target) == ("right", "")


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


BYTES = """
<ir_version: 8, opset_import: ["" : 13]>
g (float[1,3,2,2] x, float[3] s, uint8[3] z) => (uint8[1,3,2,2] q, float[1,3,2,2] y) {
  q = QuantizeLinear (x, s, z)
  y = DequantizeLinear (q, s, z)
}
"""


@pytest.mark.parametrize("target", [7, 9, 10, 12])
def test_computed_scales_of_channels_go_down(target: int) -> None:
    model = onnx.parser.parse_model(BYTES)
    feed = {
        "x": np.linspace(-3, 3, 12, dtype=np.float32).reshape(1, 3, 2, 2), "s": np.asarray([0.1, 0.5, 0.02], np.float32),
        "z": np.asarray([3, 128, 7], np.uint8),
    }  # fmt: skip
    assert differs(run_model(model, feed), run_model(convert(model, opset=target), feed)) is None


ENLARGED = """
<ir_version: 8, opset_import: ["" : 20]>
g (float[1,2,3,4] x) => (float[1,2,6,8] y) <float[4] scales = {1, 1, 2, 2}> { y = Resize <mode = "linear"> (x, , scales) }
"""


def test_regions_that_are_empty_come_and_go() -> None:
    model = onnx.parser.parse_model(ENLARGED)
    older = convert(model, opset=11)
    assert len(older.graph.node[0].input) == 3
    assert older.graph.node[0].input[1]
    assert same_graph(model, convert(older, opset=20))


MIXED = """
<ir_version: 8, opset_import: ["" : 10]>
g (float[1,2,3,4] x, float[4] s) => (float[n,c,h,w] y) { y = Resize <mode = "nearest"> (x, s) }
"""


@pytest.mark.parametrize("scales", [(1, 1, 2, 3), (1, 1, 0.5, 0.3), (1, 1, 2, 0.5), (1, 2, 0.7, 1.5)])
@pytest.mark.parametrize("stated", [True, False])
def test_images_that_grow_and_shrink_are_raised(scales: tuple[float, ...], *, stated: bool) -> None:
    model = onnx.parser.parse_model(MIXED)
    numbers = np.asarray(scales, np.float32)
    feed = {"x": np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4), "s": numbers}
    expected = run_model(model, feed)
    if stated:
        model.graph.initializer.append(onnx.numpy_helper.from_array(numbers, "s"))
        del model.graph.input[1:], feed["s"]
    assert differs(expected, run_model(convert(model, opset=13), feed)) is None


BRANCHES = """
<ir_version: 8, opset_import: ["" : 13]>
g (bool c, float[2] x, float[3] z) => (float[n] y) {
  y = If (c) <then_branch = one () => (float[2] s) { s = Neg (x) }, else_branch = two () => (float[3] t) { t = Neg (z) }>
}
"""


def test_branches_of_two_shapes_stay_above_opset_10() -> None:
    model = onnx.parser.parse_model(BRANCHES)
    assert convert(model, opset=11).opset_import[0].version == 11
    with pytest.raises(ConversionError, match="If 'y': branches of different shapes.*nearest opset: 11"):
        convert(model, opset=10)


IMPORTS = """
<ir_version: 8, opset_import: ["" : {own}, "f" : 1]>
g (float[2,3] x) => (float[2] y) {{ a = Relu (x)  y = f.Summed (a) }}
<domain: "f", opset_import: ["" : {inner}]>
Summed (x) => (y) {{ axes = Constant <value = int64[1] {{1}}> ()  y = ReduceSum <keepdims = 0> (x, axes) }}
"""


@pytest.mark.parametrize(("own", "inner"), [(13, 18), (18, 13)])
@pytest.mark.parametrize("target", [11, 15, 20])
def test_functions_are_converted_from_the_opset_that_they_import(own: int, inner: int, target: int) -> None:
    after = convert(onnx.parser.parse_model(IMPORTS.format(own=own, inner=inner)), opset=target)
    assert [entry.version for entry in after.opset_import if not entry.domain] == [target]
    assert [entry.version for entry in after.functions[0].opset_import] == [target]
    feed = {"x": np.asarray([[1, -2, 3], [4, 5, -6]], np.float32)}
    assert differs([np.asarray([4, 9], np.float32)], run_model(after, feed)) is None


def test_a_determinant_is_what_numpy_says() -> None:
    text = '<ir_version: 8, opset_import: ["" : 11]> g (float[2,5,5] x) => (float[2] y) { y = Det (x) }'
    x = np.random.default_rng(5).standard_normal((2, 5, 5)).astype(np.float32)
    x[1, 2] = x[1, 3]
    found = run_model(convert(onnx.parser.parse_model(text), opset=9), {"x": x})
    np.testing.assert_allclose(found[0], np.linalg.det(x.astype(np.float64)), rtol=1e-4, atol=1e-4)


def test_the_error_function_is_that_of_single_floats() -> None:
    text = '<ir_version: 8, opset_import: ["" : 9]> g (float[n] x) => (float[n] y) { y = Erf (x) }'
    x = np.asarray([0.0, 1e-30, 1e-6, 9e-5, 2e-4, 0.3, 1, 2.5, 3.9, 4, 6, np.inf, np.nan], np.float32)
    x = np.concatenate([x, -x])
    found = run_model(convert(onnx.parser.parse_model(text), opset=8), {"x": x})
    expected = np.asarray([math.erf(float(each)) for each in x], np.float32)
    np.testing.assert_array_almost_equal_nulp(found[0][~np.isnan(x)], expected[~np.isnan(x)], 1)
    assert np.isnan(found[0][np.isnan(x)]).all()


POOL = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[1,1,4,4] x) => (float[1,1,2,2] y) { y, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) }
"""


def test_outputs_that_nobody_reads_go_where_the_operator_has_fewer() -> None:
    model = convert(onnx.parser.parse_model(POOL), opset=7)
    onnx.checker.check_model(model, full_check=True)
    assert [list(node.output) for node in model.graph.node] == [["y"]]
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    assert differs(run_model(onnx.parser.parse_model(POOL), {"x": x}), run_model(model, {"x": x})) is None
