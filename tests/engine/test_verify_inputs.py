"""Inputs for the oracle: sizes, integers that mean something, overridden initializers, every type."""

from __future__ import annotations

from itertools import islice

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt import verify
from graphopt.errors import UsageError
from graphopt.verify.inputs import Generator
from graphopt.verify.numerics import compare_arrays
from tests.engine.verify_models import graph, model, parse, value

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


def test_inputs_that_are_too_large_to_make_are_the_reason():
    m = graph("(float[N,3] x) => (float[N,3] y)", "y = Neg(x)")
    report = verify.compare(m, m, dims={"N": 1 << 40})
    assert report.status == "inconclusive"
    assert report.detail == "the inputs have more than 67,108,864 elements at every size to try"


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


NARROW = {
    "int64": ("DOUBLE", "FLOAT", "INT32"), "uint64": ("DOUBLE", "UINT32"), "int32": ("FLOAT", "INT16"),
    "uint32": ("FLOAT", "UINT16"),
}  # fmt: skip


@pytest.mark.parametrize("through", [(wide, narrow) for wide, each in NARROW.items() for narrow in each])
@pytest.mark.parametrize("size", ["4", "N", "5,8"])
def test_integers_that_a_narrower_type_does_not_hold_are_told(through, size):
    wide, narrow = through
    signature = f"({wide}[{size}] x) => ({wide}[{size}] y)"
    there, back = (TensorProto.DataType.Value(name.upper()) for name in (narrow, wide))
    original = graph(signature, "y = Identity (x)")
    narrowed = graph(signature, f"z = Cast <to = {there}> (x) y = Cast <to = {back}> (z)")
    assert verify.compare(original, narrowed).status_of("extreme") == "mismatch"
    assert verify.compare(original, original, numerics="exact").ok


def test_no_wide_integers_where_one_may_say_how_long_something_takes():
    m = graph("(int64[5,8] x) => (int64[N] y)", "m = ReduceMax <keepdims = 0> (x) y = Range (z, m, o)")
    m.graph.initializer.extend(numpy_helper.from_array(np.array(n), name) for n, name in ((0, "z"), (1, "o")))
    assert np.abs(verify.sample_inputs(m, set_name="extreme")["x"]).max() <= 100_000


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


def test_complex_numbers_that_differ_are_told():
    m = graph("(complex64[3] x) => (complex64[3] y)", "y = Identity(x)")
    turned = graph("(complex64[3] x) => (complex64[3] y)", "p = Constant<value_ints=[2,1,0]>() y = Gather(x, p)")
    report = verify.compare(m, turned)
    assert report.status == "mismatch"
    assert all(each.mismatches <= each.elements == 6 for each in report.outputs)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_small_floats_may_be_a_step_apart_and_no_more(name: str):
    dtype = np.dtype(getattr(ml_dtypes, name))
    expected = np.array([1, 2, -1, 3, -4, 1], dtype)
    step = np.array([ml_dtypes.finfo(dtype).eps, 0, 0, 0, 0, 0]).astype(dtype)
    for level in ("rounding", "fast"):
        assert compare_arrays("y", expected, expected + step, level).status == "close"
        assert compare_arrays("y", expected, -expected, level).status == "mismatch"
    assert compare_arrays("y", expected, np.zeros_like(expected), "rounding").status == "mismatch"


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


def test_single_numbers_and_flags_differ_from_run_to_run():
    def build(condition):
        return graph("(bool c, float k, float[N] x) => (float[N] y)", "a = Mul (x, k) b = Neg (x)", condition)

    chosen, never = build("y = Where (c, a, b)"), build("y = Identity (b)")
    generator = Generator(chosen)
    feeds = [feed for plan in islice(generator.plans(), 3) for feed in generator.feeds("ordinary", plan)]
    assert {bool(feed["c"]) for feed in feeds} == {True, False}
    assert len({float(feed["k"]) for feed in feeds}) > 1
    report = verify.compare(chosen, never)
    assert {case.status for case in report.cases if case.set == "ordinary"} == {"equal", "mismatch"}


def test_ranks_and_sizes_vary_together():
    def build(**attrs):
        nodes = [helper.make_node("Transpose", ["x"], ["y"], **attrs), helper.make_node("Relu", ["n"], ["z"])]
        given = [value("x", TensorProto.FLOAT, None), value("n", TensorProto.FLOAT, ["N"])]
        return model(nodes, given, [value("y", TensorProto.FLOAT, None), value("z", TensorProto.FLOAT, ["N"])])

    assert verify.compare(build(), build()).ok
    assert verify.compare(build(), build(perm=[1, 0])).status == "mismatch"  # only of a matrix it is the same
    report = verify.compare(build(perm=[1, 0]), build(perm=[1, 0]))
    assert {case.sizes["N"] for case in report.cases} == {1, 2, 9}


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


@pytest.mark.parametrize("given", [{"shapes": {"x": (-1, 4)}}, {"dims": {"n": -2}}, {"dims": {"n": 1 << 63}}])
def test_sizes_that_are_none_are_refused(given: dict):
    same = graph("(float[n,4] x) => (float[n,4] y)", "y = Neg(x)")
    with pytest.raises(UsageError, match="expected sizes that are whole numbers >= 0"):
        verify.compare(same, same, **given)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("op", ["Gather", "GatherElements"])
def test_indices_count_from_the_end_at_times(op: str, seed: int):
    shape = {"Gather": "3,4", "GatherElements": "3"}[op]
    head = f"(float[5{',4' if op == 'Gather' else ''}] x, int64[3] i) => (float[{shape}] y)"
    m = graph(head, f"y = {op}(x, i)")
    clipped = graph(head, f"z = Constant<value = int64[1] {{0}}>() j = Max(i, z) y = {op}(x, j)")
    assert verify.compare(m, m, seed=seed).ok
    assert verify.compare(m, clipped, seed=seed).status_of("extreme") == "mismatch"
    assert verify.compare(m, clipped, seed=seed).status_of("ordinary") == "equal"


@pytest.mark.parametrize("centers", [0, 1])
@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.8])
def test_boxes_overlap_by_about_any_share(centers: int, threshold: float):
    def suppression(centers: int, threshold: float) -> onnx.ModelProto:
        head = "(float[1,12,4] boxes, float[1,2,12] scores) => (int64[k,3] y)"
        constants = f"m = Constant<value = int64[1] {{20}}>() t = Constant<value = float[1] {{{threshold}}}>()"
        return graph(head, f"{constants} y = NonMaxSuppression<center_point_box={centers}>(boxes, scores, m, t)")

    m = suppression(centers, threshold)
    assert verify.compare(m, m).ok
    assert not verify.compare(m, suppression(centers, threshold + 0.1)).ok
    assert not verify.compare(m, suppression(1 - centers, threshold)).ok


@pytest.mark.parametrize("shape", ["1,3,2,2", "1,3,16,16", "2,3,8,8", "2,2,3,3", "N,3,H,W"])
def test_the_epsilon_of_a_normalization_shows_in_one_of_few_channels(shape: str):
    def normalization(epsilon: str) -> onnx.ModelProto:
        head = f"(float[{shape}] x) => (float[{shape}] y)"
        ones = " ".join(f"{n} = Constant<value_floats = [{','.join(['1.0'] * int(shape[2]))}]>()" for n in "sb")
        return graph(head, f"{ones} y = InstanceNormalization<epsilon={epsilon}>(x, s, b)")

    m = normalization("0.00001")
    assert verify.compare(m, m).ok
    assert not verify.compare(m, normalization("0.00002")).ok
    assert not verify.compare(m, normalization("0.0")).ok
