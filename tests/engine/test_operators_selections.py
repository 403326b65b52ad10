"""Views of operators that select positions, or change the shape alone, and what they are in a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from graphopt.errors import Decline
from graphopt.ir import Model
from graphopt.operators import (
    Concat,
    Cut,
    Gather,
    Reshape,
    Selection,
    Squeeze,
    Unsqueeze,
)
from graphopt.operators.axes import of_ones
from tests.engine.operators_models import OPSETS, X, model, rewritten, run

SELECTIONS = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,7,3] x) => (float[A,B,C] run)
    <int64[1] i = {1}, int64[1] low = {5}, int64[1] high = {-100}, int64[1] step = {-2}, int64[1] two = {2}, int64[1]
    six = {6}, int64[3] some = {-1, 0, 3}, int64[3] next = {2, 3, 4}, int64[2] parts = {3, 4}, int64 one = {1}> {
        back = Slice (x, low, high, i, step)  run = Slice (x, two, six, i)  list = Gather <axis = -2> (x, some)
        near = Gather <axis = 1> (x, next)  first, rest = Split <axis = 1> (x, parts)  none = Slice (x, six, two, i)
        both = Slice (x, parts, parts)  other = Gather <axis = 2> (x, i)  number = Gather <axis = 1> (x, one) }"""


def test_selections_are_composed_as_their_operators_are() -> None:
    graph = Model.load(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(SELECTIONS))).graph
    made = {value.name: value for node in graph for value in node.outputs if value is not None}
    array = np.arange(7)
    expected = {
        "back": array[5::-2], "run": array[2:6], "list": array[[-1, 0, 3]], "near": array[2:5], "first": array[:3],
        "rest": array[3:], "none": array[:0],
    }  # fmt: skip
    for name, positions in expected.items():
        first = Selection.of(made[name])
        np.testing.assert_array_equal(first.positions, positions)
        for second in (
            range(0),
            range(len(positions)),
            range(len(positions))[::-1],
            np.array([0, 0])[: len(positions)],
        ):
            taken = first.then(Selection(made[name], 1, second))
            np.testing.assert_array_equal(taken.positions, positions[np.asarray(second, np.int64)])
    assert Selection.of(made["near"]).run() == range(2, 5)
    assert Selection.all_of(graph.inputs[0], 1).takes_all
    assert not Selection.of(made["run"]).takes_all
    assert Selection.of(made["run"]).takes(range(2, 6))
    pairs = Selection.at(graph.inputs[0], 1, np.array([1, 3, 5]))
    assert pairs.takes(range(1, 7, 2))
    assert not any(pairs.takes(other) for other in (range(1, 6), range(5, 0, -2), range(0, 6, 2)))
    for name in ("back", "list", "none"):
        with pytest.raises(Decline, match="not contiguous|no elements are selected"):
            Selection.of(made[name]).run()
    for name in ("both", "number"):
        with pytest.raises(Decline, match="^$"):
            Selection.of(made[name])
    with pytest.raises(Decline, match="^$"):
        Selection.of(made["run"]).then(Selection.of(made["other"]))


@pytest.mark.parametrize("positions", [range(4), range(1, 3), range(0), range(3, -1, -2), np.array([2, 0, 0])])
def test_selections_are_written(positions: range | np.ndarray) -> None:
    for opset in OPSETS:
        if opset < 10 and isinstance(positions, range) and positions.step < 0:
            continue
        node = helper.make_node("Gather", ["x", "c"], ["y"], axis=2)
        constant = numpy_helper.from_array(np.asarray(positions, np.int64), "c")
        x, y = helper.make_tensor_value_info("x", 1, X.shape), helper.make_empty_tensor_value_info("y")
        graph = helper.make_graph([node], "g", [x], [y], [constant])
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        proto = onnx.shape_inference.infer_shapes(proto)
        again = rewritten(proto, lambda node, rw: rw.op("Identity", Selection(node.operand(0), 2, positions).write(rw)))
        kinds = ["Gather"] if isinstance(positions, np.ndarray) else ["Slice"] if len(positions) < 4 else []
        assert [node.op_type for node in again.graph.node] == [*kinds, "Identity"]
        np.testing.assert_array_equal(run(proto)[0], run(again)[0])


def test_positions_of_a_concat_lie_in_one_part_or_are_declined() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2,3] a, float[2,4] b, float[2,n] c) => (float[2,m] y) {
        y = Concat <axis = -1> (a, b, c, a) }"""
    graph = Model.load(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))).graph
    concat = Concat.of(next(iter(graph)))
    a, b, *_ = concat.parts
    assert (concat.axis, concat.sizes) == (1, (3, 4))
    assert [concat.holder(at) for at in (range(3), range(3, 7), [6, 4], [2])] == [(a, 0), (b, 3), (b, 3), (a, 0)]
    for outside in (range(2, 4), [7], range(7, 9), [-1]):
        with pytest.raises(Decline, match="not known to lie in one"):
            concat.holder(outside)


@pytest.mark.parametrize("dim", [0, 1, 4, None])
def test_cuts_that_take_all(dim: int | None) -> None:
    far = (1 << 31) - 1
    for cut in [Cut(s, e, step) for s in (0, -far - 1, 1, -4) for e in (far, 4, -1) for step in (1, -1, 2)]:
        sizes = range(6) if dim is None else [dim]
        takes = all(cut.positions(size) == range(size) for size in sizes)
        assert cut.takes_all(dim) == takes, cut


@pytest.mark.parametrize(
    ("before", "after", "axes"),
    [
        ((2, 3), (1, 2, 1, 3), (0, 2)), ((1, 2, 1, 3), (2, 3), (0, 2)), (("n", "m"), ("n", "m", 1), (2,)),
        ((1, 1, 4), (1, 4), (1,)), ((), (1,), (0,)), ((2, 3), (2, 3), None), ((1, 2), (2, 1), None),
        ((2, 3), (3, 2, 1), None), (("n", 1, "m"), ("m",), None), ((1, 2), (1, 2, 3), None),
    ],
)  # fmt: skip
def test_ones_that_make_the_difference(before: Any, after: Any, axes: tuple[int, ...] | None) -> None:
    value = Model.load(model("Transpose", 13)).graph.inputs[0]
    if axes is None:
        with pytest.raises(Decline, match="by more than axes of size 1"):
            of_ones(value, before, after)
    else:
        found = of_ones(value, before, after)
        assert (type(found), found.axes) == (Unsqueeze if len(after) > len(before) else Squeeze, axes)


@pytest.mark.parametrize(
    ("shape", "target"),
    [
        (("n", 12), (0, 12)), ((3, "n", 4), (3, -1, 4)), (("n", "m"), None), ((None, 12), (-1, 12)),
        (("n", None), None), ((12, None, None), None), ((0, "n"), None), (("n", 3, 4, 1), (0, 3, 4, 1)),
    ],
)  # fmt: skip
def test_reshapes_to_shapes_with_names(shape: Any, target: tuple[int, ...] | None) -> None:
    x = helper.make_tensor_value_info("x", 1, ["n", 3, 4])
    node = helper.make_node("Identity", ["x"], ["y"])
    y = helper.make_empty_tensor_value_info("y")
    proto = helper.make_model(helper.make_graph([node], "g", [x], [y]), ir_version=8)
    value = Model.load(proto).graph.inputs[0]
    if target is None:
        with pytest.raises(Decline, match="as a constant list"):
            Reshape.to(value, shape)
    else:
        assert Reshape.to(value, shape).target == target


def test_a_list_of_positions_is_no_longer_than_a_list_may_be() -> None:
    x = Model.load(onnx.parser.parse_model(SELECTIONS)).graph.inputs[0]
    first = Gather(x, 0, np.zeros((2, 400), np.int64))
    with pytest.raises(Decline, match="160000 positions are too many"):
        first.then(Gather(x, 0, np.zeros(400, np.int64)))
    assert first.then(Gather(x, 1, np.zeros(400, np.int64))).positions.shape == (2, 400)
