"""Models of which the runtime gives something else than the standard says nothing."""

from __future__ import annotations

import numpy as np
import onnx

from graphopt.fuzzing.usual import is_usual

_JOINS = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[1,?] a, float[n,2] b, bool c) => (float[?,?,?] y) {
   y = If (c) <
      else_branch = no () => (float[?,?,?] u) {
         s = SequenceConstruct (a, b)
         u = ConcatFromSequence <axis = 1, new_axis = 1> (s) },
      then_branch = yes () => (float[?,?,?] v) {
         t = SequenceConstruct (a, a)
         v = ConcatFromSequence <axis = 1, new_axis = 1> (t) }
   >
}
"""


def test_elements_joined_in_a_branch_are_not_empty() -> None:
    model = onnx.parser.parse_model(_JOINS)
    one = np.ones((1, 2), np.float32)
    assert is_usual(model, {"a": one, "b": one, "c": np.array(False)})
    assert not is_usual(model, {"a": one, "b": np.zeros((0, 2), np.float32), "c": np.array(False)})
