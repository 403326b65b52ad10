"""Images of other sizes: which element is the nearest is told in single floats, as runtimes do."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.conversion import differs, run_model
from graphopt.opsets import ConversionError, convert


def _resize(opset: int, sizes: list[Any], *, stated: bool, rows: int, **attrs: Any) -> onnx.ModelProto:
    """A column that is resized by scales, or to sizes where these are integers."""
    array = np.asarray(sizes, np.int64 if isinstance(sizes[0], int) else np.float32)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, rows, 1])]
    place = ["x", "r", "", "s"] if array.dtype == np.int64 else ["x", "r", "s"]
    constants = [numpy_helper.from_array(np.zeros(0, np.float32), "r")]
    if stated:
        constants.append(numpy_helper.from_array(array, "s"))
    else:
        inputs.append(helper.make_tensor_value_info("s", helper.np_dtype_to_tensor_dtype(array.dtype), [4]))
    graph = helper.make_graph(
        [helper.make_node("Resize", place, ["y"], **attrs)], "g", inputs,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)], constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _same(model: onnx.ModelProto, sizes: list[Any], rows: int, target: int) -> None:
    feed = {"x": np.arange(rows, dtype=np.float32).reshape(1, 1, rows, 1)}
    if len(model.graph.input) > 1:
        feed["s"] = np.asarray(sizes, np.int64 if isinstance(sizes[0], int) else np.float32)
    after = convert(model, opset=target)
    assert differs(run_model(model, feed), run_model(after, feed)) is None


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric"])
@pytest.mark.parametrize(("rows", "size"), [(16, 1.3), (17, 0.3), (10, 0.7), (7, 2 / 7), (14, 1)])
def test_the_nearest_is_that_of_single_floats(
    rows: int, size: float, coordinates: str, nearest: str, stated: bool
) -> None:
    sizes = [1, 1, size, 1] if isinstance(size, int) else [1.0, 1.0, size, 1.0]
    attrs = {"coordinate_transformation_mode": coordinates, "nearest_mode": nearest}
    _same(_resize(13, sizes, stated=stated, rows=rows, **attrs), sizes, rows, 10)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("scale", [1.3, 0.7])
def test_as_many_elements_as_single_floats_make(mode: str, scale: float) -> None:
    """Ten times the single float next to 1.3 are a little less than 13, and 13 as a single float."""
    sizes = [1.0, 1.0, scale, 1.0]
    _same(_resize(13, sizes, stated=True, rows=10, mode=mode), sizes, 10, 10)


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("target", [13, 19, 10])
@pytest.mark.parametrize("scale", [0.5, 0.3, 1.3, 2.0])
def test_the_places_of_tensorflow_are_half_a_pixel_away(scale: float, target: int, stated: bool) -> None:
    sizes = [1.0, 1.0, scale, 1.0]
    attrs = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    model = _resize(11, sizes, stated=stated, rows=7, **attrs)
    _same(model, sizes, 7, target)
    (node,) = convert(model, opset=13).graph.node
    assert "tf_half_pixel_for_nn" not in str(node)  # which opset 13 does not have


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("other", [{"nearest_mode": "ceil"}, {"mode": "linear"}])
def test_other_places_of_tensorflow_stay_where_they_are(other: dict[str, str], stated: bool) -> None:
    model = _resize(
        11, [1.0, 1.0, 0.5, 1.0], stated=stated, rows=8, coordinate_transformation_mode="tf_half_pixel_for_nn", **other
    )
    for target in (13, 10):
        with pytest.raises(ConversionError, match="tf_half_pixel_for_nn|not constant") as error:
            convert(model, opset=target)
        assert error.value.__cause__ is None


def test_what_gets_larger_and_what_gets_smaller_below_opset_11() -> None:
    model = onnx.parser.parse_model("""
<ir_version: 4, opset_import: ["" : 10]>
g (float[5,4] x) => (float[2,10] y) { s = Constant <value = float[2] {0.5, 2.5}> ()  y = Resize (x, s) }
""")
    feed = {"x": np.arange(20, dtype=np.float32).reshape(5, 4)}
    assert differs(run_model(model, feed), run_model(convert(model, opset=9), feed)) is None


def test_scales_that_are_no_list_are_refused() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,1,N,1] x) => (float[A,B,C,D] y) '
        '<float[4,1] s = {1,1,1,1}> { y = Resize <mode = "linear"> (x, "", s) }'
    )
    with pytest.raises(ConversionError, match="Resize 'y'"):
        convert(model, opset=10)


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("nearest", ["floor", "ceil"])
@pytest.mark.parametrize(("rows", "size"), [(3, 1), (11, 29), (6, 1)])
def test_places_in_between_are_told_in_double_precision(rows: int, size: int, nearest: str, stated: bool) -> None:
    """In single floats (0 + 0.5) / (1 / 3) - 0.5 is 1, to the runtime a little less."""
    attrs = {"coordinate_transformation_mode": "half_pixel_symmetric", "nearest_mode": nearest}
    _same(_resize(19, [1, 1, size, 1], stated=stated, rows=rows, **attrs), [1, 1, size, 1], rows, 18)


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("attrs", [{"mode": "linear"}, {"nearest_mode": "floor"}])
@pytest.mark.parametrize("scale", [1.1, 1.25, 0.7, 1.5])
def test_what_keeps_its_shape_is_copied(scale: float, attrs: dict[str, str], stated: bool) -> None:
    """Wherever its elements would lie: 1.25 times 3 are 3."""
    sizes = [1.0, 1.0, scale, 1.0]
    _same(_resize(13, sizes, stated=stated, rows=3, **attrs), sizes, 3, 10)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_of_an_axis_that_stays_nothing_is_cropped(mode: str) -> None:
    model = onnx.parser.parse_model(f"""
<ir_version: 8, opset_import: ["" : 13]>
g (float[3,4] x, float[2] s) => (float[A,B] y) <float[4] r = {{0.1, 0.2, 0.9, 0.7}}> {{
  y = Resize <mode = "{mode}", coordinate_transformation_mode = "tf_crop_and_resize"> (x, r, s)
}}""")
    after = convert(model, opset=10)
    for scales in ([1, 1.5], [1, 1], [0.7, 1], [1.5, 2]):
        feed = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "s": np.asarray(scales, np.float32)}
        assert differs(run_model(model, feed), run_model(after, feed)) is None


@pytest.mark.parametrize("axes", ["", ", axes = [1, 0]"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_the_factor_of_all_axes_is_not_that_of_the_sizes(policy: str, mode: str, axes: str) -> None:
    """3 times 4 elements made at most 2 times 2 are halved, to 2 times 2 elements."""
    node = f'Resize <mode = "{mode}", keep_aspect_ratio_policy = "{policy}"{axes}> (x, "", "", s)'
    head = '<ir_version: 8, opset_import: ["" : 18]> g '
    computed = onnx.parser.parse_model(f"{head} (float[N,L] x, int64[2] s) => (float[A,B] y) {{ y = {node} }}")
    feed = {"x": np.arange(12, dtype=np.float32).reshape(3, 4)}
    after = convert(computed, opset=17)
    for sizes in ((2, 2), (6, 9), (6, 8)):
        asked = sizes[::-1] if axes else sizes
        given = {**feed, "s": np.asarray(asked, np.int64)}
        assert differs(run_model(computed, given), run_model(after, given)) is None
        stated = f"<int64[2] s = {{{asked[0]}, {asked[1]}}}>"
        fixed = onnx.parser.parse_model(f"{head} (float[3,4] x) => (float[A,B] y) {stated} {{ y = {node} }}")
        assert differs(run_model(fixed, feed), run_model(convert(fixed, opset=17), feed)) is None


def test_axes_from_the_end_are_not_those_of_the_runtime() -> None:
    model = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["" : 18]>
g (float[3,4] x, int64[2] s) => (float[A,B] y) {
  y = Resize <keep_aspect_ratio_policy = "not_larger", axes = [-1, 0]> (x, "", "", s)
}""")
    with pytest.raises(ConversionError, match="the runtime ignores negative axes"):
        convert(model, opset=17)
