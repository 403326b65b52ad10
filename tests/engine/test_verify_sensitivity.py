"""The original's own sensitivity: what may be moved to measure it, and how often it is measured."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.verify import compare, oracle
from graphopt.verify.jitter import jittered_model
from graphopt.verify.runners import OrtRunner
from graphopt.verify.source import Source

RESIZE = """
<ir_version: 9, opset_import: ["" : 18]>
g (float[1,1,4,4] x) => (float[1,1,8,8] y)
<float[2] outer = {1, 1}, float[2] inner = {2, 2}, float[1] w = {0.3}>
{
  scales = Concat <axis = 0> (outer, inner)
  roi = Constant <value = float[2] {0.0, 1.0}> ()
  a = Mul (x, w)
  y = Resize <mode = "linear"> (a, roi, scales)
}
"""


def test_what_decides_a_shape_is_not_moved() -> None:
    moved = jittered_model(onnx.parser.parse_model(RESIZE), 0)
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in moved.graph.initializer}
    assert values["outer"].tolist() + values["inner"].tolist() == [1, 1, 2, 2]
    assert "scales" in {name for node in moved.graph.node if node.op_type == "Concat" for name in node.output}
    assert values["w"] != np.float32(0.3)
    constant = next(node for node in moved.graph.node if node.op_type == "Constant")
    assert numpy_helper.to_array(constant.attribute[0].t).tolist() == [0, 1]


def layers(folded: bool) -> onnx.ModelProto:
    """Convolution and normalization with sums that cancel; folded, the weights are rounded once more."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((8, 32, 3, 3)).astype(np.float32)
    factor = rng.uniform(0.3, 3.0, 8).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y" if folded else "c"])]
    weights = {"w": w * factor[:, None, None, None] if folded else w}
    if not folded:
        nodes.append(helper.make_node("Mul", ["c", "f"], ["y"]))
        weights["f"] = factor.reshape(1, 8, 1, 1)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 32, 64, 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 62, 62])
    tensors = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_more_runs_where_few_elements_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """One run cannot tell how far each of many elements may move; the further runs do, and only then are made."""
    seen: list[int] = []
    runs = oracle._Comparison._noisy_runs

    def counted(self, cases, backend, numbers):
        seen.append(len(numbers))
        return runs(self, cases, backend, numbers)

    monkeypatch.setattr(oracle._Comparison, "_noisy_runs", counted)
    monkeypatch.setattr(oracle, "_JITTERS", 1)
    monkeypatch.setattr(oracle.levels, "_RANGE_TOLERANCE", {"rounding": {"float32": 1e-8}})
    monkeypatch.setattr(oracle.levels, "_ULPS", {"rounding": 0.0})
    assert compare(layers(folded=False), layers(folded=True), sets=("ordinary",)).ok
    assert seen == [1, oracle._MORE_JITTERS]


def test_no_number_of_runs_excuses_a_wrong_result() -> None:
    wrong = layers(folded=True)
    w = numpy_helper.to_array(wrong.graph.initializer[0]).copy()
    w[3, 5, 1, 1] *= 1.01
    wrong.graph.initializer[0].CopyFrom(numpy_helper.from_array(w, "w"))
    assert compare(layers(folded=False), wrong).status == "mismatch"


ROOT_MEAN_SQUARE = "q = Pow (x, two) m = ReduceMean <axes = [-1]> (q) d = Sqrt (m) n = Div (x, d)"
EXPONENTS = {
    "stated": f"(float[2,4] x) => (float[2,4] y) <float two = {{2}}> {{ {ROOT_MEAN_SQUARE} y = LAST }}",
    "from elsewhere": "(float[2,4] x) => (float[2,4] y) <double[1] h = {2}, int64[0] e = {}> "
    f"{{ c = Cast <to = 1> (h) two = Reshape (c, e) {ROOT_MEAN_SQUARE} y = LAST }}",
    "in a branch": "(float[2,4] x, bool b) => (float[2,4] y) <float two = {2}> { n = If (b) "
    "<then_branch = t () => (float[2,4] p) { p = Pow (x, two) }, else_branch = f () => (float[2,4] q) { q = Pow (x, two) }> y = LAST }",
    "of a function": "(float[2,4] x) => (float[2,4] y) <float two = {2}> { n = t.p (x, two) y = LAST } "
    '<domain: "t", opset_import: ["" : 17]> p (a, b) => (c) { c = Pow (a, b) }',
    "in a function": "(float[2,4] x) => (float[2,4] y) { n = t.p (x) y = LAST } "
    '<domain: "t", opset_import: ["" : 17]> p (a) => (c) { b = Constant <value = float {2}> () c = Pow (a, b) }',
}


@pytest.mark.parametrize("where", EXPONENTS)
def test_an_exponent_excuses_nothing(where: str) -> None:
    """Were it moved in its last bit, negative numbers would have no power, and whatever came of one would be granted."""
    text = f'<ir_version: 8, opset_import: ["" : 17, "t" : 1]> g {EXPONENTS[where]}'
    one, other = (onnx.parser.parse_model(text.replace("LAST", last)) for last in ("Relu (n)", "Exp (n)"))
    found = compare(one, other)
    ordinary = next(case.outputs[0] for case in found.cases if case.set == "ordinary")
    assert ordinary.mismatches == ordinary.elements == 8
    assert compare(one, one).ok


MASKED = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,4,8] q, float[1,4,8] k, int64[1,4] mask) => (float[1,4,8] y) <int64[1] axis = {1}, float last = {LAST}>
{
  m = Cast <to = 1> (mask)
  u = Unsqueeze (m, axis)
  one = Constant <value = float {1}> ()
  lowest = Constant <value = float {-3.4028234e38}> ()
  away = Sub (one, u)
  bias = Mul (away, lowest)
  t = Transpose <perm = [0, 2, 1]> (k)
  scores = MatMul (q, t)
  masked = Add (scores, bias)
  p = Softmax <axis = -1> (masked)
  o = MatMul (p, k)
  y = Mul (o, last)
}
"""


def test_what_a_mask_is_computed_with_is_not_moved() -> None:
    """Ones stay ones, integers that became floats are not scaled, and the lowest number stays a number."""
    for number in range(4):
        moved = jittered_model(onnx.parser.parse_model(MASKED.replace("LAST", "1.5")), number)
        stated = {
            n.output[0]: numpy_helper.to_array(n.attribute[0].t) for n in moved.graph.node if n.op_type == "Constant"
        }
        assert stated["one"] == 1
        assert np.isfinite(stated["lowest"])
        made = {name for node in moved.graph.node for name in node.output}
        assert not {f"{name}.graphopt_unscaled" for name in ("m", "u", "away")} & made
        assert {"bias.graphopt_unscaled", "scores.graphopt_unscaled"} <= made


def test_a_mask_that_is_computed_with_excuses_nothing() -> None:
    """With other numbers than 0 and 1 all is NaN; and moved by a bit, a 1 in it would put all of the scores out."""
    one, other = (onnx.parser.parse_model(MASKED.replace("LAST", last)) for last in ("1", "1.5"))
    found = compare(one, other)
    ordinary = next(case.outputs[0] for case in found.cases if case.set == "ordinary")
    assert ordinary.mismatches == ordinary.elements == 32
    assert compare(one, one).ok


# Each fault moves only what a jump is next to: were it jumped over when sensitivity is measured, all would be granted.
JUMPS = {
    "halves": ("(float[64] x) => (float[64] y)", "y = Round (x)", "a = Add (x, half) y = Floor (a)"),
    "equality": ("(float[64] x) => (float[64] y)", "e = Equal (x, one) y = Where (e, seven, x)", "y = Identity (x)"),
    "a floor": (
        "(float[64] x) => (int64[64] y)", "a = Floor (x) y = Cast <to = 7> (a)", "y = Cast <to = 7> (x)",
    ),
    "a list of indices": (
        "(float[4,3] x) => (float[2,3] y)", "i = Cast <to = 7> (list) y = Gather (x, i)", "y = Gather (x, wrong)",
    ),
    "arithmetic of positions": (
        "(int64[6] i) => (int64[6] y)",
        "f = Cast <to = 1> (i) d = Mul (f, seven) a = Sub (d, one) y = Cast <to = 7> (a)",
        "f = Cast <to = 1> (i) d = Mul (f, seven) y = Cast <to = 7> (d)",
    ),
    "the lowest number": (
        "(float[16,4] x, bool[16,4] m) => (float[16,4] y)",
        "s = Where (m, lowest, x) y = Softmax (s)", "s = Where (m, infinite, x) y = Softmax (s)",
    ),
}  # fmt: skip
STATED = (
    "<float half = {0.5}, float one = {1}, float seven = {7}, float[2] list = {1, 2}, int64[2] wrong = {0, 1}, "
    "float lowest = {-3.4028234e38}, float infinite = {-inf}>"
)


@pytest.mark.parametrize("jump", JUMPS)
def test_a_jump_that_nothing_rounds_excuses_nothing(jump: str) -> None:
    signature, right, wrong = JUMPS[jump]
    text = '<ir_version: 8, opset_import: ["" : 17]> g'
    one, other = (onnx.parser.parse_model(f"{text} {signature} {STATED} {{ {body} }}") for body in (right, wrong))
    assert compare(one, other).status == "mismatch"
    assert compare(one, one).ok


QUANTIZED = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,2,4,4] x) => (float[1,2,2,2] y)
<float s = {0.1}, uint8 z = {100}, float t = {0.12}, uint8 u = {120}, int8[2,1,2,2] ones = {1,1,1,1,1,1,1,1},
 float quarter = {0.25}, int8 zero = {0}, float[1,2,2,2] steps = {LAST}>
{
  a = QuantizeLinear (x, s, z)
  b = DequantizeLinear (a, s, z)
  c = QuantizeLinear (b, t, u)
  BODY
}
"""
AVERAGED = (
    "d = DequantizeLinear (c, t, u) e = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (d) "
    "f = QuantizeLinear (e, t, u) y = DequantizeLinear (f, t, u)"
)
CONVOLVED = (
    "f = QLinearConv <group = 2, strides = [2, 2]> (c, t, u, ones, quarter, zero, t, u) "
    "g = DequantizeLinear (f, t, u) y = Add (g, steps)"
)


@pytest.mark.parametrize(
    ("steps", "ok"),
    [("0, 0, 0, 0, 0, 0, 0, 0", True), ("0.24, 0, 0, 0, 0, 0, 0, 0", False), ("0.12, " * 7 + "0", False)],
)
def test_as_many_steps_as_the_original_moves_by_itself(steps: str, ok: bool) -> None:
    """Here the first of two numbers between steps moves in nearly every run, and hides what the second may become."""
    texts = (QUANTIZED.replace("BODY", body).replace("LAST", steps) for body in (AVERAGED, CONVOLVED))
    assert compare(*map(onnx.parser.parse_model, texts), seed=4, sets=["ordinary"]).ok == ok


NEAR_ZERO = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[512] x) => (float[512] y)
<float third = {0.33333334}, float three = {3}, float lower = {LOWER}>
{
  SCALED
  s = Sigmoid (v)
  p = Mul (v, s)
  q = Add (p, lower)
  y = Floor (q)
}
"""


@pytest.mark.parametrize(("lower", "ok"), [("0", True), ("-20", False)])
def test_the_kernel_of_sigmoid_is_off_either_way_next_to_zero(lower: str, ok: bool) -> None:
    """What it leaves there decides between two integers, and one last bit of its operand what it leaves."""
    scaled = NEAR_ZERO.replace("SCALED", "u = Mul (x, third) v = Mul (u, three)").replace("LOWER", "0")
    plain = NEAR_ZERO.replace("SCALED", "v = Identity (x)").replace("LOWER", lower)
    given = {"x": np.linspace(-17.5, -16, 512, dtype=np.float32)}
    assert compare(*map(onnx.parser.parse_model, (scaled, plain)), inputs=given).ok == ok
    assert compare(*map(onnx.parser.parse_model, (plain, scaled)), inputs=given).ok == ok


LOGARITHM = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[256] x) => (float[256] y) { s = Sigmoid (x)  y = Log (s) }
"""


def test_the_smallest_result_of_sigmoid_may_be_zero() -> None:
    """Such a result is one step of the kernel: a step down is zero, whichever last bits change besides."""
    feed = {"x": np.linspace(-17.5, -16, 256, dtype=np.float32)}
    models = [onnx.parser.parse_model(LOGARITHM)] + [
        jittered_model(onnx.parser.parse_model(LOGARITHM), number) for number in range(32)
    ]
    plain, *moved = (OrtRunner(Source(model, "it")).run(feed)[0] for model in models)
    least = np.isclose(plain, -24 * np.log(2))
    assert least.any()
    zero = np.array([np.isinf(each[least]).all() for each in moved])
    assert zero.sum() > 4
    assert all((each[least] > -20).all() for each, is_zero in zip(moved, zero, strict=True) if not is_zero)
