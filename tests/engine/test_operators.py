"""Operator views: what is read is written back with the same meaning, at every opset that has the operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from graphopt.errors import Decline
from graphopt.ir import Model
from graphopt.operators import (
    Bounds,
    Cut,
    Gather,
    Pad,
    Pool,
    Reduction,
    Reshape,
    Resize,
    Shape,
    Slice,
    Softmax,
    Split,
    Squeeze,
    Transpose,
    Unsqueeze,
    Window,
)
from graphopt.operators.pool import POOLS
from graphopt.operators.reduce import POSITIONS, REDUCTIONS
from graphopt.operators.softmax import SOFTMAXES
from tests.engine.operators_models import OPSETS, X, model, node_of, rewritten, run, with_operands

CASES: list[tuple[str, Any, dict[str, Any]]] = [
    ("Slice", Slice, {"starts": [1, -3], "ends": [3, 9], "axes": [-1, 2]}),
    ("Slice", Slice, {"starts": [0, 1], "ends": [1, 2]}),
    ("Slice", Slice, {"starts": [-1], "ends": [-100], "axes": [3], "steps": [-2]}),
    ("Pad", Pad, {"pads": [0, 0, 1, 2, 0, 0, 3, 0], "constant_value": 1.5, "mode": "constant"}),
    ("Pad", Pad, {"pads": [0, 0, 1, 2, 0, 0, 3, 0], "mode": "reflect"}),
    ("Pad", Pad, {"pads": [1, -1, 2, 1], "axes": [-1, 2], "mode": "edge"}),
    ("Clip", Bounds, {"min": -0.5, "max": 0.75}),
    ("Clip", Bounds, {"min": 0.25}),
    ("Clip", Bounds, {"max": 0.0}),
    ("Clip", Bounds, {}),
    ("Relu", Bounds, {}),
    *((op, Softmax, {"axis": 2}) for op in sorted(SOFTMAXES)),
    ("Squeeze", Squeeze, {"axes": [-3]}),
    ("Squeeze", Squeeze, {}),
    ("Unsqueeze", Unsqueeze, {"axes": [-1, 0]}),
    ("Transpose", Transpose, {}),
    ("Transpose", Transpose, {"perm": [0, 2, 3, 1]}),
    ("Reshape", Reshape, {"shape": [0, -1, 5]}),
    ("Flatten", Reshape, {"axis": 2}),
    ("Flatten", Reshape, {"axis": -1}),
    *((op, Reduction, {"axes": [-1, 1], "keepdims": keepdims}) for op in sorted(REDUCTIONS) for keepdims in (0, 1)),
    *((op, Reduction, {}) for op in sorted(REDUCTIONS)),
    *((op, Reduction, {"axis": -2, "keepdims": 0}) for op in sorted(POSITIONS)),
]  # fmt: skip


@pytest.mark.parametrize(("op", "view", "settings"), CASES)
def test_written_as_read(op: str, view: Any, settings: dict[str, Any]) -> None:
    x = np.abs(X[:, :1]) if op == "Squeeze" else np.abs(X)
    tried = 0
    for opset in OPSETS:
        if not _has(op, opset, settings):
            continue
        proto = model(op, opset, sizes=x.shape, **settings)
        again = rewritten(proto, lambda node, rw: view.of(node).write(rw))
        onnx.checker.check_model(again, full_check=True)
        for before, after in zip(run(proto, x), run(again, x), strict=True):
            np.testing.assert_array_equal(before, after)
        tried += 1
    assert tried >= 3


@pytest.mark.parametrize("sizes", [[1, 4], [2, 3], None])
def test_split_is_written_as_read(sizes: list[int] | None) -> None:
    for opset in OPSETS:
        if sizes is None and opset >= 18:
            continue  # there it states how many parts it makes
        shape = (2, 6) if sizes is None else (2, 5)
        x = X.reshape(-1)[: 2 * shape[1]].reshape(shape)
        proto = model("Split", opset, outputs=2, sizes=shape, axis=-1, split=sizes)
        again = rewritten(proto, lambda node, rw: Split.of(node).write(rw))
        for before, after in zip(run(proto, x), run(again, x), strict=True):
            np.testing.assert_array_equal(before, after)


def test_gather_is_written_as_read() -> None:
    for opset in OPSETS:
        node = helper.make_node("Gather", ["x", "c"], ["y"], axis=-2)
        positions = numpy_helper.from_array(np.array([[-1, 0], [2, 2]], np.int32), "c")
        x, y = helper.make_tensor_value_info("x", 1, X.shape), helper.make_empty_tensor_value_info("y")
        graph = helper.make_graph([node], "g", [x], [y], [positions])
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        proto = onnx.shape_inference.infer_shapes(proto)
        again = rewritten(proto, lambda node, rw: Gather.of(node).write(rw))
        np.testing.assert_array_equal(run(proto)[0], run(again)[0])


def _has(op: str, opset: int, settings: dict[str, Any]) -> bool:
    """Whether an operator can be said so at an opset."""
    if "steps" in settings:
        return opset >= 10
    if op == "Pad" and "axes" in settings:
        return opset >= 18
    if op in (*POSITIONS, "Flatten", "Pad") or op in REDUCTIONS or "axes" in settings:
        negative = any(isinstance(v, int) and v < 0 for v in (*settings.get("axes", ()), settings.get("axis", 0)))
        return opset >= 11 or not (negative and op != "Slice")
    return True


@pytest.mark.parametrize("dim", [0, 1, 2, 5, 7])
def test_two_cuts_are_one(dim: int) -> None:
    array = np.arange(dim)
    ends = [-9, -3, -1, 0, 1, 2, 4, 9]
    cuts = [Cut(start, end, step) for start in ends for end in ends for step in (1, 2, -1, -2)]
    for first in cuts:
        taken = cut_by_standard(array, first)
        np.testing.assert_array_equal(first.positions(dim), taken)
        for second in cuts[:: 1 + dim]:
            expected = cut_by_standard(taken, second)
            joined = first.then(second, dim)
            np.testing.assert_array_equal(cut_by_standard(array, joined), expected, str((first, second)))


def cut_by_standard(array: np.ndarray, cut: Cut) -> np.ndarray:
    """What `Slice` takes, as the standard words it: both ends are clamped, differently on the way back."""
    if not array.size:
        return array
    back = cut.step < 0
    start, end = (bound + array.size if bound < 0 else bound for bound in (cut.start, cut.end))
    start = min(max(start, 0), array.size - back)
    end = min(max(end, -1 if back else 0), array.size - back)
    return array[list(range(start, end, cut.step))]


def test_two_cuts_of_an_unknown_size_are_one_only_from_the_front() -> None:
    for dim in (0, 1, 3, 8):
        array = np.arange(dim)
        for first in (Cut(1, 5), Cut(2, 2), Cut(0, 9)):
            for second in (Cut(1, 2), Cut(0, 4)):
                joined = first.then(second, "n")
                np.testing.assert_array_equal(
                    array[joined.start : joined.end], array[first.start : first.end][second.start : second.end]
                )
    for first, second in ((Cut(-3, 9), Cut(0, 1)), (Cut(0, 4), Cut(-1, 9)), (Cut(0, 9, 2), Cut(0, 3))):
        with pytest.raises(Decline, match="is not known"):
            first.then(second, None)


def test_pads_of_some_axes_take_a_rank_that_the_reader_knows() -> None:
    proto = model("Pad", 18, pads=[1, 2], axes=[-1])
    del proto.graph.value_info[:]
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    node = next(iter(Model.load(proto).graph))
    assert (Pad.of(node, 4).before, Pad.of(node, 4).after) == ((0, 0, 0, 1), (0, 0, 0, 2))
    with pytest.raises(Decline, match="rank of x is not known"):
        Pad.of(node)


def _bounds(op: str, opset: int = 18, **settings: Any) -> Bounds:
    return Bounds.of(next(iter(Model.load(model(op, opset, **settings)).graph)))


def test_two_bounds_are_one() -> None:
    numbers = [-9.0, -2.0, -1.0, 0.0, 0.5, 1.0, 2.0, 9.0]
    many = [_bounds("Clip", min=low, max=high) for low in numbers for high in numbers if low <= high]
    many += [_bounds("Relu"), _bounds("Clip")]
    for first in many:
        for second in many:
            both = first.then(second)
            for number in (-np.inf, *numbers, np.inf):
                once = np.minimum(np.maximum(number, first.low), first.high)
                twice = np.minimum(np.maximum(once, second.low), second.high)
                assert np.minimum(np.maximum(number, both.low), both.high) == twice


@pytest.mark.parametrize("op", ["Min", "Max"])
def test_the_smaller_or_larger_of_a_number_is_a_bound(op: str) -> None:
    for opset in (8, 11, 12, 13, 18):
        x, y = helper.make_tensor_value_info("x", 1, X.shape), helper.make_empty_tensor_value_info("y")
        node = helper.make_node(op, ["c", "x"], ["y"])
        graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(np.array([0.5], np.float32), "c")])
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        proto = onnx.shape_inference.infer_shapes(proto)
        again = rewritten(proto, lambda node, rw: Bounds.of(node).write(rw))
        assert [each.op_type for each in again.graph.node] == ["Clip"]
        np.testing.assert_array_equal(run(proto)[0], run(again)[0])


def test_bounds_that_are_crossed_or_nan_are_declined() -> None:
    for low, high, reason in ((2.0, 1.0, "above"), (np.nan, 1.0, "NaN"), (0.0, np.nan, "NaN")):
        for opset in (7, 18):
            with pytest.raises(Decline, match=reason):
                _bounds("Clip", opset, min=low, max=high)


@pytest.mark.parametrize("opset", [13, 15, 19])
def test_a_part_of_a_shape(opset: int) -> None:
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]> g (float[2,N,4] x) => (int64[3] y) {{ y = Shape (x) }}"""
    proto = onnx.parser.parse_model(text)
    bounds = [(0, None), (1, None), (-2, None), (0, 2), (1, -1), (-9, 9), (2, 1)] if opset >= 15 else [(0, None)]
    for start, end in bounds:
        part = {"start": start, "end": end} if opset >= 15 else {}
        proto.graph.node[0].CopyFrom(helper.make_node("Shape", ["x"], ["y"], **part))
        loaded = Model.load(proto)
        assert Shape.giving(loaded.graph.outputs[0]).dims() == (2, "N", 4)[start:end]
    with pytest.raises(Decline):
        Shape.giving(loaded.graph.inputs[0])
    again = rewritten(proto, lambda node, rw: Shape.of(node).write(rw))
    assert {a.name: a.i for a in again.graph.node[0].attribute} == part


def test_two_transposes_are_one() -> None:
    rng = np.random.default_rng(1)
    value = Model.load(model("Transpose", 13)).graph.inputs[0]
    for _ in range(20):
        p, q = (Transpose(value, tuple(map(int, rng.permutation(4)))) for _ in range(2))
        np.testing.assert_array_equal(X.transpose(p.then(q).perm), X.transpose(p.perm).transpose(q.perm))
        assert p.then(Transpose(value, p.inverse)).moves_nothing


def test_two_squeezes_and_two_unsqueezes_are_one() -> None:
    value = Model.load(model("Transpose", 13)).graph.inputs[0]
    x = np.zeros((1, 2, 1, 1, 3, 1))
    for one, two in (((0,), (1, 2)), ((2, 3), (0, 3)), ((0, 5), (2,))):
        joined = Squeeze(value, one).then(Squeeze(value, two)).axes
        assert np.squeeze(x, joined).shape == np.squeeze(np.squeeze(x, one), two).shape
    for one, two in (((0,), (1, 3)), ((1, 2), (0, 4)), ((3,), (0, 1))):
        joined = Unsqueeze(value, one).then(Unsqueeze(value, two)).axes
        twice = np.expand_dims(np.expand_dims(np.zeros((4, 5, 6)), one), two)
        assert np.expand_dims(np.zeros((4, 5, 6)), joined).shape == twice.shape


READ: list[tuple[str, tuple[int, ...], dict[str, Any], list[Any]]] = [
    ("Upsample", (7, 9), {"scales": [1.0, 1.0, 2.0, 3.0], "mode": "linear"}, []),
    ("Resize", (10,), {"mode": "linear"}, [np.array([1, 1, 2, 3], np.float32)]),
    *(
        ("Resize", (11, 13, 18, OPSETS[-1]), {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}, operands)
        for operands in (
            [np.zeros(0, np.float32), np.array([1, 1, 2, 3], np.float32)],
            [np.zeros(0, np.float32), np.zeros(0, np.float32), np.array([2, 3, 8, 15])],
        )
    ),
    ("Resize", (18, OPSETS[-1]), {
        "mode": "linear", "coordinate_transformation_mode": "asymmetric", "axes": [3, -2],
    }, [np.zeros(0, np.float32), np.array([3, 2], np.float32)]),
    ("Resize", (18, OPSETS[-1]), {
        "mode": "linear", "coordinate_transformation_mode": "asymmetric", "axes": [3, 2],
    }, [np.zeros(0, np.float32), np.zeros(0, np.float32), np.array([15, 8])]),
]  # fmt: skip


@pytest.mark.parametrize(("op", "opsets", "attrs", "operands"), READ)
def test_all_forms_of_resize_are_read_alike(
    op: str, opsets: tuple[int, ...], attrs: dict[str, Any], operands: list[np.ndarray]
) -> None:
    for opset in opsets:
        proto = with_operands(op, opset, attrs, operands) if operands else model(op, opset, **attrs)
        found = Resize.of(node_of(proto))
        assert (found.scales, found.mode, found.coordinates) == ((1, 1, 2, 3), "linear", "asymmetric")
        assert run(proto)[0].shape == (2, 3, 8, 15)


def test_resizes_that_are_no_factors_are_declined() -> None:
    keeps = with_operands("Resize", 18, {"keep_aspect_ratio_policy": "not_larger"}, [
        np.zeros(0, np.float32), np.zeros(0, np.float32), np.array([2, 3, 8, 15]),
    ])  # fmt: skip
    with pytest.raises(Decline, match="keeps the aspect ratio"):
        Resize.of(node_of(keeps))
    with pytest.raises(Decline):
        Resize.of(node_of(model("Transpose", 13)))


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("op", sorted(POOLS))
def test_pools_are_read_with_what_is_left_out(op: str, opset: int) -> None:
    plain = Pool.of(node_of(model(op, opset, kernel_shape=[3, 2])))
    assert (plain.strides, plain.dilations, plain.reach) == ((1, 1), (1, 1), (3, 2))
    assert (plain.before, plain.after, plain.same, plain.ceil) == ((0, 0), (0, 0), "", False)
    padded = Pool.of(node_of(model(op, opset, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 2, 1])))
    assert (padded.strides, padded.before, padded.after) == ((2, 1), (1, 0), (2, 1))
    same = Pool.of(node_of(model(op, opset, kernel_shape=[3, 2], auto_pad="SAME_LOWER")))
    assert (same.before, same.after, same.same) == ((0, 0), (0, 0), "SAME_LOWER")


@pytest.mark.parametrize("same", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("kernel", [[3, 3], [2, 3], [4, 1]])
def test_padding_is_worked_out_as_the_runtime_does(same: str, kernel: list[int]) -> None:
    proto = model("MaxPool", 13, kernel_shape=kernel, auto_pad=same)
    before, after = Window.of(node_of(proto), kernel).padding()
    stated = model("MaxPool", 13, kernel_shape=kernel, pads=[*before, *after])
    np.testing.assert_array_equal(run(proto)[0], run(stated)[0])
    assert run(proto)[0].shape == X.shape
    strided = model("MaxPool", 13, kernel_shape=kernel, auto_pad=same, strides=[2, 1])
    with pytest.raises(Decline, match="the strides"):
        Window.of(node_of(strided), kernel).padding()
    with pytest.raises(Decline, match="do not match the rank of its kernel"):
        Window.of(node_of(strided), kernel[:1])


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("op", sorted(SOFTMAXES))
@pytest.mark.parametrize("axis", [None, 0, 1, -1, -2])
def test_softmax_and_its_like_are_read_with_all_axes_that_they_take(op: str, opset: int, axis: int | None) -> None:
    proto = model(op, opset) if axis is None else model(op, opset, axis=axis)
    axes = Softmax.of(node_of(proto)).axes
    (result,) = run(proto)
    total = np.exp(result) if op == "LogSoftmax" else result
    np.testing.assert_allclose(total.sum(axis=axes), 1, rtol=1e-5)
    assert len(axes) == 1 or opset < 13
    with pytest.raises(Decline):
        Softmax.of(node_of(model("Transpose", 13)))


def test_pools_that_give_more_than_maxima_are_declined() -> None:
    proto = model("MaxPool", 13, 2, kernel_shape=[2, 2], dilations=[1, 3])
    node = node_of(proto)
    with pytest.raises(Decline, match="indices of y0 are used"):
        Pool.of(node)
    assert Pool.of(node_of(model("MaxPool", 13, kernel_shape=[2, 2], dilations=[1, 3]))).reach == (2, 4)
    with pytest.raises(Decline):
        Pool.of(node_of(model("Transpose", 13)))


def test_what_cannot_be_read_is_declined() -> None:
    node = next(iter(Model.load(model("Transpose", 13)).graph))
    with pytest.raises(Decline) as declined:
        Slice.of(node)
    assert str(declined.value) == ""
    text = """<ir_version: 8, opset_import: ["" : 13]> g (float[4,4] x, int64[1] s) => (float y) <int64[2] a = {0, -2}> {
        y = Slice (x, a, a, a)  z = Slice (x, s, s)  w = Pad (x, s) }"""
    twice, computed, padded = Model.load(onnx.parser.parse_model(text)).graph
    for node, view, reason in (
        (twice, Slice, "it slices an axis twice, or with a step of 0"),
        (computed, Slice, "s is not constant"),
        (padded, Pad, "s is not constant"),
    ):
        with pytest.raises(Decline) as declined:
            view.of(node)
        assert str(declined.value) == reason
