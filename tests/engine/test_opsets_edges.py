"""Numbers, types and shapes at the edges of what operators take, before and after a conversion."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.conversion import differs, run_model
from graphopt.opsets import ConversionError, convert


def _float16(*numbers: float) -> np.ndarray:
    return np.asarray(numbers, np.float16)


def _float32(*numbers: float) -> np.ndarray:
    return np.asarray(numbers, np.float32)


_INF, _NAN = float("inf"), float("nan")

EDGES: dict[str, tuple[int, str, dict[str, Any], list[int]]] = {
    "infinities of eight bits that are carried": (
        21,
        "(float[4] x) => (float[n] y) { a = Cast <to = 19, saturate = 0> (x)  b = Transpose (a)  y = Cast <to = 1> (b) }",
        {"x": _float32(_INF, -_INF, _NAN, 1)},
        [20, 19],
    ),
    "halves normalized by single floats": (
        15,
        "(float16[2,3] x, float[3] s) => (float16[2,3] y) { y = BatchNormalization (x, s, s, s, s) }",
        {"x": _float16(1, -2, 3, 0.5, 100, -7).reshape(2, 3), "s": _float32(0.1, 2, 3)},
        [14, 13, 9, 8],
    ),
    "a scale for each column, of which nobody knows how many": (
        21,
        "(float[2,n] x, float[n] s) => (int8[2,m] y) { y = QuantizeLinear <axis = 1, output_dtype = 3> (x, s) }",
        {"x": _float32(1, -2, 3, 4, 5, -6).reshape(2, 3), "s": _float32(0.5, 1, 0.25)},
        [20, 13, 12, 10],
    ),
    "halves to 16 bits": (
        21,
        "(float16[6] x, float16 s, uint16 z) => (uint16[6] y) { y = QuantizeLinear (x, s, z) }",
        {
            "x": _float16(1, 65504, 3, -60000, 6.5, -7),
            "s": np.asarray(0.01, np.float16),
            "z": np.asarray(40001, np.uint16),
        },
        [20, 19],
    ),
    "halves divided in single floats": (
        19,
        "(float16[3] x, float16 s) => (uint8[3] y) { y = QuantizeLinear (x, s) }",
        {"x": _float16(0.125, 0.1749, 0.325), "s": np.asarray(0.05, np.float16)},
        [22, 23, 24],
    ),
    "halves divided in single floats as it is stated": (
        23,
        "(float16[3] x, float16 s) => (uint8[3] y) { y = QuantizeLinear <precision = 1> (x, s) }",
        {"x": _float16(0.125, 0.1749, 0.325), "s": np.asarray(0.05, np.float16)},
        [22, 19],
    ),
    "halves divided in halves": (
        23,
        "(float16[3] x, float16 s) => (uint8[3] y) { y = QuantizeLinear (x, s) }",
        {"x": _float16(0.125, 0.1749, 0.325), "s": np.asarray(0.05, np.float16)},
        [22, 21, 19],
    ),
    "halves divided in halves along an axis": (
        23,
        """(float16[2,3] x, float16[2] s, int8[2] z) => (int8[2,3] y) {
          y = QuantizeLinear <axis = 0, precision = 10> (x, s, z)
        }""",
        {
            "x": _float16(0.125, 0.1749, 0.325, 0.25, 0.35, 0.65).reshape(2, 3),
            "s": _float16(0.05, 0.1),
            "z": np.asarray([3, -4], np.int8),
        },
        [22, 19],
    ),
    "16 bits to halves": (
        21,
        """(uint16[2,4] x, uint16[2,2] z, float16[2,2] s) => (float16[2,4] y) {
          y = DequantizeLinear <axis = 1, block_size = 2> (x, s, z)
        }""",
        {
            "x": np.asarray([[1, 65535, 3, 9], [4, 32769, 60000, 60001]], np.uint16),
            "z": np.asarray([[3, 9], [32767, 60003]], np.uint16),
            "s": _float16(0.01, 0.1, 0.1, 1).reshape(2, 2),
        },
        [20],
    ),
    "a scale of halves for a result of single floats": (
        23,
        "(int8[4] x, float16 s) => (float[4] y) { y = DequantizeLinear <output_dtype = 1> (x, s) }",
        {"x": np.asarray([1, 100, 3, -128], np.int8), "s": np.asarray(0.1, np.float16)},
        [22, 21, 13],
    ),
    "a scale that is wider than what is quantized": (
        23,
        "(float16[3] x, float s) => (uint8[3] y) { y = QuantizeLinear (x, s) }",
        {"x": _float16(1, 30, 100), "s": np.asarray(0.3, np.float32)},
        [22, 21, 10],
    ),
    "factors of groups": (
        18,
        "(float[1,4,2] x, float[2] s) => (float[1,4,2] y) { y = GroupNormalization <num_groups = 2> (x, s, s) }",
        {"x": np.arange(8, dtype=np.float32).reshape(1, 4, 2) ** 2, "s": _float32(1, -2)},
        [21, 22, 17, 12, 7],
    ),
    "factors of groups that are stated": (
        18,
        """(float[1,4,2] x) => (float[1,4,2] y) {
          s = Constant <value = float[2] {1.0, -2.0}> ()
          y = GroupNormalization <num_groups = 2> (x, s, s)
        }""",
        {"x": np.arange(8, dtype=np.float32).reshape(1, 4, 2) ** 2},
        [21, 22, 17, 12, 7],
    ),
    "factors of groups of a batch of unknown size": (
        18,
        """(float[n,4,h,w] x, float[2] s) => (float[n,4,h,w] y) {
          y = GroupNormalization <epsilon = 0.1, num_groups = 2> (x, s, s)
        }""",
        {"x": np.arange(48, dtype=np.float32).reshape(2, 4, 2, 3) ** 2, "s": _float32(1, -2)},
        [17, 9],
    ),
    "a window that would start behind the image": (
        22,
        """(float[1,1,2,2] x) => (float[1,1,1,1] y, float[1,1,1,1] z) {
          y = MaxPool <ceil_mode = 1, kernel_shape = [1, 1], strides = [2, 2]> (x)
          z = AveragePool <ceil_mode = 1, kernel_shape = [1, 1], strides = [2, 2]> (x)
        }""",
        {"x": _float32(1, 2, 3, 4).reshape(1, 1, 2, 2)},
        [21, 17, 10, 9],
    ),
    "what goes round of what is left": (
        19,
        """(float[2,3] x) => (float[a,b] y) {
          pads = Constant <value_ints = [0, -1, 1, 2]> ()
          y = Pad <mode = "wrap"> (x, pads)
        }""",
        {"x": np.arange(6, dtype=np.float32).reshape(2, 3)},
        [18, 10],
    ),
    "what goes round of what is left by computed pads": (
        19,
        '(float[2,3] x, int64[4] pads) => (float[a,b] y) { y = Pad <mode = "wrap"> (x, pads) }',
        {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "pads": np.asarray([0, 2, 1, -1])},
        [18, 10],
    ),
    "parts of an axis of which the size is not known": (
        18,
        """(float[2,n] x) => (float[2,a] y, float[2,b] z, float[2,c] w) {
          y, z, w = Split <axis = -1, num_outputs = 3> (x)
        }""",
        {"x": np.arange(10, dtype=np.float32).reshape(2, 5)},
        [17, 13, 12, 9],
    ),
    "parts of equal size, as runtimes read no sizes that are computed": (
        17,
        "(float[2,4] x, int64[0] sizes) => (float[2,a] y, float[2,b] z) { y, z = Split <axis = 1> (x, sizes) }",
        {"x": np.arange(8, dtype=np.float32).reshape(2, 4), "sizes": np.zeros(0, np.int64)},
        [13, 12, 9],
    ),
    "a transform along the axis that is meant where none is given": (
        20,
        "(float[1,4,3,1] x) => (float[1,4,3,2] y) { y = DFT (x) }",
        {"x": np.arange(12, dtype=np.float32).reshape(1, 4, 3, 1)},
        [19, 17, 16, 11],
    ),
    "remainders that overflow times the divisor": (
        10,
        "(int64[5] x, int64[5] k) => (int64[5] y) { y = Mod (x, k) }",
        {"x": np.asarray([7900000000, -5, 5, 1 << 62, 6]), "k": np.asarray([4000000000, -3, -3, (1 << 62) - 1, -3])},
        [9, 8, 7],
    ),
    "no number below 1 has an inverse hyperbolic cosine": (
        9,
        "(float[6] x) => (float[6] y) { y = Acosh (x) }",
        {"x": _float32(-1e9, -5, 0.5, 1, 3, _INF)},
        [8],
    ),
    "the last of equals, of a list of which the rank is not known": (
        12,
        """(float[3] x, bool b) => (int64 y) {
          c = If (b) <
            then_branch = one () => (float[a] p) { p = Identity (x) },
            else_branch = other () => (float[c,d] q) { q = Unsqueeze <axes = [0]> (x) }>
          last = ArgMax <axis = 0, keepdims = 0, select_last_index = 1> (c)
          y = Identity (last)
        }""",
        {"x": _float32(1, 3, 3), "b": np.asarray(True)},
        [11],
    ),
}


@pytest.mark.parametrize("name", EDGES)
def test_results_stay(name: str) -> None:
    opset, graph, feed, targets = EDGES[name]
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {graph}')
    model.ir_version = 11 if opset > 22 else 10 if opset > 20 else 8
    expected = run_model(model, feed)
    for target in targets:
        after = convert(model, opset=target)
        onnx.checker.check_model(after, full_check=True)
        assert differs(expected, run_model(after, feed)) is None, target


@pytest.mark.parametrize("shape", [(2, 3, 0), (2, 0, 3), (0, 2, 3), (2, 3, 4)])
@pytest.mark.parametrize("axis", [0, 1, -2])
def test_softmax_over_several_axes_of_nothing(shape: tuple[int, ...], axis: int) -> None:
    model = onnx.parser.parse_model(f"""
<ir_version: 8, opset_import: ["" : 12]>
g (float[a,b,c] x) => (float[a,b,c] y) {{ y = Softmax <axis = {axis}> (x) }}
""")
    feed = {"x": np.linspace(-1, 1, np.prod(shape), dtype=np.float32).reshape(shape)}
    assert differs(run_model(model, feed), run_model(convert(model, opset=13), feed)) is None


SCAN = """
<ir_version: 8, opset_import: ["" : 16]>
g (float[2] last, float[3,2] steps) => (float[2] y, float[3,2] result) {
  y, result = Scan <num_scan_inputs = 1, body = b (float[2] step, float[2] on) => (float[2] again, float[2] out) {
    again = Add (step, last)
    out = Mul (on, step)
  }> (last, steps)
}
"""


def test_no_name_of_a_model_is_in_the_way_of_a_loop_that_is_written_out() -> None:
    model = onnx.parser.parse_model(SCAN)
    body = next(each.g for each in model.graph.node[0].attribute if each.name == "body")
    entries = [*model.graph.input, *model.graph.output, *body.input, *body.output]
    for entry in entries:
        entry.name = _of_it(entry.name)
    for node in (*model.graph.node, *body.node):
        node.input[:], node.output[:] = map(_of_it, node.input), map(_of_it, node.output)
    feed = {"last of it": _float32(1, 2), "steps of it": np.arange(6, dtype=np.float32).reshape(3, 2)}
    assert differs(run_model(model, feed), run_model(convert(model, opset=8), feed)) is None


def _of_it(name: str) -> str:
    return "result 0" if name == "result" else f"{name} of it"


def test_a_mask_of_numbers_stays_below_opset_10() -> None:
    text = (
        '<ir_version: 4, opset_import: ["" : 7]> g (float[3] x) => (float[3] y) { a, m = Dropout (x)  y = Sub (a, m) }'
    )
    with pytest.raises(ConversionError, match="mask is used"):
        convert(onnx.parser.parse_model(text), opset=10)


@pytest.mark.parametrize(
    ("before", "after", "dtype"), [(7, 13, "float"), (8, 10, "float"), (13, 7, "bool"), (10, 9, "bool")]
)
def test_a_mask_that_nobody_reads_is_left_out(before: int, after: int, dtype: str) -> None:
    text = f"""
        <ir_version: 4, opset_import: ["" : {before}]>
        g (float[3] x) => (float[3] y) <{dtype}[3] m> {{ a, m = Dropout (x)  y = Neg (a) }}"""
    found = convert(onnx.parser.parse_model(text), opset=after)
    onnx.checker.check_model(found, full_check=True)
    assert list(found.graph.node[0].output) == ["a"]
    assert differs([_float32(-1, 2, -3)], run_model(found, {"x": _float32(1, -2, 3)})) is None


@pytest.mark.parametrize("opset", [10, 11])
def test_a_mask_that_lets_nothing_through_stays_below_opset_12(opset: int) -> None:
    """It does in the runtime alone; the standard's evaluator lets everything through at all opsets."""
    graph = "g (float[3] x) => (float[3] y, bool[3] m) { y, m = Dropout (x) }"
    model = onnx.parser.parse_model(f'<ir_version: 4, opset_import: ["" : {opset}]> {graph}')
    with pytest.raises(ConversionError, match="mask is used, which is all false in the runtime"):
        convert(model, opset=12)
    model.graph.node[0].output[1] = ""
    del model.graph.output[1]
    assert convert(model, opset=12).opset_import[0].version == 12


FIRST = """
<ir_version: 3, opset_import: ["" : 1]>
g (float[2,3,4] x) => (float[2,12] y) { y = Reshape <shape = [0, -1]> (x) }
"""


@pytest.mark.parametrize("target", [7, 13])
def test_a_list_of_the_first_opsets_becomes_an_initializer(target: int) -> None:
    """Before IR version 4 it would have to be a `Constant`, which held floats alone."""
    after = convert(onnx.parser.parse_model(FIRST), opset=target)
    onnx.checker.check_model(after, full_check=True)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert differs([x.reshape(2, 12)], run_model(after, {"x": x})) is None
    assert [value.name for value in after.graph.input] == ["x"]


@pytest.mark.parametrize("op", ["GlobalLpPool", "LpPool"])
def test_a_power_that_was_a_float_is_an_integer(op: str) -> None:
    attrs = "p = 3.0" if op == "GlobalLpPool" else "p = 3.0, kernel_shape = [4, 4]"
    text = f'<ir_version: 3, opset_import: ["" : 1]> g (float[1,2,4,4] x) => (float[1,2,1,1] y) {{ y = {op} <{attrs}> (x) }}'
    after = convert(onnx.parser.parse_model(text), opset=7)
    onnx.checker.check_model(after, full_check=True)
    x = np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4)
    assert differs([np.cbrt((x**3).sum((2, 3), keepdims=True))], run_model(after, {"x": x})) is None


CROPPED = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[4,3] x, int32[2] sizes) => (float[2,5] y) { y = CenterCropPad (x, sizes) }
"""


def test_sizes_of_32_bits_crop_and_pad_as_those_of_64() -> None:
    """The runtime itself does not run the function of the standard with them."""
    after = convert(onnx.parser.parse_model(CROPPED), opset=13)
    onnx.checker.check_model(after, full_check=True)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    found = run_model(after, {"x": x, "sizes": np.asarray([2, 5], np.int32)})
    assert differs([np.pad(x[1:3], ((0, 0), (1, 1)))], found) is None


@pytest.mark.parametrize(
    ("given", "numbers", "call", "opsets"),
    [
        ("int64[1,2] n", [[1, 2]], "Pad (x, n, none, one)", (18, 13)),
        ("int64[1,4] n", [[0, 1, 1, 0]], "Pad (x, n)", (11, 9)),
        ("bool[1,3] n", [[True, False, True]], "Compress <axis = 1> (x, n)", (11, 8)),
        ("bool unused", [], "Expand (x, sizes)", (13, 7)),
        ("bool unused", [], "ConstantOfShape (sizes)", (11, 7)),
    ],
)
def test_lists_in_lists_are_read_as_runtimes_do(
    given: str, numbers: list[list[int]], call: str, opsets: tuple[int, int]
) -> None:
    """The standard has lists there, which runtimes insist on for some that are constant, or for those that are not."""
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : {opsets[0]}]>
        g (float[4,3] x, {given}) => (float y)
        <int64[1] one = {{1}}, float none = {{-1}}, int64[3,1] sizes = {{2, 4, 3}}> {{ y = {call} }}
    """)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    kind = bool if given.startswith("bool") else np.int64
    feed = {
        "x": np.arange(12, dtype=np.float32).reshape(4, 3),
        model.graph.input[1].name: np.asarray(numbers, kind) if numbers else np.asarray(True),
    }
    after = convert(model, opset=opsets[1])
    assert differs(run_model(model, feed), run_model(after, feed)) is None


@pytest.mark.parametrize("call", ["Compress <axis = 0> (x, n)", "Compress <axis = -1> (x, n)", "Compress (x, n)"])
@pytest.mark.parametrize(("shape", "length"), [("2,3", "9"), ("rows,columns", "length"), ("2,3", "length")])
@pytest.mark.parametrize("count", [0, 2, 9])
def test_a_condition_may_be_longer_than_what_it_chooses_of(call: str, shape: str, length: str, count: int) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 11]>
        g (float[{shape}] x, bool[{length if count == 9 else count}] n) => (float y) {{ y = {call} }}
    """)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    chosen = np.array([False, True, False, True, False, False, True, True, False])
    feed = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "n": chosen[:count]}
    after = convert(model, opset=7)
    assert differs(run_model(model, feed), run_model(after, feed)) is None


RELU = """
<ir_version: 8, opset_import: ["" : 13, "of" : 1]>
g (float[1,3] x) => (float[1,3] y) { y = of.F (x) }
<opset_import: ["" : 13], domain: "of">
F (x) => (y) { y = Relu (x) }
"""


@pytest.mark.parametrize("version", [99, 0, -1])
def test_versions_that_nobody_knows_are_not_converted_from(version: int) -> None:
    model = onnx.parser.parse_model(RELU)
    model.functions[0].opset_import[0].version = version
    with pytest.raises(ConversionError, match="function of::F .*opset"):
        convert(model, opset=11)
    own = onnx.parser.parse_model(RELU)
    own.graph.node[0].op_type, own.graph.node[0].domain = "Relu", ""
    own.opset_import[0].version = version
    with pytest.raises(ConversionError, match="the model .*opset"):
        convert(own, opset=11)


def test_a_model_without_any_import_says_no_opset() -> None:
    model = onnx.parser.parse_model(RELU)
    model.graph.node[0].op_type, model.graph.node[0].domain = "Relu", ""
    del model.opset_import[:], model.functions[:]
    model.ir_version = 2  # which had none
    with pytest.raises(ConversionError, match="does not say which opset its operators are of"):
        convert(model, opset=11)


def test_training_information_is_not_left_in_another_opset() -> None:
    model = onnx.parser.parse_model(RELU)
    text = "a (float[1,3] t) => (float[3] u) { axes = Constant <value_ints = [0]> ()  u = Squeeze (t, axes) }"
    model.training_info.add().algorithm.CopyFrom(onnx.parser.parse_graph(text))
    with pytest.raises(ConversionError, match="training information"):
        convert(model, opset=11)
    after = convert(model, opset=14)
    assert after.training_info == model.training_info


@pytest.mark.parametrize(
    ("body", "target", "why"),
    [
        ("g (string[3,3] x) => (string[3,3] y) { y = Trilu <upper = 0> (x) }", 12, "x holds strings, not numbers"),
        (
            "g (string[3,2] x) => (string[2,2] y) <int64[2,1] i = {2,0}> { y = GatherND (x, i) }",
            9,
            "the runtime gathers only the first string of each row",
        ),
    ],
)
def test_what_has_no_like_of_strings_stays(body: str, target: int, why: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {body}')
    with pytest.raises(ConversionError, match=why):
        convert(model, opset=target)


def test_a_reduction_with_a_flag_of_two_is_not_converted() -> None:
    """Runtimes take it for true; that its axes are not read, for it means nothing, is not that there are none."""
    text = """<ir_version: 8, opset_import: ["" : 18]> g (float[1,2,3,4] x) => (float[1,4] y)
        <int64[2] a = {1, 2}> { y = ReduceMean <keepdims = 0, noop_with_empty_axes = 2> (x, a) }"""
    model = onnx.parser.parse_model(text)
    with pytest.raises(ConversionError, match="malformed"):
        convert(model, 17)
    assert convert(model, 19).graph.node == model.graph.node


def test_an_optional_of_unknown_type_stays_above_opset_17() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]> g (float[1] x) => (bool y)
        <int64[1] s = {1}> { r = Reshape <allowzero = 2> (x, s)  y = OptionalHasElement (r) }"""
    with pytest.raises(ConversionError, match="the type of r is not known"):
        convert(onnx.parser.parse_model(text), 17)


@pytest.mark.parametrize(("low", "high"), [("inf", '""'), ('""', "low"), ("inf", "low")])
def test_bounds_that_nothing_lies_between_are_no_attributes(low: str, high: str) -> None:
    """The runtime loads no Clip whose least number is above the largest, which is what a missing one stands for."""
    text = f"""<ir_version: 8, opset_import: ["" : 18]> g (float[3] x) => (float[3] y)
        <float inf = {{inf}}, float low = {{-inf}}> {{ y = Clip (x, {low}, {high}) }}"""
    model = onnx.parser.parse_model(text)
    feed = {"x": _float32(1, -2, 0)}
    assert differs(run_model(model, feed), run_model(convert(model, 10), feed)) is None


def test_a_crop_without_a_region_stays_above_opset_12() -> None:
    text = """<ir_version: 8, opset_import: ["" : 15]> g (float[1,1,2,2] x) => (float[1,1,4,4] y)
        <int64[4] s = {1, 1, 4, 4}>
        { y = Resize <coordinate_transformation_mode = "tf_crop_and_resize"> (x, "", "", s) }"""
    model = onnx.parser.parse_model(text)
    assert convert(model, 13).opset_import[0].version == 13
    with pytest.raises(ConversionError, match="tf_crop_and_resize requires roi"):
        convert(model, 12)


@pytest.mark.parametrize("target", [13, 11])
def test_a_copied_sequence_is_read_where_it_comes_from(target: int) -> None:
    model = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["" : 16]>
g (float[2] x, bool c) => (float[2] y, float[2] z) <int64 i = {0}> {
  s = SequenceConstruct (x)
  t = Identity (s)
  y = SequenceAt (t, i)
  z = If (c) <then_branch = p () => (float[2] a) { u = Identity (t) a = SequenceAt (u, i) }, else_branch = q () => (float[2] b) { b = Neg (x) }>
}""")
    onnx.checker.check_model(model, full_check=True)
    after = convert(model, opset=target)
    onnx.checker.check_model(after, full_check=True)
    assert [node.op_type for node in after.graph.node] == ["SequenceConstruct", "SequenceAt", "If"]
    feed = {"x": _float32(1, -2), "c": np.array(True)}
    assert differs(run_model(model, feed), run_model(after, feed)) is None


def test_a_sequence_that_is_copied_between_names_that_stay_is_refused() -> None:
    model = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["" : 16]>
g (seq(float[2]) s) => (seq(float[2]) t) { t = Identity (s) }""")
    with pytest.raises(ConversionError, match=r"Identity does not take seq\(tensor\(float\)\) before opset 14"):
        convert(model, opset=13)
