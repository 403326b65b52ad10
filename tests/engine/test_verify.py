"""The oracle: a wrong model must be reported, a right one must not, and what cannot be told must be said."""

from __future__ import annotations

import json
from enum import IntEnum

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt import verify
from graphopt.errors import ModelError, UsageError


def parse(body: str, opset: int = 17) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{body}')


def graph(signature: str, *lines: str, opset: int = 17) -> onnx.ModelProto:
    return parse(f"g {signature} {{ {' '.join(lines)} }}", opset)


def model(nodes, inputs, outputs, initializers=(), *, opset=17, ir_version=9, **kwargs):
    return helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, list(initializers)),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=ir_version,
        **kwargs,
    )


def value(name, dtype, shape):
    return helper.make_tensor_value_info(name, dtype, shape)


# Each pair is a rewrite that some optimizer really made, or could make, and that must be caught.
FAULTS = {
    "relu dropped": (
        "(float[N,3] x) => (float[N,3] y)",
        "y = Relu(x)",
        "y = Identity(x)",
    ),
    "sign lost": (
        "(float[N,3] x) => (float[N,3] y)",
        "y = Relu(x)",
        "y = Abs(x)",
    ),
    "clip bound": (
        "(float[N,64] x) => (float[N,64] y)",
        "l = Constant<value_float=0.0>() h = Constant<value_float=6.0>() y = Clip(x, l, h)",
        "y = Relu(x)",
    ),
    "axes of a transpose": (
        "(float[A,B,C] x) => (float[U,V,W] y)",
        "y = Transpose<perm=[0,2,1]>(x)",
        "y = Transpose<perm=[2,0,1]>(x)",
    ),
    "zero copies in a reshape": (
        "(float[A,B,4] x) => (float[U,V] y)",
        "s = Constant<value_ints=[0,-1]>() y = Reshape(x, s)",
        "s = Constant<value_ints=[-1,4]>() y = Reshape(x, s)",
    ),
    "batch frozen": (
        "(float[N,4] x) => (float[U,V] y)",
        "s = Constant<value_ints=[-1,2]>() y = Reshape(x, s)",
        "s = Constant<value_ints=[4,2]>() y = Reshape(x, s)",
    ),
    "zero padding into a max pool": (
        "(float[1,2,8,8] x) => (float[1,2,U,V] y)",
        "p = Constant<value_ints=[0,0,1,1,0,0,1,1]>() q = Pad(x, p) y = MaxPool<kernel_shape=[3,3]>(q)",
        "y = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(x)",
    ),
    "axis of a softmax": (
        "(float[N,5,7] x) => (float[N,5,7] y)",
        "y = Softmax<axis=-1>(x)",
        "y = Softmax<axis=1>(x)",
    ),
    "ties broken the other way": (
        "(float[N,64] x) => (int64[N,1] y)",
        "y = ArgMax<axis=1>(x)",
        "y = ArgMax<axis=1, select_last_index=1>(x)",
    ),
    "argmax after a saturating op": (
        "(float[N,64] x) => (int64[N,1] y)",
        "h = HardSigmoid(x) y = ArgMax<axis=1>(h)",
        "y = ArgMax<axis=1>(x)",
    ),
    "or for and": (
        "(bool[N,8] x, bool[N,8] z) => (bool[N,8] y)",
        "y = And(x, z)",
        "y = Or(x, z)",
    ),
    "integer division is not multiplication": (
        "(int64[N,8] x) => (int64[N,8] y)",
        "c = Constant<value_int=2>() d = Div(x, c) y = Mul(d, c)",
        "y = Identity(x)",
    ),
    "gather of another row": (
        "(int64[N] x) => (float[N] y)",
        "t = Constant<value_floats=[1.0,2.0,3.0]>() y = Gather(t, x)",
        "t = Constant<value_floats=[1.0,3.0,2.0]>() y = Gather(t, x)",
    ),
    "fp16 slope": (
        "(float16[N,8] x) => (float16[N,8] y)",
        "y = LeakyRelu<alpha=0.2>(x)",
        "y = LeakyRelu<alpha=0.25>(x)",
    ),
    "strings": (
        "(string[16] x) => (string[16] y)",
        "y = Identity(x)",
        "i = Constant<value_ints=[1,0,2,3,4,5,6,7,8,9,10,11,12,13,15,14]>() y = Gather(x, i)",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("numerics", ["exact", "rounding"])
def test_reports_a_planted_fault(fault, numerics):
    signature, good, bad = FAULTS[fault]
    report = verify.compare(graph(signature, good), graph(signature, bad), numerics=numerics)
    assert report.status == "mismatch", report.summary()
    assert not report.ok
    wrong = report.outputs[0]
    assert wrong.name == "y"
    assert wrong.detail or any(c.detail for c in report.cases)


@pytest.mark.parametrize("fault", FAULTS)
def test_accepts_a_model_against_itself_bit_by_bit(fault):
    signature, good, _ = FAULTS[fault]
    report = verify.assert_equivalent(graph(signature, good), graph(signature, good), numerics="exact")
    assert report.status == "equal"
    assert all(c.status == "equal" for c in report.cases)


def test_the_special_set_alone_sees_what_becomes_of_nan():
    original = graph("(float[N,8] x) => (float[N,8] y)", "y = Mul(x, x)")
    wrong = graph("(float[N,8] x) => (float[N,8] y)", "z = Mul(x, x) y = Max(z)")
    assert verify.compare(original, wrong).ok  # Max of one input keeps NaN
    zeroed = graph(
        "(float[N,8] x) => (float[N,8] y)",
        "z = Mul(x, x) n = IsNaN(z) o = Constant<value_float=0.0>() y = Where(n, o, z)",
    )
    report = verify.compare(original, zeroed)
    assert report.status_of("ordinary") == "equal"
    assert report.status_of("extreme") == "equal"
    assert report.status_of("special") == "mismatch"
    assert "expected nan" in report.outputs[0].detail


def test_the_sign_of_zero_counts_only_when_exact():
    original = graph("(float[N,64] x) => (float[N,64] y)", "y = Identity(x)")
    added = graph("(float[N,64] x) => (float[N,64] y)", "z = Constant<value_float=0.0>() y = Add(x, z)")
    assert verify.compare(original, added, numerics="exact").status == "mismatch"
    assert verify.compare(original, added, numerics="rounding").ok


def test_reassociation_is_close_but_not_exact():
    signature = "(float[N,64] x) => (float[N,64] y)"
    consts = "a = Constant<value_float=0.1>() b = Constant<value_float=0.3>()"
    original = graph(signature, f"{consts} p = Mul(x, a) y = Mul(p, b)")
    merged = graph(signature, f"{consts} p = Mul(a, b) y = Mul(x, p)")
    assert verify.compare(original, merged, numerics="exact").status == "mismatch"
    report = verify.compare(original, merged, numerics="rounding")
    assert report.status == "close"
    assert 0 < report.max_rel < 1e-6


def test_an_approximation_needs_the_fast_level():
    signature = "(float[N,256] x) => (float[N,256] y)"
    original = graph(signature, "y = Gelu(x)", opset=20)
    tanh = graph(signature, 'y = Gelu<approximate="tanh">(x)', opset=20)
    assert verify.compare(original, tanh, numerics="rounding").status == "mismatch"
    assert verify.compare(original, tanh, numerics="fast").ok


def test_a_huge_element_buys_no_tolerance_for_the_others():
    signature = "(float[64] x) => (float[65] y)"
    mask = "m = Constant<value_floats=[-1e9]>()"
    original = graph(signature, f"{mask} y = Concat<axis=0>(x, m)")
    wrong = graph(signature, f"{mask} s = Constant<value_float=1.01>() z = Mul(x, s) y = Concat<axis=0>(z, m)")
    assert verify.compare(original, wrong).status == "mismatch"


def test_an_ill_conditioned_model_is_measured_by_its_own_sensitivity():
    # The difference of two large numbers: what is left is rounding error, in any order of evaluation.
    signature = "(float[N,64] x) => (float[N,64] y)"
    c = "c = Constant<value_float=1234.5678>() h = Constant<value_float=0.3333>()"
    original = graph(signature, f"{c} a = Mul(x, h) b = Add(a, c) d = Sub(b, c) y = Div(d, h)")
    other = graph(signature, f"{c} q = Div(c, h) b = Add(x, q) y = Sub(b, q)")
    report = verify.compare(original, other, sets=["ordinary"])
    assert report.status == "close", report.summary()
    assert any(c.outputs[0].noise for c in report.cases), "the plain tolerance was not enough"
    wrong = graph(
        signature, f"{c} q = Div(c, h) b = Add(x, q) e = Sub(b, q) w = Constant<value_float=1.01>() y = Mul(e, w)"
    )
    assert verify.compare(original, wrong, sets=["ordinary"]).status == "mismatch"


def test_noise_does_not_excuse_a_wrong_constant():
    signature = "(float[N,64] x) => (float[N,64] y)"
    original = graph(signature, "k = Constant<value_float=2.0>() y = Mul(x, k)")
    wrong = graph(signature, "k = Constant<value_float=2.001>() y = Mul(x, k)")
    report = verify.compare(original, wrong)
    assert report.status == "mismatch"
    assert report.outputs[0].noise is not None
    assert report.outputs[0].mismatches > 0


def test_reports_error_and_place():
    signature = "(float[2,3] x) => (float[2,3] y)"
    zeros = numpy_helper.from_array(np.zeros((2, 3), np.float32), "d")
    bump = np.zeros((2, 3), np.float32)
    bump[1, 2] = 0.5
    good, bad = graph(signature, "y = Add(x, d)"), graph(signature, "y = Add(x, d)")
    good.graph.initializer.append(zeros)
    bad.graph.initializer.append(numpy_helper.from_array(bump, "d"))
    feed = {"x": np.array([[1, -4, 2], [0, 0, 1]], np.float32)}
    report = verify.compare(good, bad, inputs=feed)
    (output,) = report.outputs
    assert (output.max_abs, output.max_rel) == (0.5, 0.125)
    assert (output.mismatches, output.elements, output.first_index) == (1, 6, (1, 2))
    assert output.shape == (2, 3)
    assert output.dtype == "float32"
    assert "expected 1.0, found 1.5" in output.detail
    assert report.cases[0].set == "given"
    assert "first at [1, 2]" in report.summary()


# -- sizes


def test_the_same_symbol_gets_the_same_size_and_one_is_among_them():
    m = graph("(float[N,K] a, float[K,M] b) => (float[N,M] y)", "y = MatMul(a, b)")
    report = verify.compare(m, m)
    sizes = [c.sizes for c in report.cases if c.set == "ordinary"]
    assert len(sizes) == 3
    assert {"N": 1, "K": 1, "M": 1} in sizes
    assert len(set(sizes[0].values())) == 3, "different dimensions, different sizes"


def test_finds_sizes_that_a_model_accepts():
    m = graph(
        "(float[N,1,H,W] x) => (float[N,1,U,V] y)",
        "p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) q = MaxPool<kernel_shape=[2,2], strides=[2,2]>(p)"
        " y = MaxPool<kernel_shape=[5,5]>(q)",
    )
    assert verify.compare(m, m).status_of("ordinary") == "equal"


def test_unnamed_dimensions_that_must_agree():
    m = graph("(float[?,4] a, float[?,4] b) => (float[?,8] y)", "y = Concat<axis=1>(a, b)")
    assert verify.compare(m, m).ok


def test_dimensions_written_as_expressions():
    m = graph(
        "(float[N,past] a, float[N,1] b, float[N,past1] z) => (float[N,past1] y)",
        "c = Concat<axis=1>(a, b)",
        "y = Add(c, z)",
    )
    for proto in (*m.graph.input, *m.graph.output):
        for dim in proto.type.tensor_type.shape.dim:
            if dim.dim_param == "past1":
                dim.dim_param = "past + 1"
    report = verify.compare(m, m)
    sizes = report.cases[0].sizes
    assert sizes["past + 1"] == sizes["past"] + 1


def test_sizes_can_be_given():
    m = graph("(float[N,C] x) => (float[N,C] y)", "y = Relu(x)")
    report = verify.compare(m, m, dims={"N": 17})
    assert {c.sizes["N"] for c in report.cases} == {17}
    assert len({c.sizes["C"] for c in report.cases}) > 1


def test_unknown_rank():
    m = model(
        [helper.make_node("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1])],
        [value("x", TensorProto.FLOAT, None)],
        [value("y", TensorProto.FLOAT, None)],
    )
    assert verify.compare(m, m).ok


# -- integers that mean something


INDEX_LIKE = {
    "gather": ("(float[N,5] x, int64[K] i) => (float[N,K] y)", "y = Gather<axis=1>(x, i)"),
    "gather through cast and unsqueeze": (
        "(float[N,5] x, int32[K] i) => (float[N,K,1] y)",
        "j = Cast<to=7>(i) a = Constant<value_ints=[1]>() k = Unsqueeze(j, a) y = Gather<axis=1>(x, k)",
    ),
    "one hot": (
        "(int64[N] i) => (float[N,7] y)",
        "d = Constant<value_int=7>() v = Constant<value_floats=[0.0,1.0]>() y = OneHot(i, d, v)",
    ),
    "reshape": ("(float[2,3,4] x, int64[3] s) => (float[A,B,C] y)", "y = Reshape(x, s)"),
    "reshape of unknown": ("(float[A,6] x, int64[2] s) => (float[B,C] y)", "z = Relu(x) y = Reshape(z, s)"),
    "expand": ("(float[N,3] x, int64[2] s) => (float[A,B] y)", "y = Expand(x, s)"),
    "slice": (
        "(float[8,8] x, int64[2] b, int64[2] e, int64[2] a, int64[2] s) => (float[A,B] y)",
        "y = Slice(x, b, e, a, s)",
    ),
    "top k": ("(float[N,6] x, int64[1] k) => (float[N,K] y, int64[N,K] z)", "y, z = TopK(x, k)"),
    "tile": ("(float[N,6] x, int64[2] k) => (float[A,B] y)", "y = Tile(x, k)"),
    "range": ("(int64 a, int64 b, int64 c) => (int64[N] y)", "y = Range(a, b, c)"),
    "float range": ("(float a, float b, float c) => (float[N] y)", "y = Range(a, b, c)"),
    "constant of shape": ("(int64[3] s) => (float[A,B,C] y)", "y = ConstantOfShape(s)"),
    "split": ("(float[6,2] x, int64[2] s) => (float[A,2] y, float[B,2] z)", "y, z = Split<axis=0>(x, s)"),
    "reduce": ("(float[2,3,4] x, int64[2] a) => (float[A] y)", "y = ReduceSum<keepdims=0>(x, a)"),
    "resize": ("(float[1,1,4,4] x, float[4] s) => (float[A,B,C,D] y)", "y = Resize(x, , s)"),
    "divide": ("(int32[N] a, int32[N] b) => (int32[N] y)", "y = Div(a, b)"),
    "pad": ("(float[N,6] x, int64[4] p) => (float[A,B] y)", "y = Pad(x, p)"),
    "scatter": (
        "(float[4,5] x, int64[4,2] i, float[4,2] u) => (float[4,5] y)",
        "y = ScatterElements<axis=1>(x, i, u)",
    ),
    "gather nd": ("(float[4,5] x, int64[N,2] i) => (float[N] y)", "y = GatherND(x, i)"),
}


@pytest.mark.parametrize("case", INDEX_LIKE)
def test_generates_legal_integers(case):
    m = graph(INDEX_LIKE[case][0], INDEX_LIKE[case][1])
    report = verify.compare(m, m, numerics="exact")
    assert report.status == "equal", report.summary()
    assert report.status_of("ordinary") == "equal"


def test_indices_reach_every_row():
    feed = verify.sample_inputs(
        graph("(int64[N] x) => (float[N] y)", "t = Constant<value_floats=[1.0,2.0,3.0]>() y = Gather(t, x)"),
        dims={"N": 200},
    )
    assert set(np.unique(feed["x"])) == {0, 1, 2}


def test_a_model_that_never_runs_is_inconclusive_and_says_why():
    m = graph("(float[2,3] x) => (float[A,B] y)", "s = Constant<value_ints=[4,4]>() y = Reshape(x, s)")
    report = verify.compare(m, m)
    assert report.status == "inconclusive"
    assert "both models fail in the same way" in report.detail
    with pytest.raises(AssertionError, match="both models fail"):
        verify.assert_equivalent(m, m)


def test_a_result_that_fails_where_the_original_runs_is_a_mismatch():
    original = graph("(float[2,N] x) => (float[A,B] y)", "s = Constant<value_ints=[-1,2]>() y = Reshape(x, s)")
    wrong = graph("(float[2,N] x) => (float[A,B] y)", "s = Constant<value_ints=[4,4]>() y = Reshape(x, s)")
    report = verify.compare(original, wrong)
    assert report.status == "mismatch"
    assert "the original runs, the result fails" in report.cases[0].detail


# -- overridable initializers


def overridable(op: str, ir_version: int = 9) -> onnx.ModelProto:
    w = numpy_helper.from_array(np.array([1.0, 2.0, 3.0], np.float32), "w")
    inputs = [value("x", TensorProto.FLOAT, ["N", 3]), value("w", TensorProto.FLOAT, [3])]
    outputs = [value("y", TensorProto.FLOAT, ["N", 3])]
    return model([helper.make_node(op, ["x", "w"], ["y"])], inputs, outputs, [w], ir_version=ir_version)


def test_a_constant_baked_in_from_an_overridable_initializer_is_caught():
    original, baked = overridable("Add"), overridable("Add")
    baked.graph.node[0].input[1] = "c"
    baked.graph.initializer.append(numpy_helper.from_array(np.array([1.0, 2.0, 3.0], np.float32), "c"))
    report = verify.compare(original, baked)
    assert report.status_of("ordinary") == "equal"
    assert report.status_of("overrides") == "mismatch"


def test_before_ir_4_initializers_that_are_inputs_cannot_be_overridden():
    old = overridable("Add", ir_version=3)
    old.opset_import[0].version = 7
    report = verify.compare(old, old)
    assert report.ok
    assert report.status_of("overrides") is None
    without = onnx.ModelProto.FromString(old.SerializeToString())
    del without.graph.input[1]
    without.ir_version = 8
    assert verify.compare(old, without).ok


def test_an_overridable_shape_is_varied():
    shape = numpy_helper.from_array(np.array([2, 3], np.int64), "s")
    inputs = [value("x", TensorProto.FLOAT, [6]), value("s", TensorProto.INT64, [2])]
    original = model(
        [helper.make_node("Reshape", ["x", "s"], ["y"])], inputs, [value("y", TensorProto.FLOAT, ["a", "b"])], [shape]
    )
    fixed = onnx.ModelProto.FromString(original.SerializeToString())
    fixed.graph.node[0].input[1] = "t"
    fixed.graph.initializer.append(numpy_helper.from_array(np.array([2, 3], np.int64), "t"))
    assert verify.compare(original, fixed).status_of("overrides") == "mismatch"


# -- interface


RELU = "(float[N,3] x) => (float[N,3] y)"
INTERFACES = {
    "output renamed": ("(float[N,3] x) => (float[N,3] z)", "z = Relu(x)", "output 'y' is missing"),
    "input renamed": ("(float[N,3] u) => (float[N,3] y)", "y = Relu(u)", "input 'x' is missing"),
    "input added": ("(float[N,3] x, float[N,3] u) => (float[N,3] y)", "y = Relu(x)", "input 'u' is new"),
    "output added": ("(float[N,3] x) => (float[N,3] y, float[N,3] z)", "y = Relu(x) z = Abs(x)", "output 'z' is new"),
    "type changed": ("(float[N,3] x) => (double[N,3] y)", "r = Relu(x) y = Cast<to=11>(r)", "found double[N,3]"),
    "rank changed": ("(float[N,3] x) => (float[M] y)", "r = Relu(x) s = Constant<value_ints=[-1]>() y = Reshape(r, s)", "found float[M]"),
    "input shape frozen": ("(float[2,3] x) => (float[2,3] y)", "y = Relu(x)", "found float[2,3]"),
}  # fmt: skip


@pytest.mark.parametrize("case", INTERFACES)
def test_another_interface_is_a_mismatch(case):
    signature, body, message = INTERFACES[case]
    report = verify.compare(graph(RELU, "y = Relu(x)"), graph(signature, body))
    assert report.status == "mismatch"
    assert any(d.breaking and message in d.message for d in report.interface), report.interface


def test_the_order_of_inputs_and_outputs_matters():
    original = graph("(float[3] a, float[3] b) => (float[3] y, float[3] z)", "y = Relu(a) z = Abs(b)")
    swapped_inputs = graph("(float[3] b, float[3] a) => (float[3] y, float[3] z)", "y = Relu(a) z = Abs(b)")
    swapped_outputs = graph("(float[3] a, float[3] b) => (float[3] z, float[3] y)", "y = Relu(a) z = Abs(b)")
    for other in (swapped_inputs, swapped_outputs):
        report = verify.compare(original, other)
        assert report.status == "mismatch"
        assert "another order" in report.interface[0].message
        assert all(c.status == "equal" for c in report.cases), "values are compared by name all the same"


def test_a_more_precise_output_shape_is_noted_but_not_wrong():
    original = graph("(float[2,3] x) => (float[A,B] y)", "y = Relu(x)")
    refined = graph("(float[2,3] x) => (float[2,3] y)", "y = Relu(x)")
    report = verify.compare(original, refined)
    assert report.ok
    (difference,) = report.interface
    assert not difference.breaking


# -- randomness, missing kernels, odd types


def test_random_ops_are_inconclusive_and_named():
    signature = "(float[N,3] x) => (float[N,3] y, float[N,3] z)"
    m = graph(signature, "r = RandomUniformLike(x) y = Add(r, x) z = Relu(x)")
    moved = graph(signature, "z = Relu(x) i = Identity(x) r = RandomUniformLike(i) y = Add(r, i)")
    report = verify.compare(m, moved)
    by_name = {o.name: o for o in report.outputs}
    assert by_name["y"].status == "inconclusive"
    assert "non-deterministic op RandomUniformLike" in by_name["y"].detail
    assert by_name["z"].status == "equal"
    assert report.ok, "the other output was compared"
    wrong = graph(signature, "z = Abs(x) i = Identity(x) r = RandomUniformLike(i) y = Add(r, i)")
    assert verify.compare(m, wrong).status == "mismatch"


def test_a_model_of_random_outputs_only_is_inconclusive():
    signature = "(float[N,3] x) => (float[N,3] y)"
    m = graph(signature, "y = RandomNormalLike(x)")
    assert verify.compare(m, m).status == "equal", "bit by bit the same: onnxruntime seeds by node"
    moved = graph(signature, "i = Identity(x) j = Identity(i) y = RandomNormalLike(j)")
    report = verify.compare(m, moved)
    assert report.status == "inconclusive"
    assert "non-deterministic op RandomNormalLike" in report.detail


def test_randomness_inside_a_branch_and_dropout_in_training():
    branch = graph(
        "(bool c, float[3] x) => (float[3] y)",
        "y = If<then_branch = t () => (float[3] u) { u = RandomUniformLike(x) },"
        " else_branch = e () => (float[3] v) { v = Identity(x) }>(c)",
    )
    assert "RandomUniformLike" in verify.determinism.random_outputs(branch)["y"]
    training = graph("(float[3] x, bool t) => (float[3] y)", "r = Constant<value_float=0.5>() y = Dropout(x, r, t)")
    assert verify.determinism.random_outputs(training) == {"y": "Dropout"}
    inference = graph("(float[3] x) => (float[3] y)", "r = Constant<value_float=0.5>() y = Dropout(x, r)")
    assert verify.determinism.random_outputs(inference) == {}


def test_ops_without_a_kernel_fall_back_to_the_reference():
    m = graph("(complex64[N] x) => (complex64[N] y)", "y = Identity(x)")
    report = verify.compare(m, m)
    assert report.ok
    assert report.backend == "reference"


def test_an_unknown_op_is_inconclusive():
    m = helper.make_model(
        helper.make_graph(
            [helper.make_node("Foo", ["x"], ["y"], domain="my.own")],
            "g",
            [value("x", TensorProto.FLOAT, [3])],
            [value("y", TensorProto.FLOAT, [3])],
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.own", 1)],
        ir_version=9,
    )
    report = verify.compare(m, m)
    assert report.status == "inconclusive"
    assert "the original does not load" in report.detail
    good = graph("(float[3] x) => (float[3] y)", "y = Relu(x)")
    assert "the result does not load" in verify.compare(good, m).detail
    assert verify.compare(good, m).status == "mismatch"


@pytest.mark.parametrize(
    "dtype",
    ["FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E5M2", "INT8", "UINT8", "INT16", "UINT16",
     "INT32", "UINT32", "INT64", "UINT64", "BOOL", "STRING", "INT4", "UINT4", "COMPLEX64"],
)  # fmt: skip
def test_every_element_type(dtype):
    kind = getattr(TensorProto, dtype)
    m = model(
        [helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])],
        [value("x", kind, ["N", 4])],
        [value("y", kind, [4, "N"])],
        opset=21,
        ir_version=10,
    )
    wrong = model(
        [helper.make_node("Identity", ["x"], ["y"])],
        [value("x", kind, ["N", 4])],
        [value("y", kind, [4, "N"])],
        opset=21,
        ir_version=10,
    )
    assert verify.compare(m, m, numerics="exact").status == "equal"
    assert verify.compare(m, wrong).status == "mismatch"


def test_outputs_of_narrow_types_are_compared():
    zero = helper.make_tensor("z", TensorProto.INT4, [], [0])
    scales = [numpy_helper.from_array(np.array(s, np.float32), "s") for s in (0.5, 0.25)]
    good, bad = (
        model(
            [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])],
            [value("x", TensorProto.FLOAT, ["N", 5])],
            [value("y", TensorProto.INT4, ["N", 5])],
            [scale, zero],
            opset=21,
            ir_version=10,
        )
        for scale in scales
    )
    assert verify.compare(good, good, numerics="exact").ok
    report = verify.compare(good, bad)
    assert report.status == "mismatch"
    assert report.outputs[0].dtype == "int4"


def sequence_type(shape=None):
    return helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, shape))


def test_sequences_in_and_out():
    def build(op, **attrs):
        return model(
            [helper.make_node(op, ["s"], ["y"], **attrs)],
            [helper.make_value_info("s", sequence_type(["N", 2]))],
            [value("y", TensorProto.FLOAT, None)],
        )

    good, bad = build("ConcatFromSequence", axis=0), build("ConcatFromSequence", axis=1)
    assert verify.compare(good, good, numerics="exact").ok
    assert verify.compare(good, bad).status == "mismatch"
    out = model(
        [helper.make_node("SequenceInsert", ["s", "x"], ["y"])],
        [helper.make_value_info("s", sequence_type()), value("x", TensorProto.FLOAT, [2])],
        [helper.make_value_info("y", sequence_type())],
    )
    same = model([helper.make_node("Identity", ["s"], ["y"])], out.graph.input, out.graph.output)
    report = verify.compare(out, same)
    assert report.status == "mismatch"
    assert "parts" in report.outputs[0].detail


def test_an_optional_input():
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    m = model(
        [helper.make_node("OptionalGetElement", ["o"], ["y"])],
        [helper.make_value_info("o", kind)],
        [value("y", TensorProto.FLOAT, [2])],
    )
    assert verify.compare(m, m).ok


def test_what_cannot_be_generated_is_said():
    kind = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    m = model(
        [helper.make_node("CastMap", ["m"], ["y"], domain="ai.onnx.ml")],
        [helper.make_value_info("m", kind)],
        [value("y", TensorProto.FLOAT, [1, "N"])],
    )
    m.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    report = verify.compare(m, m)
    assert report.status == "inconclusive"
    assert "cannot generate input 'm'" in report.detail


def test_a_model_without_inputs():
    good = graph("() => (float[2] y)", "a = Constant<value_floats=[1.0,2.0]>() y = Relu(a)")
    bad = graph("() => (float[2] y)", "a = Constant<value_floats=[1.0,2.5]>() y = Relu(a)")
    assert verify.compare(good, good).status == "equal"
    assert verify.compare(good, bad).status == "mismatch"


def test_indices_inside_a_loop_a_branch_and_a_function():
    loop = graph(
        "(int64 n, int64[4] i, float[4,5] x) => (float[N,5] y)",
        "t = Constant<value = bool {1}>() "
        "y = Loop<body = b (int64 k, bool c) => (bool d, float[5] r) "
        "{ d = Identity(c) j = Gather(i, k) r = Gather(x, j) }>(n, t)",
    )
    assert verify.compare(loop, loop, numerics="exact").status == "equal"
    function = parse(
        """g (float[4,5] x, int64[N] i) => (float[N,5] y) { y = local.pick(x, i) }
        <domain: "local", opset_import: ["" : 17]> pick (a, b) => (c) { c = Gather(a, b) }"""
    )
    function.opset_import.append(helper.make_opsetid("local", 1))
    assert verify.compare(function, function, numerics="exact").status == "equal"


# -- how models are given


def test_bytes_paths_and_external_data(tmp_path):
    weight = numpy_helper.from_array(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32), "w")
    m = graph("(float[N,64] x) => (float[N,64] y)", "y = MatMul(x, w)")
    m.graph.initializer.append(weight)
    path = tmp_path / "model.onnx"
    onnx.save(
        onnx.ModelProto.FromString(m.SerializeToString()),
        path,
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    before = m.SerializeToString()
    assert verify.compare(m, path, numerics="exact").status == "equal"
    assert verify.compare(m.SerializeToString(), str(path), numerics="exact").status == "equal"
    assert m.SerializeToString() == before, "the caller's proto is left alone"
    raw = bytearray((tmp_path / "w.bin").read_bytes())
    raw[3] ^= 0x40
    (tmp_path / "w.bin").write_bytes(bytes(raw))
    assert verify.compare(m, path).status == "mismatch"


def test_a_proto_too_large_for_one_message_goes_through_files(monkeypatch):
    m = graph("(float[N,64] x) => (float[N,64] y)", "y = MatMul(x, w)")
    m.graph.initializer.append(numpy_helper.from_array(np.eye(64, dtype=np.float32), "w"))
    source = verify.Source(m, "model")
    path = source._spill(m)
    assert len(path.read_bytes()) < 1000
    assert (path.parent / "model.data").stat().st_size == 64 * 64 * 4
    assert verify.compare(m, path, numerics="exact").status == "equal"
    source.close()
    assert not path.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read"),
        (b"\x08\x09:\x05ab", "truncated"),
        (b"", "holds no graph"),
        (b"not a model at all", "truncated"),
    ],
)
def test_bad_files_are_one_clear_line(tmp_path, content, message):
    path = tmp_path / "bad.onnx"
    if content is not None:
        path.write_bytes(content)
    good = graph("(float[3] x) => (float[3] y)", "y = Relu(x)")
    with pytest.raises(ModelError, match=message) as caught:
        verify.compare(good, path)
    assert "\n" not in str(caught.value)


def test_bad_arguments():
    m = graph("(float[3] x) => (float[3] y)", "y = Relu(x)")
    with pytest.raises(UsageError, match="unknown numerics level 'sloppy'"):
        verify.compare(m, m, numerics="sloppy")
    with pytest.raises(UsageError, match="unknown input set 'weird'"):
        verify.compare(m, m, sets=["weird"])
    with pytest.raises(ModelError, match="expected a ModelProto"):
        verify.compare(m, 3)  # type: ignore[arg-type]


def test_numerics_may_be_an_enumeration():
    class Numerics(IntEnum):
        EXACT = 0

    m = graph("(float[3] x) => (float[3] y)", "y = Relu(x)")
    assert verify.compare(m, m, numerics=Numerics.EXACT).numerics == "exact"


def test_the_same_seed_gives_the_same_inputs():
    m = graph("(float[N,64] x, int32[N] i) => (float[N,64] y)", "y = Relu(x)")
    first, again, other = (verify.sample_inputs(m, seed=s) for s in (1, 1, 2))
    assert all(np.array_equal(first[k], again[k]) for k in first)
    assert not np.array_equal(first["x"], other["x"])


def test_generated_floats_expose_errors():
    m = graph("(float[N,4096] x) => (float[N,4096] y)", "y = Relu(x)")
    x = verify.sample_inputs(m)["x"]
    assert (x < 0).any()
    assert (x > 4).any()
    assert (x == 0).any()
    assert len(np.unique(x)) < x.size, "ties"
    extreme = verify.sample_inputs(m, set_name="extreme")["x"]
    assert np.abs(extreme).max() > 1e3
    assert ((np.abs(extreme) < np.finfo(np.float32).tiny) & (extreme != 0)).any(), "denormals"
    assert np.signbit(extreme[extreme == 0]).any()
    assert np.isfinite(extreme).all()
    assert np.isinf(verify.sample_inputs(m, set_name="special")["x"]).any()


def test_sample_inputs_says_why_not():
    m = graph("(float[2,3] x) => (float[A,B] y)", "s = Constant<value_ints=[4,4]>() y = Reshape(x, s)")
    with pytest.raises(ModelError, match="runs on none of the generated inputs"):
        verify.sample_inputs(m)


def test_the_report_is_json():
    good, bad = (graph("(float[3] x) => (float[3] y)", f"y = {op}(x)") for op in ("Relu", "Neg"))
    text = json.dumps(verify.compare(good, bad).to_dict(), allow_nan=False)
    data = json.loads(text)
    assert data["status"] == "mismatch"
    assert data["ok"] is False
    assert data["outputs"][0]["name"] == "y"


# -- isolation


def test_isolated_gives_the_same_report():
    good, bad = (graph("(float[3] x) => (float[3] y)", f"y = {op}(x)") for op in ("Relu", "Neg"))
    here, there = verify.compare(good, bad), verify.compare(good, bad, isolate=True)
    assert there.status == "mismatch"
    assert [c.outputs for c in here.cases] == [c.outputs for c in there.cases]
    assert verify.compare(good, good, isolate=True, numerics="exact").status == "equal"


def test_a_time_limit_ends_a_long_run():
    forever = graph(
        "(float[3] x) => (float[3] y)",
        "n = Constant<value_int=9223372036854775807>() t = Constant<value = bool {1}>() "
        "y = Loop<body = b (int64 k, bool c, float[3] u) => (bool d, float[3] v) { d = Identity(c) v = Relu(u) }>"
        "(n, t, x)",
    )
    quick = graph("(float[3] x) => (float[3] y)", "y = Relu(x)")
    report = verify.compare(quick, forever, timeout=3)
    assert report.status == "inconclusive"
    assert report.detail.startswith("stopped after the time limit of 3 s while ")


def test_a_crash_of_the_runtime_is_a_row(monkeypatch):
    good = graph("(float[3] x) => (float[3] y)", "y = Relu(x)")
    killer = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    code = (
        "import pathlib, sys; folder = pathlib.Path(sys.argv[1]); "
        f"(folder / 'stage').write_text('running the result on extreme inputs'); {killer}"
    )
    from graphopt.verify import isolation

    monkeypatch.setattr(isolation, "COMMAND", ("-c", code))
    report = verify.compare(good, good, isolate=True)
    assert report.status == "mismatch"
    assert report.detail == "crashed (SIGSEGV) while running the result on extreme inputs"
    monkeypatch.setattr(isolation, "COMMAND", ("-c", killer))
    assert verify.compare(good, good, isolate=True).status == "inconclusive", "the result is not to blame"


def test_errors_cross_the_process_boundary(tmp_path):
    good = graph("(float[3] x) => (float[3] y)", "y = Relu(x)")
    with pytest.raises(ModelError, match="cannot read"):
        verify.compare(good, tmp_path / "missing.onnx", isolate=True)
