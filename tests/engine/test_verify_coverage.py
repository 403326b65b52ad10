"""Inputs on which faults show that random numbers alone would hide."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from graphopt.verify import compare
from graphopt.verify.inputs import Generator

SQUARES = "q = Mul (x, x) m = ReduceMean <axes = [-1]> (q)"
ATTENDING = (
    "m = Cast <to = 1> (mask) u = Unsqueeze (m, first) a = Sub (one, u) b = Mul (a, {}) t = Transpose <perm = [0, 2, 1]> (k) "
    "s = MatMul (k, t) f = Mul (s, {}) z = Add (f, b) p = Softmax <axis = -1> (z) y = MatMul (p, k)"
)
MASKED = "(float[2,4,8] k, {}[2,4] mask) => (float[2,4,8] y)"
BRANCHES = "y = If (c) <then_branch = t () => (o) {{ o = {} (x) }}, else_branch = e () => (p) {{ p = {} (x) }}>"
COLOURS = 'y = ai.onnx.ml.LabelEncoder <keys_strings = ["red", "blue"], values_int64s = [{}], default_int64 = 0> (x)'
CODES = "y = ai.onnx.ml.LabelEncoder <keys_int64s = [500, 600], values_int64s = [{}], default_int64 = 0> (x)"
CHOSEN = "c = Greater (k, zero) n = Neg (x)"
FAULTS = {
    "another epsilon": (
        "(float[2,5,16] x) => (float[2,5,16] y)",
        "y = LayerNormalization <epsilon = 1e-12> (x, sixteen)", "y = LayerNormalization <epsilon = 1e-5> (x, sixteen)",
    ),
    "another epsilon of halves": (
        "(float16[2,5,16] x) => (float16[2,5,16] y)",
        f"{SQUARES} e = Cast <to = 10> (small) a = Add (m, e) d = Sqrt (a) y = Div (x, d)", f"{SQUARES} d = Sqrt (m) y = Div (x, d)",
    ),
    "scores of integers masked": (MASKED.format("int64"), ATTENDING.format("big", "half"), ATTENDING.format("big", "one")),
    "scores of floats masked": (MASKED.format("float"), ATTENDING.format("lowest", "half"), ATTENDING.format("lowest", "one")),
    "a mask less one": (
        MASKED.format("float"), ATTENDING.format("big", "half").replace("(one, u)", "(u, one)").replace("big", "large"),
        ATTENDING.format("big", "one").replace("(one, u)", "(u, one)").replace("big", "large"),
    ),
    "a number looked for": ("(float[4] x) => (bool[4] y)", "y = Equal (x, small)", "y = Less (x, x)"),
    "a bound": ("(float[4] x) => (bool[4] y)", "y = Greater (x, small)", "y = GreaterOrEqual (x, small)"),
    "one branch": ("(bool c, float[2] x) => (float[2] y)", BRANCHES.format("Relu", "Neg"), BRANCHES.format("Abs", "Neg")),
    "the other branch": ("(bool c, float[2] x) => (float[2] y)", BRANCHES.format("Neg", "Relu"), BRANCHES.format("Neg", "Abs")),
    "one flag of two": ("(bool c, bool d) => (bool y)", "y = And (c, d)", "y = Equal (c, d)"),
    "a single flag": ("(bool c) => (bool y)", "y = Not (c)", "y = Xor (c, c)"),
    "a positive number": ("(float k, float[4] x) => (float[4] y)", f"{CHOSEN} y = Where (c, x, n)", "y = Neg (x)"),
    "a negative number": ("(float k, float[4] x) => (float[4] y)", f"{CHOSEN} y = Where (c, x, n)", "y = Identity (x)"),
    "ties of integers": (
        "(int32[N,4] x) => (int64[N,1] y)", "y = ArgMax <axis = 1, select_last_index = 1> (x)", "y = ArgMax <axis = 1> (x)",
    ),
    "more than five": ("(float[N] x) => (float[M] y)", "y = Slice (x, none, five)", "y = Identity (x)"),
    "more than five rows": ("(float[N,7] x) => (float[M,7] y)", "y = Slice (x, none, five)", "y = Identity (x)"),
    "keys": ("(string[8] x) => (int64[8] y)", COLOURS.format("1, 2"), COLOURS.format("2, 1")),
    "codes": ("(int64[8] x) => (int64[8] y)", CODES.format("1, 2"), CODES.format("2, 1")),
    "a padding token": (
        "(int64[2,8] x) => (float[2,8] y)",
        "w = ConstantOfShape (many) g = Gather (w, x) e = Equal (x, seven) f = Cast <to = 1> (e) y = Add (g, f)",
        "w = ConstantOfShape (many) y = Gather (w, x)",
    ),
    "a logarithm": (
        "(float[2,64] x) => (float[2,64] y)", "l = Log (x) y = Softmax (l)", "l = Log (x) h = Mul (l, half) y = Softmax (h)",
    ),
    "lengths": (
        "(float[4,3] x, int64[3] n) => (float[4,3] y)", "y = ReverseSequence (x, n)", "y = Identity (x)",
    ),
    "a start": ("(float[6] x, int64[1] s) => (float[N] y)", "y = Slice (x, s, five)", "y = Slice (x, none, five)"),
    "a zero point": (
        "(uint8[6] x, uint8 z) => (float[6] y)", "y = DequantizeLinear (x, half, z)", "y = DequantizeLinear (x, half)",
    ),
    "a larger size": ("(float[1,3] x, int64[2] s) => (float[M,N] y)", "y = Expand (x, s)", "y = Identity (x)"),
    "a default": (
        "(float[8] x, int64[1] k) => (float[N] y) <int64[1] k = {3}>",
        "y, i = TopK (x, k)", "i = Constant <value = int64[1] {3}> () y, j = TopK (x, i)",
    ),
    "a text by default": (
        '(string[8] x, string k) => (bool[8] y) <string k = {"a"}>', "y = Equal (x, k)", "y = Equal (x, text)",
    ),
}  # fmt: skip
STATED = (
    "float zero = {0}, float one = {1}, float half = {0.5}, float big = {-10000}, float large = {10000}, float lowest = {-3.4028234e38}, float small = {0.001}, "
    "int64[1] first = {1}, int64[1] none = {0}, int64[1] five = {5}, int64[1] many = {30000}, int64 seven = {7}, int64[2] square = {16, 16}, "
    'string text = {"a"}'
)


def built(signature: str, body: str) -> onnx.ModelProto:
    signature, *defaults = signature.split(" <")
    stated = ", ".join([*(text.removesuffix(">") for text in defaults), STATED])
    opsets = '<ir_version: 9, opset_import: ["" : 19, "ai.onnx.ml" : 3]>'
    if "axes = [-1]" in body:
        opsets = opsets.replace("19", "17")
    model = onnx.parser.parse_model(f"{opsets} g {signature} <{stated}> {{ {body} }}")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(16, np.float32), "sixteen"))
    used = {name for node in model.graph.node for name in node.input} | {value.name for value in model.graph.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    return model


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_not_hidden_by_the_inputs(fault: str) -> None:
    signature, right, wrong = FAULTS[fault]
    one, other = built(signature, right), built(signature, wrong)
    assert compare(one, other).status == "mismatch"
    assert compare(one, one).ok


def test_inputs_that_a_model_does_not_take_are_as_harmless_as_before() -> None:
    """Starts of 1 leave nothing of a single row, of which there is no largest."""
    model = built(
        "(float[1,3] x, int64[1] s) => (float[3] y)",
        "r = Slice (x, s, five, none) y = ReduceMax <keepdims = 0> (r, none)",
    )
    found = compare(model, model)
    assert found.ok
    assert [case.set for case in found.cases if case.outputs] == ["ordinary", "extreme", "special", "special"]


def test_few_flags_take_all_combinations() -> None:
    model = built("(bool c, bool d, float[2] x) => (bool y)", "y = And (c, d)")
    generator = Generator(model)
    plan = next(generator.plans())
    feeds = [feed for name in ("ordinary", "extreme", "special") for feed in generator.feeds(name, plan)]
    assert len({(bool(feed["c"]), bool(feed["d"])) for feed in feeds}) == 4


def test_results_without_a_number_are_the_last_resort() -> None:
    """The first axis drawn does not suit the sum, and a slice from 0 to 0 tells nothing of what comes behind it."""
    text = "(float[1,16,64] x, int64[1] b, int64[1] e, int64[1] t) => (float[A,B,C] y)"
    one, other = (
        built(text, f"w = ConstantOfShape <value = float[1] {{{w}}}> (square) s = Slice (x, b, e, t) y = MatMul (w, s)")
        for w in ("1.0", "2.0")
    )
    found = compare(one, other)
    assert found.status == "mismatch"
    assert all(output.elements for case in found.cases for output in case.outputs)
