"""Models of which the runtime gives something else than the standard says nothing."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import onnx
import pytest

from graphopt.fuzzing.building import strictly_inferred
from graphopt.fuzzing.usual import is_image_of_unknown_size, is_usual

_JOINS = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[1,?] a, float[n,2] b, bool c) => (float[?,?,?] y) {
   y = If (c) <
      else_branch = no () => (float[?,?,?] u) {
         s = SequenceConstruct (a, b)
         u = ConcatFromSequence <axis = 1, new_axis = 1> (s) },
      then_branch = yes () => (float[?,?,?] v) {
         t = SequenceConstruct (a, a)
         v = ConcatFromSequence <axis = 1, new_axis = 1> (t) }
   >
}
"""


def test_elements_joined_in_a_branch_are_not_empty() -> None:
    model = onnx.parser.parse_model(_JOINS)
    one = np.ones((1, 2), np.float32)
    assert is_usual(model, {"a": one, "b": one, "c": np.array(False)})
    assert not is_usual(model, {"a": one, "b": np.zeros((0, 2), np.float32), "c": np.array(False)})


def test_norms_have_groups_in_branches_that_nobody_takes_too() -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[1,4,2] x, float[4] s, bool c) => (float[1,4,2] y) {
       y = If (c) <
          else_branch = no () => (float[1,4,2] u) { u = GroupNormalization <num_groups = 2> (x, s, s) },
          then_branch = yes () => (float[1,4,2] v) { v = Relu (x) }
       >
    }
    """
    feed = {"x": np.ones((1, 4, 2), np.float32), "s": np.ones(4, np.float32), "c": np.array(True)}
    model = onnx.parser.parse_model(text)
    assert is_usual(model, feed)
    model.graph.node[0].attribute[0].g.node[0].attribute[0].i = -1
    assert not is_usual(model, feed)


def test_a_cast_of_two_is_one_that_the_runtime_takes() -> None:
    """It takes a `Cast` of half precision away where the next one gives the same, and does not look at it then."""
    text = """
    <ir_version: 10, opset_import: ["" : 21]>
    g (float16[2] x) => (float[2] y) { n = Mul (x, x) a = Cast <to = TO, saturate = 0> (n) y = Cast <to = 1> (a) }
    """
    feed = {"x": np.ones(2, np.float16)}
    assert not is_usual(onnx.parser.parse_model(text.replace("TO", "1")), feed)
    assert is_usual(onnx.parser.parse_model(text.replace("TO", "17")), feed)


def test_elements_joined_in_a_branch_fit_where_they_are_computed() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[2,2] a, int64[1] k, bool c) => (float[?,?,?] y) {
       y = If (c) <
          else_branch = no () => (float[?,?,?] u) {
             z = Constant <value = int64[1] {0}> ()
             b = Slice (a, z, k)
             s = SequenceConstruct (a, b)
             u = ConcatFromSequence <axis = 0, new_axis = 1> (s) },
          then_branch = yes () => (float[?,?,?] v) {
             t = SequenceConstruct (a, a)
             v = ConcatFromSequence <axis = 0, new_axis = 1> (t) }
       >
    }
    """
    model = onnx.parser.parse_model(text)
    for length in (2, 1, 0):
        feed = {"a": np.ones((2, 2), np.float32), "k": np.array([length]), "c": np.array(False)}
        assert is_usual(model, feed) == (length == 2)


@pytest.mark.parametrize("height", ["H", "0"])
def test_images_without_pixels_are_granted_where_no_size_is_stated(height: str) -> None:
    text = f"""
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[1,2,{height},4] x) => (float[1,2,K,L] y) {{ y = Relu (x) }}
    """
    model = onnx.parser.parse_model(text)
    assert is_image_of_unknown_size(model, {"x": np.ones((1, 2, 0, 4), np.float32)}) == (height == "H")
    assert not is_image_of_unknown_size(model, {"x": np.ones((1, 2, 3, 4), np.float32)})


def test_an_image_whose_size_is_stated_says_nothing_of_another() -> None:
    model = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[1,2,H,4] x, float[1,2,0,5] z) => (float[1,2,K,L] y, float[1,2,0,5] w) { y = Relu (x) w = Neg (z) }
    """)
    feed = {"x": np.ones((1, 2, 0, 4), np.float32), "z": np.ones((1, 2, 0, 5), np.float32)}
    assert not is_image_of_unknown_size(model, feed)
    assert is_image_of_unknown_size(model, feed, (0, 4))
    assert not is_image_of_unknown_size(model, feed, (0, 5))


def test_products_of_integers_in_a_branch_have_terms() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (int8[3,n] a, int8[n,2] b, bool c) => (int32[3,2] y) {
       y = If (c) <
          else_branch = no () => (int32[3,2] u) { u = MatMulInteger (a, b) },
          then_branch = yes () => (int32[3,2] v) { v = MatMulInteger (a, b) }
       >
    }
    """
    model = onnx.parser.parse_model(text)
    feeds = [{"a": np.ones((3, n), np.int8), "b": np.ones((n, 2), np.int8), "c": np.array(True)} for n in (2, 0)]
    assert [is_usual(model, feed) for feed in feeds] == [True, False]


def test_pools_with_nothing_to_write_say_nothing() -> None:
    """Blocked kernels divide by the number of rows that they write, which ends the process."""
    text = "g (float[1,4,H,H] x) => (float[1,4,K,K] y) { y = MaxPool <kernel_shape = [3, 3]> (x) }"
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>' + text)
    assert [is_usual(model, {"x": np.ones((1, 4, size, size), np.float32)}) for size in (3, 2)] == [True, False]


def test_inference_does_not_follow_the_numbers_of_a_long_list() -> None:
    """It took 4 seconds for this model; what it says of sizes is the same."""
    text = """
        <ir_version: 9, opset_import: ["" : 18]>
        g (float[1] x) => (y) <int64[1] n = {16777216}> { r = ConstantOfShape (n)  y = Add (x, r) }
    """
    model = onnx.parser.parse_model(text)
    with patch.object(onnx.shape_inference, "infer_shapes", wraps=onnx.shape_inference.infer_shapes) as asked:
        inferred = strictly_inferred(model)
        model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array([7]), "n"))
        assert strictly_inferred(model) is not None
    assert [call.kwargs["data_prop"] for call in asked.call_args_list] == [False, True]
    assert inferred is not None
    assert [dim.dim_value for dim in inferred.graph.output[0].type.tensor_type.shape.dim] == [16777216]
