"""What operators are written out by gives what their kernels do, at numbers where the standard's functions do not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.conversion import differs, run_model
from graphopt.opsets import ConversionError, convert


def _both(opset: int, graph: str, feed: dict[str, Any], target: int) -> tuple[list[Any], list[Any]]:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {graph}')
    after = convert(model, opset=target)
    return run_model(model, feed), run_model(after, feed)


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("float", (0, 0.3, 0.1)), ("double", (0, 1.0000000001, 0.25)), ("int64", (0, (1 << 40) + 1, 1 << 38)),
        ("int32", (5, -2, -3)), ("float", (3, 1, 1)), ("float", (1, 100, 0.1)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("target", [10, 8])
def test_a_range_has_its_last_number(kind: str, numbers: tuple[float, ...], target: int) -> None:
    graph = f"({kind} s, {kind} l, {kind} d) => ({kind}[n] y) {{ y = Range (s, l, d) }}"
    dtype = np.dtype("float32" if kind == "float" else "float64" if kind == "double" else kind)
    one, other = _both(11, graph, {name: np.asarray(n, dtype) for name, n in zip("sld", numbers, strict=True)}, target)
    assert differs(one, other) is None


@pytest.mark.parametrize("numbers", [(0, 0, 0), (3, 3, 3), (-1, -2, -1), (1, -2, 0.5), (0, 127.5, 255), (1e-40, 0, 0)])
@pytest.mark.parametrize("target", [10, 7])
def test_a_scale_of_zeros_is_1(numbers: tuple[float, ...], target: int) -> None:
    graph = "(float[3] x) => (uint8[3] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear (x) }"
    assert differs(*_both(11, graph, {"x": np.asarray(numbers, np.float32)}, target)) is None


@pytest.mark.parametrize(
    "numbers", [(1, math.nan, -2), (math.nan, 1, 3), (3, -1, math.nan), (math.nan,) * 3, (-math.inf, 1, math.inf)]
)
@pytest.mark.parametrize("target", [10, 7])
def test_no_nan_sets_a_scale(numbers: tuple[float, ...], target: int) -> None:
    graph = "(float[3] x) => (uint8[3] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear (x) }"
    assert differs(*_both(11, graph, {"x": np.asarray(numbers, np.float32)}, target)) is None


@pytest.mark.parametrize("value", [0.1, 1e300, 0.5])
def test_no_digit_of_what_is_padded_with_is_lost(value: float) -> None:
    """Before opset 11 the number is an attribute, which is a single float."""
    graph = f"""(double[2] x) => (double[4] y) {{
      pads = Constant <value = int64[2] {{1, 1}}> ()
      fill = Constant <value = double {{{value}}}> ()
      y = Pad (x, pads, fill)
    }}"""
    one, other = _both(11, graph, {"x": np.asarray([1.0, 2.0])}, 10)
    assert one[0].tolist() == other[0].tolist()


def test_a_number_in_a_shape_of_no_axes_has_none() -> None:
    model = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["" : 9]> g (int64[n] s) => (float[] y) { y = ConstantOfShape (s) }
""")
    after = convert(model, opset=8)
    for shape in ([], [2, 3]):
        feed = {"s": np.asarray(shape, np.int64)}
        assert differs(run_model(model, feed), run_model(after, feed)) is None


def test_what_was_called_bilinear_is_linear() -> None:
    model = onnx.parser.parse_model("""
<ir_version: 3, opset_import: ["" : 6]>
g (float[1,1,2,2] x) => (float[1,1,4,4] y) {
  y = Upsample <height_scale = 2.0, width_scale = 2.0, mode = "bilinear"> (x)
}
""")
    for target in (7, 13):
        (found,) = run_model(convert(model, opset=target), {"x": np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)})
        assert found[0, 0, 0].tolist() == [0, 0.5, 1, 1]


@pytest.mark.parametrize("operator", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize(("attrs", "kind"), [("periodic = 0", "float"), ("output_datatype = 11", "double")])
@pytest.mark.parametrize("size", [2, 1000])
def test_windows_are_small_at_both_ends(operator: str, attrs: str, kind: str, size: int) -> None:
    graph = f"(int32 n) => ({kind}[k] y) {{ y = {operator} <{attrs}> (n) }}"
    one, other = _both(17, graph, {"n": np.asarray(size, np.int32)}, 16)
    assert np.allclose(one[0], other[0], rtol=1e-6, atol=0)


def test_the_sign_of_no_number_is_none() -> None:
    x = np.asarray([np.nan, -np.inf, 0, 1e-45], np.float32)
    for target in (8, 7):
        one, other = _both(9, "(float[4] x) => (float[4] y) { y = Sign (x) }", {"x": x}, target)
        assert np.array_equal(one[0], other[0], equal_nan=True)


def test_gelu_of_the_greatest_numbers_is_one() -> None:
    x = np.asarray([3e38, -3e38, 0.5], np.float32)
    assert differs(*_both(20, "(float[3] x) => (float[3] y) { y = Gelu (x) }", {"x": x}, 19)) is None


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_points_near_and_beyond_the_border_of_an_image(mode: str, padding: str) -> None:
    points = [[-0.9, 0.95], [-1.4, 1.1], [np.inf, 0], [np.nan, -np.inf]]
    graph = f"""(float[1,1,2,2] x, float[1,1,4,2] q) => (float[1,1,1,4] y) {{
      y = GridSample <mode = "{mode}", padding_mode = "{padding}"> (x, q)
    }}"""
    feed = {"x": np.asarray([[[[1, 2], [5, 11]]]], np.float32), "q": np.asarray([[points]], np.float32)}
    assert differs(*_both(16, graph, feed, 15)) is None


@pytest.mark.parametrize("divisor", ["OptionalGetElement (z)", "Shape <start = 1> (e)"])
@pytest.mark.parametrize("target", [17, 14, 7])
def test_no_division_gets_to_see_a_zero_that_it_did_not(target: int, divisor: str) -> None:
    """With a constant 0 the runtime does not load a division of integers, though it may not be asked for."""
    graph = f"""(bool c, int64[2] x, float[2,0,3] e) => (int64[2] y) <int64[2] z = {{1, 0}}> {{
      y = If (c) <
        then_branch = one () => (int64[2] o) {{ w = {divisor}  o = Div (x, w) }},
        else_branch = two () => (int64[2] p) {{ p = Neg (x) }}>
    }}"""
    feed = {"c": np.asarray(False), "x": np.asarray([1, 2]), "e": np.zeros((2, 0, 3), np.float32)}
    assert differs(*_both(18, graph, feed, target)) is None


@pytest.mark.parametrize("dims", ["2,3", "n,m"])
@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("target", [13, 9])
def test_a_triangle_of_truth_values_has_a_kernel(dims: str, upper: int, target: int) -> None:
    """ONNX Runtime has no `Where` of truth values, which JAX's `jnp.tril` of a mask would become."""
    graph = f"(bool[{dims}] x) => (bool[{dims}] y) {{ y = Trilu <upper = {upper}> (x) }}"
    mask = np.asarray([[True, False, True], [True, True, False]])
    assert differs(*_both(14, graph, {"x": mask}, target)) is None


@pytest.mark.parametrize("alpha", [-1.0, 0.5])
@pytest.mark.parametrize("target", [27, 11])
def test_doubles_with_a_negative_alpha(alpha: float, target: int) -> None:
    """The body of opset 28 divides by alpha before it asks for the sign, and has an Elu of doubles."""
    if onnx.defs.onnx_opset_version() < 28:
        pytest.skip("Celu has no doubles yet")
    graph = f"(double[6] x) => (double[6] y) {{ y = Celu <alpha = {alpha}> (x) }}"
    x = np.asarray((-800, -2, -0.5, 0, 3, math.inf))
    assert differs(*_both(28, graph, {"x": x}, target)) is None


@pytest.mark.parametrize("stash", [10, 11])
@pytest.mark.parametrize(("kind", "numbers"), [("float", (0, 300, 30 / 7)), ("float16", (2044, 2056, 1))])
@pytest.mark.parametrize("target", [26, 10])
def test_numbers_of_a_range_are_added_up_in_a_stated_type(
    stash: int, kind: str, numbers: tuple[float, ...], target: int
) -> None:
    """For floats the stated type has no effect; the body of opset 27 counts in float, and would lose the last one."""
    if onnx.defs.onnx_opset_version() < 27:
        pytest.skip("Range has no stash_type yet")
    graph = f"({kind} s, {kind} l, {kind} d) => ({kind}[n] y) {{ y = Range <stash_type = {stash}> (s, l, d) }}"
    dtype = np.dtype("float32" if kind == "float" else kind)
    one, other = _both(27, graph, {name: np.asarray(n, dtype) for name, n in zip("sld", numbers, strict=True)}, target)
    assert differs(one, other) is None


@pytest.mark.parametrize("axes", [[1], [0, -1], []])
@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("float64", [1.1, 2.3, -3.7, 1e30, 1e-30, 0]), ("float32", [1.1, 2.3, -3.7, 3, 4, 0]),
        ("int64", [30000001, 7, 100000, 3037000498, 5, -6]), ("int32", [30000001, 7, -100000, 4097, 0, 1]),
    ],
)  # fmt: skip
def test_a_norm_over_computed_axes_keeps_its_digits(kind: str, numbers: list[float], axes: list[int]) -> None:
    name = {"float64": "double", "float32": "float"}.get(kind, kind)
    graph = f"({name}[2,3] x, int64[k] a) => ({name}[n,m] y) {{ y = ReduceL2 (x, a) }}"
    feed = {"x": np.asarray(numbers, kind).reshape(2, 3), "a": np.asarray(axes, np.int64)}
    one, other = _both(18, graph, feed, 17)
    assert np.allclose(one[0], other[0], rtol=1e-15 if kind != "float32" else 1e-6, atol=0)


@pytest.mark.parametrize("axes", [[1], [0, -1], []])
def test_no_sum_of_exponentials_overflows_before_its_logarithm(axes: list[int]) -> None:
    graph = "(float[2,3] x, int64[k] a) => (float[n,m] y) { y = ReduceLogSumExp (x, a) }"
    numbers = np.asarray([[1000, 999, -1000], [-3000, 0.5, 2]], np.float32)
    assert differs(*_both(18, graph, {"x": numbers, "a": np.asarray(axes, np.int64)}, 17)) is None


@pytest.mark.parametrize("model", ["(int64[2] x, int64[k] a) => (int64[n] y)", "(float x, int64[k] a) => (float y)"])
def test_what_only_the_standards_function_could_write_is_refused(model: str) -> None:
    """Of unknown rank, or of integers, for which no other form is right."""
    text = f'<ir_version: 8, opset_import: ["" : 18]> g {model} {{ y = ReduceLogSumExp (x, a) }}'
    proto = onnx.parser.parse_model(text)
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ConversionError):
        convert(proto, opset=17)


@pytest.mark.parametrize(("kind", "offset"), [("double", 0), ("double", 1000), ("float", 0), ("float", 1000)])
@pytest.mark.parametrize("outputs", ["y, m, d", "y, , d", "y, m"])
@pytest.mark.parametrize("axis", [-1, 1])
def test_a_normalization_whose_statistics_are_read_keeps_its_digits(
    kind: str, offset: float, outputs: str, axis: int
) -> None:
    size = "4" if axis < 0 else "3,4"
    told = "".join(f", float[a,b,c] {name}" for name in ("m", "d") if name in outputs)
    graph = f"""({kind}[2,3,4] x, {kind}[{size}] s) => ({kind}[2,3,4] y{told})
    {{ {outputs} = LayerNormalization <axis = {axis}> (x, s) }}"""
    dtype = np.dtype("float32" if kind == "float" else "float64")
    x = (np.sin(np.arange(24.0)).reshape(2, 3, 4) + offset).astype(dtype)
    one, other = _both(17, graph, {"x": x, "s": np.ones([3, 4][-2 if axis > 0 else -1 :], dtype)}, 16)
    within = 1e-12 if kind == "double" else 2e-6 if not offset else 1e-4
    assert np.allclose(one[0], other[0], rtol=within, atol=within)
    assert all(np.allclose(*pair, rtol=1e-4) for pair in zip(one[1:], other[1:], strict=True))
