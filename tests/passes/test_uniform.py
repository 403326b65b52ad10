"""Operands of one number, of every origin and under every operator, at sizes from 0 on."""

import itertools

import numpy as np
import onnxruntime as ort
import pytest
from onnx import parser

from graphopt.manager import PassManager

FLOATS = {
    "fill": "c = ConstantOfShape <value = float[1] {NUMBER}> (s)",
    "expanded": "k = Constant <value = float {NUMBER}> ()  c = Expand (k, s)",
    "tiled": "k = Constant <value = float[1,3] {NUMBER, NUMBER, NUMBER}> ()  c = Tile (k, rep)",
    "row": "c = Constant <value = float[1,3] {NUMBER, NUMBER, NUMBER}> ()",
    "higher": "c = Constant <value = float[1,1,1] {NUMBER}> ()",
}
MASKS = {
    "fill": "c = ConstantOfShape <value = bool[1] {NUMBER}> (s)",
    "range": "r = Range (zero, n, one)  g = GreaterOrEqual (r, zero)  h = Unsqueeze (g, last)  c = Xor (h, flip)",
    "reversed": "r = Range (zero, n, one)  g = Less (r, n)  h = Unsqueeze (g, last)  e = Expand (h, s)  c = Xor (e, flip)",
    "row": "c = Constant <value = bool[1,3] {NUMBER, NUMBER, NUMBER}> ()",
    "itself": "i = Cast <to = 7> (x)  g = Equal (i, i)  c = Xor (g, flip)",
    "higher": "c = Constant <value = bool[1,1,1] {NUMBER}> ()",
}
HEAD = '<ir_version: 9, opset_import: ["" : 18]> g (float[N,3] x, float[N,1] z, bool[N,3] m, bool[N,1] w) => (y) '
CONSTANTS = (
    "<int64 zero = {0}, int64 one = {1}, int64 at = {0}, int64[1] last = {1}, int64[1] first = {0}, bool flip = {FLIP}>"
)
SIZES = "s = Shape (x)  n = Gather (s, at)  n1 = Unsqueeze (n, first)  rep = Concat <axis = 0> (n1, last) "


def cases():
    for (origin, text), number, op in itertools.product(
        FLOATS.items(), ("0.0", "-0.0", "1.0", "-2.5"), ("Add", "Sub", "Mul", "Div", "Greater")
    ):
        for operands in (("x", "c"), ("c", "x"), ("z", "c"), ("c", "c")):
            yield f"{origin} {number} {op} {operands}", text.replace("NUMBER", number), op, operands
    for (origin, text), number, op in itertools.product(MASKS.items(), "01", ("And", "Or", "Xor", "Where")):
        pairs = (("m", "c"), ("c", "m"), ("c", "w"), ("c", "c"))
        choices = (("c", "x", "z"), ("c", "z", "x"), ("m", "x", "x"), ("c", "z", "z"))
        for operands in choices if op == "Where" else pairs:
            text_of = text.replace("NUMBER", number).replace("flip", f"flip{1 - int(number)}")
            yield f"{origin} {number} {op} {operands}", text_of, op, operands


def session(model):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def feed(size):
    numbers = np.array([0.0, -0.0, 1.5, -3.0, np.inf, -np.inf, np.nan, 3e38, -1e-40], np.float32)
    x = np.resize(numbers, (size, 3))
    return {"x": x, "z": x[:, 1:2], "m": x > 0, "w": x[:, :1] > 0}


def equal(one, two, exact):
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    if one.dtype == bool:
        return np.array_equal(one, two)
    signs = exact is False or np.array_equal(np.signbit(one) & ~np.isnan(one), np.signbit(two) & ~np.isnan(two))
    return np.array_equal(one, two, equal_nan=True) and signs


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Greater", "And", "Or", "Xor", "Where"])
def test_results_are_the_same_for_all_sizes(op):
    manager = PassManager(passes="repeat({fold_uniform_operands,fold_constants})")
    fired = 0
    for name, text, kind, operands in cases():
        if kind != op:
            continue
        flip = "1" if "flip1" in text else "0"
        body = text.replace("flip1", "flip").replace("flip0", "flip")
        consts = CONSTANTS.replace("FLIP", flip)
        model = parser.parse_model(
            f"{HEAD}{consts} {{ {SIZES} {body}  t = {kind} ({', '.join(operands)})  y = Identity (t) }}"
        )
        result = manager.run(model)
        assert not result.failures
        fired += result.changed
        before, after = session(model), session(result.model)
        for size in (0, 1, 2, 5):
            inputs = {k: v for k, v in feed(size).items() if k in {i.name for i in before.get_inputs()}}
            one, two = before.run(None, inputs)[0], after.run(None, inputs)[0]
            # Where adds its two sides up, so that a negative zero loses its sign: that is the level `rounding`.
            assert equal(one, two, exact=kind != "Where"), f"{name} of size {size}: {one} became {two}"
    assert fired > 5
