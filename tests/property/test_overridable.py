"""What follows from an initializer that a caller may override holds for whatever the caller gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from graphopt.analysis import infer_types
from graphopt.analysis.overridable import SIZE_OPERANDS
from graphopt.ir import Model
from graphopt.manager import PassManager
from tests.property.overridable import CHOICES, NAME, cases
from tests.property.test_runtime_sizes import run


def same(a: Any, b: Any) -> bool:
    """Whether two results have equal shapes and contents."""
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if a.dtype.kind in "OU":
        return a.shape == b.shape and a.tolist() == b.tolist()
    return a.shape == b.shape and a.dtype == b.dtype and np.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True)


def differs(before: onnx.ModelProto, after: onnx.ModelProto, feed: dict[str, Any]) -> str | None:
    """What is wrong with an optimized model for a feed; "" when the model before does not run either."""
    expected = run(before, feed)
    if expected is None:
        return ""
    found = run(after, feed)
    if found is None:
        return "it does not run"
    for info, a, b in zip(before.graph.output, expected, found, strict=True):
        if not same(a, b):
            return f"{info.name} is not the same"
    return None


def test_every_operand_that_decides_a_size_is_tried() -> None:
    tried = {(choice.op, choice.index) for choice in CHOICES}
    never_checked = {("AffineGrid", 0), ("Resize", 1), ("Tile", 2)}  # corners of boxes, and the old form of Tile
    wanted = {(op, index) for op, indices in SIZE_OPERANDS.items() for index in indices}
    assert wanted - tried <= never_checked


@pytest.mark.parametrize("level", ["basic", "extended", "layout", "all"])
def test_results_hold_for_other_values_too(level: str) -> None:
    manager = PassManager(level, strict=True)
    ran = overridden = 0
    problems = []
    for name, choice, model in cases():
        result = manager.run(model).model
        feed: dict[str, Any] = {"always": np.ones(1, np.float32)}
        for value in (None, *choice.others):
            given = feed if value is None else {**feed, NAME: value}
            wrong = differs(model, result, given)
            ran += wrong != ""
            overridden += wrong != "" and value is not None
            if wrong:
                problems.append(f"{name} with {value!r}: {wrong}")
    assert not problems, "\n".join(problems)
    assert ran > 600
    assert overridden > 350


def shapes(text: str) -> dict[str, Any]:
    view = Model.load(parser.parse_model(text))
    infer_types(view)
    return {name: value.shape for graph in view.graphs() for name, value in graph.values.items()}


CHAIN = """<ir_version: {ir}, opset_import: ["": {opset}, "my": 1]> g (float[2,6] x, int64[2] s) => (y)
  <int64[2] s = {{3,4}}, float[3,4] b, float[3,4] d> {{
    a = Reshape (x, s) b = my.Op (a) c = Reshape (x, s) t = Shape (c) d = my.Sized (x, t) y = Neg (d) }}"""


def test_declared_sizes_that_came_from_a_default_are_not_believed() -> None:
    found = shapes(CHAIN.format(ir=8, opset=13))
    assert not any(isinstance(dim, int) for name in "abdy" for dim in found[name] or ())


def test_before_ir_4_nothing_can_be_overridden() -> None:
    found = shapes(CHAIN.format(ir=3, opset=8))
    assert found["a"] == found["b"] == found["d"] == (3, 4)
    proto = parser.parse_model(
        CHAIN.format(ir=3, opset=8).replace("b = my.Op (a)", "").replace("d = my.Sized (x, t)", "d = Neg (c)")
    )
    feed = {"x": np.ones((2, 6), np.float32)}
    assert run(proto, feed) is not None
    assert run(proto, {**feed, "s": np.array([4, 3], np.int64)}) is None  # the runtime knows no such input
