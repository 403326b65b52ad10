"""Names that several bodies have: the standard's inference mixes up the contents of their values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from graphopt import PassManager
from graphopt.analysis import infer_types
from graphopt.ir import Model
from graphopt.verify import compare

SAME = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (bool c, float x, float[2] z) => (float y, float[?] w)
    <int64[0] none = {}, int64[1] one = {1}, int64[1] eight = {8}, float[1] e = {1}>
    {
        y = If (c) <then_branch = a () => (float[] p) { k = Mul (none, one)  p = Reshape (x, k) },
                    else_branch = b () => (float[] q) { q = Neg (x) }>
        w = If (c) <then_branch = a () => (float[] p) { k = Pow (eight, one)  v = Expand (e, k)  p = Neg (v) },
                    else_branch = b () => (float[] q) { q = Neg (z) }>
    }
"""


@pytest.mark.parametrize("level", ["basic", "all"])
def test_a_size_is_not_that_of_another_body(level: str) -> None:
    model = onnx.parser.parse_model(SAME)
    result = PassManager(level).run(model).model
    feed = {"c": np.asarray(True), "x": np.asarray(2, np.float32), "z": np.zeros(2, np.float32)}
    assert compare(model, result, inputs=feed).ok


FOLLOWED = """
    <ir_version: 8, opset_import: ["" : 17]>
    g (bool c, float[2,6] x) => (float[?,?] y, float[?,?] w)
    <int64[1] one = {1}, int64[1] three = {3}, int64[1] four = {4}>
    {
        y = If (c) <then_branch = a () => (float[?,?] p) {
                        k = Concat <axis = 0> (four, three)
                        v = Reshape (x, k)
                        p = If (c) <then_branch = e () => (float[?,?] u) {
                                        u = Reshape (v, k) },
                                    else_branch = f () => (float[?,?] u) {
                                        l = Concat <axis = 0> (k, four)  m = Slice (l, one, three)  u = Reshape (v, m) }> },
                    else_branch = b () => (float[?,?] p) {
                        k = Concat <axis = 0> (three, four)  v = Reshape (x, k)  p = Neg (v) }>
        w = Neg (x)
    }
"""


def test_sizes_are_followed_in_each_body_of_one_name() -> None:
    model = Model.load(onnx.parser.parse_model(FOLLOWED))
    infer_types(model)
    shapes = {(graph.name, value.name): value.shape for graph in model.graphs() for n in graph for value in n.outputs}
    assert shapes["a", "v"] == (4, 3)
    assert shapes["b", "v"] == shapes["b", "p"] == (3, 4)
    assert shapes["e", "u"] == (4, 3)
    assert shapes["f", "u"] == (3, 4)
