"""The oracle: a wrong model must be reported, a right one must not."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from graphopt import verify
from graphopt.errors import UsageError
from graphopt.verify.numerics import compare_arrays
from tests.engine.verify_models import graph

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


def test_doubles_that_hold_singles_have_the_tolerance_of_singles() -> None:
    """A `Cast` of float32 results to doubles does not make them more exact; counts, and what doubles computed, are."""
    singles = np.array([0.1, -3.3, 7.0], np.float32)
    near = np.nextafter(singles, np.float32(9))
    assert compare_arrays("y", singles.astype(np.float64), near.astype(np.float64), "rounding").status == "close"
    doubles = singles.astype(np.float64) * 3
    assert compare_arrays("y", doubles, doubles * (1 + 1e-7), "rounding").status == "mismatch"
    assert compare_arrays("y", singles.astype(np.float64), doubles / 3 * (1 + 1e-7), "rounding").status == "mismatch"
    counts = np.array([3.0, 2.0**25, np.inf])
    assert compare_arrays("y", counts, counts + np.array([0, 4.0, 0]), "rounding").status == "mismatch"


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


@pytest.mark.parametrize("declared", ["7,3", "2,3", "A,4", "6"])
def test_sizes_that_an_output_does_not_have_are_wrong(declared: str) -> None:
    original, wrong = (graph(f"(float[N,3] x) => (float[{d}] y)", "y = Relu(x)") for d in ("N,3", declared))
    report = verify.compare(original, wrong)
    assert report.status == "mismatch"
    assert verify.compare(wrong, wrong).ok, "as wrong as it was"
    assert "output 'y': " in report.summary()


def test_what_is_random_in_the_result_alone_is_wrong() -> None:
    def dropping(trains: str) -> onnx.ModelProto:
        flags = f"r = Constant<value_float=0.5>() f = Constant<value=bool {{{trains}}}>()"
        return graph("(float[64] x) => (float[64] y, float[64] z)", flags, "y = Dropout(x, r, f) z = Relu(x)")

    assert verify.compare(dropping("0"), dropping("1")).status == "mismatch"
    assert "non-deterministic" in verify.compare(dropping("1"), dropping("0")).outputs[0].detail


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_own_inputs_are_those_that_the_original_takes(timeout: float | None) -> None:
    model = graph("(float[2] x) => (float[2] y)", "y = Neg(x)")
    ones = np.ones(2, np.float32)
    assert verify.compare(model, model, inputs={"x": ones, "label": ones}, timeout=timeout).cases[0].status == "equal"
    with pytest.raises(UsageError, match="inputs: no array 'x'; found label"):
        verify.compare(model, model, inputs={"label": ones}, timeout=timeout)


@pytest.mark.parametrize(
    ("array", "found"),
    [
        (np.ones(3, np.float32), r"float32\[3\]"),
        (np.ones((2, 1), np.float32), r"float32\[2, 1\]"),
        (np.ones(2, np.float64), r"float64\[2\]"),
        (np.array(["a", "b"]), r"string\[2\]"),
    ],
)
def test_own_inputs_that_do_not_suit_the_original_are_refused(array: np.ndarray, found: str) -> None:
    model = graph("(float[2] x) => (float[2] y)", "y = Neg(x)")
    with pytest.raises(UsageError, match=rf"input 'x': expected float\[2\], found {found}"):
        verify.compare(model, model, inputs={"x": array})


def test_own_inputs_have_any_size_where_a_dimension_is_open() -> None:
    model = graph("(float[N,?] x) => (float[N,M] y)", "y = Neg(x)").SerializeToString()
    assert verify.compare(model, model, inputs={"x": np.ones((3, 0), np.float32)}).ok


@pytest.mark.parametrize(
    ("expected", "actual", "error"),
    [
        (np.array([2.0, 1.0], np.float32), np.array([np.inf, 1.0], np.float32), np.inf),
        (np.array([np.nan, 1.0], np.float32), np.array([0.0, 1.0], np.float32), np.inf),
        (np.array([np.inf], np.float16), np.array([-np.inf], np.float16), np.inf),
        (np.array([2**63 - 1]), np.array([2**63 - 3]), 2.0),
        (np.array([-(2**63)]), np.array([2**63 - 1]), 2.0**64),
        (np.array([2**64 - 1], np.uint64), np.array([0], np.uint64), 2.0**64),
        (np.array([-8, 3], ml_dtypes.int4), np.array([7, 3], ml_dtypes.int4), 15.0),
        (np.array([1.7e308, 1.7e308]), np.array([-1e308, 1.7e308]), np.inf),
        (np.array([1.7e308, 1.7e308]), np.array([1e308, 1.7e308]), 1.7e308 - 1e308),
    ],
)
def test_the_largest_error_is_that_of_what_differs(expected: np.ndarray, actual: np.ndarray, error: float) -> None:
    report = compare_arrays("y", expected, actual, "rounding")
    assert (report.status, report.mismatches, report.max_abs) == ("mismatch", 1, error)
    assert f"largest error {error:.3g}" in report.detail


def test_an_infinity_in_the_place_of_the_largest_numbers_is_no_error() -> None:
    report = compare_arrays("y", np.array([3.4e38, 2], np.float32), np.array([np.inf, 2], np.float32), "rounding")
    assert (report.status, report.max_abs) == ("close", 0.0)
    assert "largest error" not in compare_arrays("y", np.array(["a"], object), np.array(["b"], object), "exact").detail


@pytest.mark.parametrize("wrong", [-1e30, 0.0])
def test_the_largest_number_of_a_mask_excuses_nothing(wrong: float) -> None:
    """An ulp more, and it is infinite."""

    def masked(by: float) -> onnx.ModelProto:
        model = graph("(bool[4] c, float[4] x) => (float[4] y)", "y = Where(c, x, k)")
        model.graph.initializer.append(numpy_helper.from_array(np.array(by, np.float32), "k"))
        return model

    least = float(np.finfo(np.float32).min)
    assert verify.compare(masked(least), masked(wrong)).status == "mismatch"
    assert verify.compare(masked(least), masked(-np.inf)).status == "close"
    assert verify.compare(masked(-np.inf), masked(wrong)).status == "mismatch"


def test_the_largest_number_of_a_mask_buys_no_tolerance() -> None:
    expected = np.full(9, np.finfo(np.float32).min, np.float32)
    expected[0] = 1.0
    actual = expected.copy()
    actual[0] = 2.0
    assert compare_arrays("y", expected, actual, "rounding").mismatches == 1


def test_texts_are_quoted_so_that_blanks_are_seen() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (string[1] x) => (string[1] y) <string[1] c = {"a"}>'
    one, other = (onnx.parser.parse_model(f"{text} {{ y = Identity ({name}) }}") for name in "xc")
    detail = verify.compare(one, other, inputs={"x": np.array([" "], dtype=object)}).outputs[0].detail
    assert detail == "1 of 1 elements differ, first at [0]: expected ' ', found 'a'"


def test_what_every_run_says_is_said_once() -> None:
    original = graph("(float[N,3] x) => (float[N,3] y)", "y = Relu(x)")
    other = graph("(float[N,3] z) => (float[N,3] y)", "y = Relu(z)")
    report = verify.compare(original, other)
    assert len(report.cases) > 3
    assert report.summary().count("the original runs, the result fails") == 1
    assert not any(getattr(part, "columns", None) for part in report.parts()), "no table without rows"


def test_a_difference_of_infinities_and_nan_alone_is_told() -> None:
    original = graph("(float[2,30] x) => (float[2,30] y)", "y = Identity(x)")
    zeroed = graph(
        "(float[2,30] x) => (float[2,30] y)", "n = IsNaN(x) z = Constant <value_float=0.0> () y = Where(n, z, x)"
    )
    report = verify.compare(original, zeroed)
    assert report.only_special
    assert "special (NaN, infinities): y: " in report.summary()
    assert report.summary().endswith("only inputs with NaN or infinities differ")
    assert not verify.compare(original, graph("(float[2,30] x) => (float[2,30] y)", "y = Neg(x)")).only_special
