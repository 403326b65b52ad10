"""The judge of integers of eight bits one step apart: what follows from such a step is no fault, anything else is."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from graphopt.fuzzing.building import Sample
from graphopt.fuzzing.stepwise import FEW, CutValue, after_steps
from graphopt.fuzzing.subjects import Optimized, OwnSubject
from graphopt.fuzzing.verdicts import Judge, Verdict

HEAD = '<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>'
MODEL = """g (float[1,4,2] x) => (float[1,4,1] y)
<float s = {0.5}, uint8 z = {120}, float[4,1] w = {3, 5, -7, 9}, int64[1] a = {2}>
{
  q = QuantizeLinear (x, s, z)
  d = DequantizeLinear (q, s, z)
  m = ReduceMean <axes = [2]> (d)
  k = QuantizeLinear (m, s, z)
  f = DequantizeLinear (k, s, z)
  p = Mul (f, w)
  y = Relu (p)
}"""
"""A product reads what integers stand for. None of them is near halfway, so that no other part of the judge grants steps."""


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + text)


def moved(by: list[int], model: str = MODEL) -> str:
    """The result of a pass that rounds elements of `k` otherwise: an integer is added to each."""
    rounded = "k0 = QuantizeLinear (m, s, z) i0 = Cast <to = 6> (k0) i1 = Add (i0, o) k = Cast <to = 2> (i1)"
    offsets = "{" + ", ".join(map(str, by)) + "}"
    text = model.replace("k = QuantizeLinear (m, s, z)", rounded)
    return text.replace("int64[1] a", f"int32[1,4,1] o = {offsets}, int64[1] a")


PLAIN = ((2, 2), (3, 3), (5, 5), (9, 9))


def judged(
    original: str, result: str, *, stepwise: bool = True, pairs: tuple[tuple[float, float], ...] = PLAIN
) -> Verdict | None:
    judge = Judge(Sample(parsed(original), [{"x": np.array([pairs], np.float32)}]))
    outcome = Optimized(parsed(result), stepwise=stepwise)
    return judge.of(OwnSubject("basic"), outcome, again=False, once_more=False)


def test_what_follows_from_one_step_is_no_fault() -> None:
    assert judged(MODEL, moved([0, 1, 0, 0])) is None
    wrong = judged(MODEL, moved([0, 1, 0, 0]), stepwise=False)
    assert wrong is not None
    assert wrong.kind == "wrong"


def test_those_that_were_halfway_may_all_be_a_step_apart() -> None:
    scale = np.array([0.5], np.float32)
    floats = np.array([0.25, 1.25, -0.75, 2.25], np.float32)  # half, two and a half, ... steps
    ties = CutValue(np.array([1, 3, -1, 5], np.int8), floats=("m", "s"))
    even = np.array([0, 2, -2, 4], np.int8)
    assert ties.takes(even, [floats, scale])
    assert not ties.takes(even)
    assert not ties.takes(even, [floats + np.float32(0.01), scale])
    assert not ties.takes(even, [floats, np.tile(scale, 4)])  # which axis the scales are along is not asked
    assert not ties.takes(even - np.int8(1), [floats, scale])  # two steps


@pytest.mark.parametrize("output", ["float[1,4,1] y", "uint8[1,4,1] k"])
def test_which_were_halfway_is_seen_in_the_original(output: str) -> None:
    model = MODEL.replace("float[1,4,1] y", output)
    halves = ((0, 0.5), (1, 1.5), (2, 2.5), (4.5, 4))
    assert judged(model, moved([1, -1, 1, -1], model), pairs=halves) is None


def test_steps_are_seen_in_the_branch_that_is_taken() -> None:
    """The outputs of an `If` are dequantized in its branches, where no name of the main graph is."""

    def branching(by: list[int]) -> str:
        nodes = moved(by).split("\n{", 1)[1].rpartition("}")[0]
        head = MODEL.split("\n{", 1)[0].replace("(float[1,4,2] x)", "(float[1,4,2] x, bool c)")
        head = head.replace("int64[1] a", f"int32[1,4,1] o = {{{', '.join(map(str, by))}}}, int64[1] a")
        inner = nodes.replace("y = Relu (p)", "t = Relu (p)")
        other = "other () => (float[1,4,1] e) { e = ReduceMean <axes = [2]> (x) }"
        return (
            head + f"{{ y = If (c) <then_branch = then () => (float[1,4,1] t) {{ {inner} }}, else_branch = {other}> }}"
        )

    feed = {"x": np.array([[[2, 2], [3, 3], [5, 5], [9, 9]]], np.float32), "c": np.array(True)}
    judge = Judge(Sample(parsed(branching([0, 0, 0, 0])), [feed]))
    for by, fine in (([0, 1, 0, 0], True), ([0, 2, 0, 0], False), ([0, 1, 1, 0], False)):
        outcome = Optimized(parsed(branching(by)), stepwise=True)
        found = judge.of(OwnSubject("basic"), outcome, again=False, once_more=False)
        assert (found is None) is fine, found


@pytest.mark.parametrize(
    "result",
    [
        moved([0, 2, 0, 0]),
        moved([1, 1, 1, 1]),
        moved([0, 1, 1, 0]),
        moved([0, 1, 0, 0]).replace("7, 9}", "7, 9.01}"),
        moved([0, 1, 0, 0]).replace("f = DequantizeLinear (k, s, z)", "f0 = DequantizeLinear (k, s, z) f = Neg (f0)"),
        moved([0, 1, 0, 0]).replace("Relu", "Abs"),
        moved([0, 1, 0, 0]).replace("p = Mul (f, w)", "p = Div (f, w)"),
        MODEL.replace("int64[1] a", "float t = {0.505}, int64[1] a").replace("(k, s, z)", "(k, t, z)"),
        MODEL.replace("int64[1] a", "float t = {0.55}, int64[1] a").replace("(m, s, z)", "(m, t, z)"),
    ],
    ids=["two steps", "every element", "half", "weight", "sign", "operator", "division", "scale", "scale before"],
)
def test_anything_else_is_a_fault(result: str) -> None:
    wrong = judged(MODEL, result)
    assert wrong is not None
    assert wrong.kind == "wrong"


def test_integers_may_have_lost_their_name_where_what_they_stand_for_has_kept_it() -> None:
    renamed = moved([0, 1, 0, 0]).replace("k = Cast", "l = Cast").replace("(k, s, z)", "(l, s, z)")
    assert judged(MODEL, renamed) is None
    assert judged(MODEL, renamed.replace("Relu", "Abs")) is not None
    assert judged(MODEL, renamed.replace("f = Deq", "g = Deq").replace("(f, w)", "(g, w)")) is not None  # none kept its
    assert judged(MODEL, renamed.replace("{0, 1, 0, 0}", "{0, 2, 0, 0}")) is not None


def test_a_name_that_means_something_else_is_passed_over() -> None:
    """`q` is the same integers in another order in the result: it is not fed to the original, and no fault."""
    other = moved([0, 1, 0, 0]).replace("q = QuantizeLinear (x, s, z)", "x1 = Neg (x) q = QuantizeLinear (x1, s, z)")
    other = other.replace("d = DequantizeLinear (q, s, z)", "d0 = DequantizeLinear (q, s, z) d = Neg (d0)")
    assert judged(MODEL, other) is None


def test_a_step_goes_on_through_later_integers() -> None:
    """What the original makes of the step is a step of several in the integers behind it, and no fault there."""
    behind = MODEL.replace("y = Relu (p)", "r = Relu (p) k1 = QuantizeLinear (r, s, z) y = DequantizeLinear (k1, s, z)")
    assert judged(behind, moved([0, 0, 1, 0], behind)) is None
    two = (
        "k2 = QuantizeLinear (r, s, z) e = Cast <to = 6> (k2) e1 = Add (e, o) e2 = Add (e1, o) k1 = Cast <to = 2> (e2)"
    )
    assert judged(behind, moved([0, 0, 1, 0], behind).replace("k1 = QuantizeLinear (r, s, z)", two)) is not None


def test_other_integers_than_bytes_take_no_steps() -> None:
    """A position or a size that is off by one is wrong, whatever pass fired."""
    counted = MODEL.replace("(float[1,4,1] y)", "(float[1,4,1] y, int64[3] n)").replace(
        "Relu (p)", "Relu (p) n = Shape (y)"
    )
    off = moved([0, 1, 0, 0], counted).replace(
        "n = Shape (y)", "n0 = Shape (y) one = Constant <value = int64[3] {0,1,0}> () n = Add (n0, one)"
    )
    assert judged(counted, moved([0, 1, 0, 0], counted)) is None
    assert judged(counted, off) is not None


def test_an_output_that_is_such_an_integer_may_be_a_step_apart() -> None:
    plain = MODEL.replace("float[1,4,1] y", "uint8[1,4,1] k")
    assert judged(plain, moved([0, 1, 0, 0], plain)) is None
    assert judged(plain, moved([0, 2, 0, 0], plain)) is not None


SUM_OF_BYTES = """g (float[1,4,2] x) => (uint8[1,4,2] y)
<float s = {0.5}, float t = {1}, uint8 z = {120}, uint8[2] b = {121, 120}>
{ q = QuantizeLinear (x, s, z)  y = com.microsoft.QLinearAdd (q, s, z, b, s, z, t, z) }"""
"""Integers added by a kernel: every other sum lies halfway between two integers."""


@pytest.mark.parametrize(("added", "kind"), [("u", None), ("v", "wrong")])
def test_what_the_result_quantizes_may_be_halfway(added: str, kind: str | None) -> None:
    """Half of the elements are a step apart: granted where what they were rounded from is halfway, else not."""
    floats = SUM_OF_BYTES.replace(
        "y = com.microsoft.QLinearAdd (q, s, z, b, s, z, t, z)",
        "d = DequantizeLinear (q, s, z)  e = DequantizeLinear (b, s, z)  a = Add (d, e)"
        f"  w = Add (a, {added})  y = QuantizeLinear (w, t, z)",
    ).replace("float t", "float[2] u = {0.000001, 0}, float[2] v = {0.7, 0}, float t")
    found = judged(SUM_OF_BYTES, floats, pairs=((0, 2), (2, 4), (4, 6), (6, 8)))
    assert (found and found.kind) == kind


MEAN_OF_BYTES = """g (float[1,4,2] x) => (float[1,1,4,1] y)
<float s = {0.1}, float t = {0.7}, uint8 z = {123}, int8[1,1,1,2] w = {1,1}, float h = {0.5}, int8 o = {0}, int64[1] a = {1}>
{ i = Unsqueeze (x, a)  q = QuantizeLinear (i, s, z)
  k = com.microsoft.QLinearAveragePool <kernel_shape = [1, 2]> (q, s, z, t, z)  y = DequantizeLinear (k, t, z) }"""


TIES = ((0, 0.7), (0, 2.1), (0, 3.5), (0, 4.9))


@pytest.mark.parametrize(("pairs", "zero", "kind"), [(TIES, "z", None), (TIES, "c", "wrong"), (PLAIN, "c", "wrong")])
def test_kernels_on_both_sides_round_what_is_halfway(
    pairs: tuple[tuple[float, float], ...], zero: str, kind: str | None
) -> None:
    """Means of 0.5, 1.5, 2.5 and 3.5 steps become others; where 1 is subtracted from each, that is wrong."""
    pool = "com.microsoft.QLinearAveragePool <kernel_shape = [1, 2]> (q, s, z, t, z)"
    convolution = f"QLinearConv <kernel_shape = [1, 2]> (q, s, z, w, h, o, t, {zero})"
    result = MEAN_OF_BYTES.replace(pool, convolution).replace("float t", "uint8 c = {122}, float t")
    found = judged(MEAN_OF_BYTES, result, stepwise=False, pairs=pairs)
    assert (found and found.kind) == kind


HALVES = """g (float16[1,4000] x) => (int32[1,4000] y) <float16 s = {10158}, float t = {0.02999878}, int32 one = {1}>
{ v = Sigmoid (x)  q = QuantizeLinear (v, s)  y = Cast <to = 6> (q) }"""


@pytest.mark.parametrize(("added", "kind"), [("", None), ("a = Add (i, one)", "wrong")])
def test_halves_next_to_halfway_may_come_to_the_other_integer(added: str, kind: str | None) -> None:
    """Behind a `Cast` the runtime leaves out the rounding to float16 of what it has computed in float32."""
    single = "c = Cast <to = 1> (v)  q = QuantizeLinear (c, t)"
    result = HALVES.replace("q = QuantizeLinear (v, s)", single)
    if added:
        result = result.replace("y = Cast <to = 6> (q)", f"i = Cast <to = 6> (q)  {added}  y = Identity (a)")
    original, other = parsed(HALVES), parsed(result)
    for model in (original, other):
        model.opset_import[0].version = 19
    judge = Judge(Sample(original, [{"x": np.linspace(-6, 6, 4000, dtype=np.float16).reshape(1, -1)}]))
    found = judge.of(OwnSubject("all"), Optimized(other), again=False, once_more=False)
    assert (found and found.kind) == kind


def test_a_product_of_bytes_may_give_floats_and_have_no_scale_for_them() -> None:
    text = """g (uint8[2,2] x) => (float[2,2] y)
    <float s = {0.5}, uint8 z = {3}, int8[2,2] w = {1, 2, 3, 4}, int8 o = {0}, float t = {2}>
    { p = com.microsoft.QGemm (x, s, z, w, s, o) y = Mul (p, t) }"""
    twice = text.replace("y = Mul (p, t)", "y = Add (p, p)").replace("(x, s, z, w, s, o)", "(x, s, z, w, s, z0)")
    other = parsed(twice.replace("int8 o = {0}", "int8 z0 = {1}"))
    assert after_steps(parsed(text), other, {"x": np.full((2, 2), 7, np.uint8)}, FEW) is None
