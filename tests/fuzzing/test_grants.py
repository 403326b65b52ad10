"""Infinities and NaN that the judge grants, and what stays wrong beside them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from graphopt.fuzzing.building import Sample
from graphopt.fuzzing.differences import first_difference
from graphopt.fuzzing.grants import (
    counts_floats,
    overflows_integers,
    overwrites,
    planned_wrongly,
    reads_unwritten,
)
from graphopt.fuzzing.nearness import is_nearer, no_farther, rounds_denormals, without_overflow
from graphopt.fuzzing.subjects import Optimized, OwnSubject
from graphopt.fuzzing.verdicts import Judge, fits
from graphopt.manager import PassManager
from graphopt.verify.runners import OrtRunner, RunError
from graphopt.verify.source import Source
from graphopt.verify.values import Array


def overflowing(scale: str) -> str:
    """A normalization as TensorFlow writes it, one of whose scales is infinite over a deviation of 2e-7.

    The other output is another in doubles.
    """
    return f"""
        <ir_version: 9, opset_import: ["" : 17]>
        g (float[2,3] x) => (float[2,3] y, float[2,3] z)
        <float large = {{1e8}}, float e = {{4e-14}}, float[3] s = {{1e-7, 2e-7, {scale}}}, float[3] b = {{1, 2, 3}}>
        {{
            m = ReduceMean <axes = [-1]> (x)
            d = Sub (x, m)
            p = Mul (d, d)
            v = ReduceMean <axes = [-1]> (p)
            w = Add (v, e)
            r = Sqrt (w)
            f = Div (s, r)
            xf = Mul (x, f)
            mf = Mul (m, f)
            c = Sub (b, mf)
            y = Add (xf, c)
            u = Add (x, large)
            z = Sub (u, large)
        }}
    """


def infinite(scale: str) -> str:
    """A normalization along the channels of an image whose last scale is infinite."""
    return f"""
        <ir_version: 9, opset_import: ["" : 18]>
        g (float[1,3,4,4] x) => (float[1,3,4,4] y)
        <int64[1] a = {{1}}, float e = {{1e-5}}, float[3,1,1] s = {{1, 2, {scale}}}>
        {{
            m = ReduceMean (x, a)
            d = Sub (x, m)
            p = Mul (d, d)
            v = ReduceMean (p, a)
            w = Add (v, e)
            r = Sqrt (w)
            n = Div (d, r)
            y = Mul (n, s)
        }}
    """


OVERFLOW = (overflowing("7e32"), "fuse_mean_into_sub", np.array([[0, 0, 0], [0.1, 0.2, 0.4]], np.float32))
DRAWN = np.random.default_rng(7)
ALIKE = np.repeat(DRAWN.standard_normal((1, 1, 4, 4)).astype(np.float32), 3, 1)
ALIKE = (ALIKE * (1 + DRAWN.integers(-1, 2, ALIKE.shape) * 2.0**-23)).astype(np.float32)
INFINITE = (infinite("inf"), "convert_channel_normalization_to_last", ALIKE)


def results(text: str, name: str, x: Array) -> tuple[Judge, onnx.ModelProto]:
    """A judge of a model on an input, and what a pass makes of it."""
    model = onnx.parser.parse_model(text)
    feeds = [{"x": np.arange(x.size, dtype=np.float32).reshape(x.shape)}, {"x": x}]
    result = PassManager(passes=name, strict=True).run(model)
    assert result.hits
    return Judge(Sample(model, feeds)), result.model


def verdict(judge: Judge, result: onnx.ModelProto) -> str | None:
    found = judge._once(Optimized(result, numerics="rounding"), result.SerializeToString())
    return None if found is None else found.kind


@pytest.mark.parametrize("case", [OVERFLOW, INFINITE], ids=["overflow", "infinite"])
def test_infinities_and_nan_of_the_order_of_operations_are_granted(case: tuple[str, str, Array]) -> None:
    text, name, x = case
    judge, result = results(text, name, x)
    assert verdict(judge, result) is None


@pytest.mark.parametrize("case", [OVERFLOW, INFINITE], ids=["overflow", "infinite"])
def test_what_else_differs_is_wrong(case: tuple[str, str, Array]) -> None:
    """The first scale is another: the elements beside those that are granted tell."""
    text, name, x = case
    judge, result = results(text, name, x)
    _, other = results(text.replace("1, 2,", "5, 2,").replace("1e-7, 2e-7,", "5e-7, 2e-7,"), name, x)
    assert verdict(judge, other) == "wrong"
    assert verdict(judge, result) is None


def test_an_output_of_doubles_is_no_hindrance_to_others() -> None:
    """It is compared as it is; doubles tell which of two results in floats is the exact one."""
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]> g (float[2] x) => (float[2] z, double[2] o)'
        "{ z = Neg (x)  o = Cast <to = 11> (x) }"
    )
    feed = {"x": np.float32([1, 2])}
    exact, farther = np.float32([-1, -2]), np.float32([-1, -2.125])
    doubles = np.float64([1, 2])
    assert is_nearer(model, feed, [farther, doubles], [exact, doubles], "rounding")
    assert not is_nearer(model, feed, [exact, doubles], [farther, doubles], "rounding")
    assert not is_nearer(model, feed, [farther, doubles], [exact, doubles + 0.125], "rounding")


@pytest.mark.parametrize("kind", ["float", "double"])
def test_sequences_have_the_types_of_the_original(kind: str) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 17]> g ({kind}[2] x) => (seq({kind}[2]) z)'
        "{ y = Neg (x)  z = SequenceConstruct (y) }"
    )
    exact, farther = (np.asarray(each, kind.replace("float", "float32")) for each in ([-1, -2], [-1, -2.125]))
    feed = {"x": -exact}
    assert is_nearer(model, feed, [[farther]], [[exact]], "rounding")
    assert not is_nearer(model, feed, [[exact]], [[farther]], "rounding")


def test_two_that_have_the_numbers_of_doubles_may_be_on_either_side_of_them() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]> g (float[1] x) => (float[1] z) { z = Neg (x) }'
    )
    feed, below, above = {"x": np.float32([1])}, np.float32([-1.00003]), np.float32([-0.99997])
    assert first_difference([below], [above], "rounding") is not None
    assert is_nearer(model, feed, [below], [above], "rounding")


def test_a_result_may_not_overflow_where_the_original_does_not() -> None:
    text, name, x = OVERFLOW
    judge, result = results(text, name, x)
    turned = Judge(Sample(result, [feed for _, feed, _ in judge.expected]))
    assert verdict(turned, judge.model) == "wrong"


COUNTED = """<ir_version: 9, opset_import: ["" : 17]>
    g (float[4] x, int64[3] k) => (float[n] u, int64[m] v, float[4] y)
    { a = Mul (x, x)  b = Neg (a)  u = Unique (b)  v = Unique (k)  y = Neg (b) }"""


def test_how_many_computed_floats_differ_is_granted_and_nothing_else() -> None:
    model = onnx.parser.parse_model(COUNTED)
    assert counts_floats(model) == {"u"}
    feed = {"x": np.float32([1, 2, 3, 4]), "k": np.asarray([1, 1, 2])}
    judge = Judge(Sample(model, [feed, feed]))
    fewer = onnx.parser.parse_model(COUNTED.replace("a = Mul (x, x)", "c = Floor (x) d = Mul (c, c) a = Min (d, d, x)"))
    assert verdict(judge, fewer) == "wrong"  # `y` differs as well
    merged = onnx.parser.parse_model(
        COUNTED.replace("u = Unique (b)", "c = Floor (b) d = Clip (c, e) u = Unique (d)").replace(
            "{ a", "<float e = {-4}> { a"
        )
    )
    assert verdict(judge, merged) is None
    other = onnx.parser.parse_model(COUNTED.replace("v = Unique (k)", "j = Add (k, k)  v = Unique (j)"))
    assert verdict(judge, other) == "wrong"


def test_powers_of_integers_may_overflow_anyhow() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (int32[2] x, int32 p, float[2] f) => (int32[2] y, float[2] z)
        { y = Pow (x, p)  z = Pow (f, p) }"""
    feed = {"x": np.int32([2, 40000]), "p": np.asarray(2, np.int32), "f": np.float32([1e10, 1])}
    model = onnx.parser.parse_model(text)
    assert not overflows_integers(model, feed)
    assert overflows_integers(model, {**feed, "p": np.asarray(3, np.int32)})


@pytest.mark.parametrize(("bits", "index", "unwritten"), [(2, "k", True), (2, '""', False), (4, "k", False)])
def test_two_bits_with_an_index_of_groups_are_not_judged(bits: int, index: str, *, unwritten: bool) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[2,32] x, uint8[2,2,{2 * bits}] w, float[4] s, int32[32] k) => (float[2,2] y)
        {{ y = com.microsoft.MatMulNBits <K = 32, N = 2, bits = {bits}, block_size = 16> (x, w, s, "", {index}) }}"""
    assert reads_unwritten(onnx.parser.parse_model(text), {"x": np.zeros(1, np.int32)}) == unwritten


DIGITS = """<ir_version: 9, opset_import: ["" : 17]> g (float[2] x, float k) => (string[2] y, string[2] z)
    { a = Div (x, k)  y = Cast <to = 8> (a)  z = Cast <to = 8> (x) }"""


def test_digits_of_computed_floats_are_granted_and_nothing_else() -> None:
    model = onnx.parser.parse_model(DIGITS)
    assert counts_floats(model) == {"y"}
    judge = Judge(Sample(model, [{"x": np.float32([1, 2]), "k": np.asarray(3, np.float32)}]))
    rounded = DIGITS.replace("a = Div (x, k)", "r = Reciprocal (k)  e = Mul (x, r)  o = Mul (e, x)  a = Div (o, x)")
    other = DIGITS.replace("z = Cast <to = 8> (x)", "z = Cast <to = 8> (a)")
    assert verdict(judge, onnx.parser.parse_model(rounded)) is None
    assert verdict(judge, onnx.parser.parse_model(other)) == "wrong"


def test_where_computed_floats_are_zero_is_granted_and_nothing_else() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x, bool[2] b) => (int64[1,n] y, int64[1,m] z, int64[1,k] w)
        { s = Sigmoid (x)  y = NonZero (s)  z = NonZero (x)  w = NonZero (b) }""")
    assert counts_floats(model) == {"y"}


@pytest.mark.parametrize(("saturate", "unwritten"), [(3, True), (1, False), (0, False)])
def test_what_saturates_neither_way_is_not_judged(saturate: int, *, unwritten: bool) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 22]> g (int32[1] x) => (float[1] y)
        {{ y = Cast <to = 1, saturate = {saturate}> (x) }}"""
    assert reads_unwritten(onnx.parser.parse_model(text), {"x": np.zeros(1, np.int32)}) == unwritten


@pytest.mark.parametrize(
    ("divisor", "dtype", "unwritten"), [(0, "float16", True), (1, "float16", False), (0, "float", False)]
)
def test_the_sign_of_a_half_that_is_none_is_not_judged(divisor: int, dtype: str, *, unwritten: bool) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        g ({dtype}[1] x, {dtype}[1] z) => ({dtype}[1] y) {{ q = Div (x, z)  y = Sign (q) }}""")
    kind = np.float16 if dtype == "float16" else np.float32
    assert reads_unwritten(model, {"x": np.zeros(1, kind), "z": np.full(1, divisor, kind)}) == unwritten


@pytest.mark.parametrize(("mode", "reader", "overwritten"), [(1, "v", True), (1, "a", False), (0, "v", False)])
def test_what_training_writes_into_is_not_judged_where_others_read_it(
    mode: int, reader: str, *, overwritten: bool
) -> None:
    """The runtime takes the normalization first, and puts out its update in place of the product."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 15]>
        g (float[2,1] x, float[1] a) => (float[1] y, float[2,1] z) <float[1] one = {{1}}, float[1] zero = {{0}}>
        {{ v = Add (a, a)  z = BatchNormalization <training_mode = {mode}> (x, one, zero, zero, v)
           y = Concat <axis = 0> ({reader}) }}""")
    assert overwrites(model) == overwritten


@pytest.mark.parametrize(
    ("old", "new", "wide", "granted"),
    [
        (np.nan, np.inf, -1e40, True),  # the result is beyond the range, whatever the order
        (np.nan, 3.0, 3.0, True),  # only an intermediate value was
        (np.nan, np.inf, 3.0, False),
        (np.nan, 3.0, -1e40, False),
        (np.nan, np.inf, np.nan, False),
        (3.0, np.inf, 1e40, False),
    ],
)  # fmt: skip
def test_what_exceeds_the_range_may_be_any_infinity(old: float, new: float, wide: float, *, granted: bool) -> None:
    before, after = np.array([old, 1], np.float32), np.array([new, 1], np.float32)
    left = without_overflow([before], [after], [np.array([wide, 1])])
    assert (first_difference(left, [after], "rounding") is None) == granted


def test_no_number_is_farther_from_doubles_than_the_original() -> None:
    """What amplifies rounding is off in the original too: only an element that got worse is left as it is."""
    exact, old = np.array([0.0, 1.0, 2.0, np.inf]), np.array([0.125, 1.0, 2.0, np.inf], np.float32)
    as_good, worse = (np.array([first, 1.0, 2.0, np.inf], np.float32) for first in (0.109375, 0.25))
    other = np.array([0.125, 1.5, 2.0, np.nan], np.float32)
    assert no_farther([old], [as_good], [exact])[0].tolist() == exact.tolist()
    assert no_farther([old], [worse], [exact])[0].tolist() == worse.tolist()
    assert no_farther([old], [other], [exact])[0][:2].tolist() == [0.0, 1.5]
    assert np.isnan(no_farther([old], [other], [exact])[0][3])
    assert no_farther([["text"]], [["text"]], [["other"]]) == [["text"]]
    unknown = np.array([np.nan, 1.0, 2.0, np.nan])
    assert np.isnan(no_farther([old], [old], [unknown])[0][[0, 3]]).all()  # the same as before is no farther


NORM_BESIDE_BYTES = """<ir_version: 8, opset_import: ["" : 17]>
g (float[4,8,8,4,4] x, uint8[2,3] q) => (float[4,8,8,4,4] y, uint8[2,2] z)
<float e = {0.001}, float s = {0.02}, uint8[1] o = {120}, int8[3,2] w = {-43, 25, -7, 35, -55, 60}, float ws = {0.01},
 int8 wo = {0}, float t = {0.03}, uint8 u = {100}> {
   n = Sigmoid (x)  m = ReduceMean <axes = [1, 2, 4]> (n)  c = Sub (n, m)  p = Mul (c, c)  v = ReduceMean <axes = [1, 2, 4]> (p)
   a = Add (v, e)  r = Sqrt (a)  y = Div (c, r)  z = QLinearMatMul (q, s, o, w, ws, wo, t, u)
}"""


@pytest.mark.parametrize(("found", "kind"), [(0.0, None), (1e-3, "wrong")])
def test_what_is_equal_is_not_asked_of_doubles(found: float, kind: str | None) -> None:
    """Equal numbers normalized are 0; the original has 1e-4. Of the bytes beside them onnx's evaluator rounds one up."""
    model = onnx.parser.parse_model(NORM_BESIDE_BYTES)
    feed = {
        "x": np.full((4, 8, 8, 4, 4), 1.8515625, np.float32),
        "q": np.array([[228, 6, 125], [172, 115, 235]], np.uint8),
    }
    result = onnx.parser.parse_model(
        NORM_BESIDE_BYTES.replace("y = Div (c, r)", "k = Sub (x, x)  y = Add (k, f)").replace(
            "float e", f"float f = {{{found}}}, float e"
        )
    )
    verdict = Judge(Sample(model, [feed])).of(OwnSubject("basic"), Optimized(result), again=False, once_more=False)
    assert (verdict and verdict.kind) == kind


LARGER_THAN_INFERRED = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (int64[1] i, float[n,1] x, float[1,2] a, int64[2] f) => (uint8[?,?] q, int64[?] y, float[?,?] z)
<float s = {1}, uint8 o = {0}, int64[2] f = {0, 0}, uint8[2,2] w = {129, 129, 129, 129}> {
   g = Gather (w, i)  d = DequantizeLinear (g, s, o)  q = QuantizeLinear (d, s, o)
   e = Einsum <equation = "ij,ij->ij"> (a, x)  y = Shape (e)  r = Reshape (d, f)  z = Neg (r)
}"""


def test_memory_that_the_runtime_plans_too_small_is_its_own_fault() -> None:
    """A product of rows is as large as the longer one; inference takes the first, and its memory for another value."""
    model = onnx.parser.parse_model(LARGER_THAN_INFERRED)
    feed = {"i": np.array([1]), "x": np.ones((2, 1), np.float32), "a": np.ones((1, 2), np.float32)}
    with pytest.raises(RunError, match="attempting to re-use buffer"):
        OrtRunner(Source(model, "planned")).run(feed)
    found = planned_wrongly(model, feed)
    assert found is not None
    assert [each.tolist() for each in found] == [[[129, 129]], [2, 2], [[-129.0, -129.0]]]


def test_shapes_that_a_result_states_are_its_own() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[n,2] x) => (float[n,2] y) { r = Relu (x)  y = Neg (r) }""")
    stated = onnx.helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, [1, 2])
    model.graph.value_info.append(stated)
    assert planned_wrongly(model, {"x": np.ones((2, 2), np.float32)}) is None


@pytest.mark.parametrize(("small", "granted"), [("1e-40", True), ("1e-30", False)])
def test_steps_of_denormal_numbers_may_be_magnified(small: str, granted: bool) -> None:
    """An element may be as far from the exact one as another of the original is, where denormal numbers are rounded."""
    text = f"""
        <ir_version: 9, opset_import: ["" : 17]>
        g (float[3] x) => (float[3] y) <float s = {{{small}}}, float[3] t = {{1e30, 1e30, 1e30}}> {{
            d = Mul (x, s)
            y = Mul (d, t)
        }}"""
    model = onnx.parser.parse_model(text)
    assert rounds_denormals(model, {"x": np.ones(3, np.float32)}) == granted


def test_no_element_may_be_farther_than_the_farthest_of_the_original() -> None:
    exact = np.array([1.0, 2.0, 3.0])
    old = np.array([1.0, 2.0, 3.25], np.float32)
    near, far = np.array([1.25, 2.0, 3.0], np.float32), np.array([1.5, 2.0, 3.0], np.float32)
    assert np.array_equal(no_farther([old], [near], [exact], anywhere=True)[0], exact.astype(np.float32))
    assert np.array_equal(no_farther([old], [far], [exact], anywhere=True)[0], far)


ZEROS_BESIDE_STEPS = """
    <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[1] x, float[1,1,3,3] image) => (float[1] z, float[1,1,2,2] p)
    <float s = {0.02}, int8 o = {1}, float t = {0.03}, bool[1] yes = {1}, float[1] zero = {-0}, float[1] one = {1}>
    {
        q = QuantizeLinear (image, s, o)
        a = com.microsoft.QLinearAveragePool <kernel_shape = [2, 2]> (q, s, o, t, o)
        p = DequantizeLinear (a, t)
        w = Where (yes, zero, one)
        z = Div (x, w)
    }
"""


@pytest.mark.parametrize(("moved", "kind"), [(0.03, None), (0.06, "wrong")])
def test_a_step_is_granted_beside_a_zero_of_another_sign(moved: float, kind: str | None) -> None:
    """The runtime's `Where` loses the sign of a zero, and an average of bytes in the same model is a step off."""
    model = onnx.parser.parse_model(ZEROS_BESIDE_STEPS)
    image = np.float32([[1, 0, 1], [1, 1, 1], [1, 2.5078125, 1.796875]]).reshape(1, 1, 3, 3)
    result = PassManager(passes="eliminate_nop_where", strict=True).run(model).model
    average, dequantized = result.graph.node[1], onnx.helper.make_node("DequantizeLinear", ["before", "t", "o"], ["f"])
    average.output[0] = "before"
    step = onnx.numpy_helper.from_array(np.float32([moved, 0, 0, 0]).reshape(1, 1, 2, 2), "step")
    result.graph.initializer.append(step)
    added = [("Add", ["f", "step"], ["g"]), ("QuantizeLinear", ["g", "t", "o"], ["a"])]
    for at, node in enumerate([dequantized, *(onnx.helper.make_node(*each) for each in added)], 2):
        result.graph.node.insert(at, node)
    judge = Judge(Sample(model, [{"x": np.float32([1]), "image": image}]))
    found = judge._once(Optimized(result, numerics="rounding", stepwise=True), result.SerializeToString())
    assert (found and found.kind) == kind


@pytest.mark.parametrize(("beta", "kind"), [(0.5, None), (0.51, "wrong")])
def test_memory_that_the_runtime_plans_too_small_does_not_hide_sensitivity(beta: float, kind: str | None) -> None:
    """A power magnifies the rounding of a gate next to its zero; changed models ran into the memory of the `Einsum`."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,1] a, float[2,1] b, float[13] x) => (int64[2] z, float[13] y)
    <float three = {3}, float zero = {0}, float six = {6}> {
        m = Sigmoid (a)  e = Einsum <equation = "ij,ij->ij"> (m, b)  z = Shape (e)
        s = Add (three, x)  c = Clip (s, zero, six)  gate = Div (c, six)  y = Pow (gate, x) }""")
    result = PassManager(passes="fuse_hard_sigmoid", strict=True).run(model).model
    gate = next(node for node in result.graph.node if node.op_type == "HardSigmoid")
    next(a for a in gate.attribute if a.name == "beta").f = beta
    feed = {"a": np.ones((1, 1), np.float32), "b": np.ones((2, 1), np.float32)}
    judge = Judge(Sample(model, [{**feed, "x": np.linspace(-2.9921875, -2.9140625, 13, dtype=np.float32)}]))
    found = judge._once(Optimized(result, numerics="rounding"), result.SerializeToString())
    assert (found and found.kind) == kind


@pytest.mark.parametrize(("size", "found", "fitting"), [(0, 3, False), (0, 0, True), (2, 3, True)])
def test_sizes_named_like_those_of_empty_inputs_are_zero(size: int, found: int, *, fitting: bool) -> None:
    """Other names are often wrong."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) { y = Relu (x) }'
    )
    assert fits(model, {"x": np.zeros(size, np.float32)}, [np.zeros(found, np.float32)]) == fitting
