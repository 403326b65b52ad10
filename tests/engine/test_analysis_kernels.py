"""NumPy kernels against ONNX Runtime, to the last bit, and what they refuse."""

from __future__ import annotations

import random
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from graphopt.analysis.kernels import KERNELS, Unsupported, run_kernel
from graphopt.ir import Model, Node


def node_of(op: str, inputs: list[np.ndarray | None], opset: int, outputs: int = 1, **attrs: Any) -> tuple[Node, bytes]:
    names = ["" if a is None else f"i{k}" for k, a in enumerate(inputs)]
    made = [f"o{k}" for k in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, made, **attrs)], "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
         for n, a in zip(names, inputs, strict=True) if a is not None],
        [helper.make_empty_tensor_value_info(n) for n in made],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    node = Model.load(proto).graph.first
    assert node is not None
    return node, proto.SerializeToString()


def compare(op: str, inputs: list[np.ndarray | None], opset: int = 18, outputs: int = 1, **attrs: Any) -> None:
    """The kernel computes what the runtime does, or declines; where it computes, the runtime does too."""
    node, model = node_of(op, inputs, opset, outputs, **attrs)
    try:
        found = run_kernel(node, inputs)
    except Unsupported:
        return
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    expected = session.run(None, {f"i{k}": a for k, a in enumerate(inputs) if a is not None})
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes()


def integers(*values: int) -> np.ndarray:
    return np.asarray(values, np.int64)


FAR = (0, 1, 2, -1, -2, 3, 5, -5, 100, -100, (1 << 63) - 1, -(1 << 63), (1 << 31) - 1, -(1 << 31))


@given(st.integers(0, 1 << 32))
def test_slice(seed: int) -> None:
    rng = random.Random(seed)
    data = np.arange(24, dtype=np.float32).reshape(4, 6)
    axes = rng.sample([0, 1], rng.randint(1, 2))
    axes = [a - 2 if rng.random() < 0.5 else a for a in axes]
    operands = [[rng.choice(FAR) for _ in axes] for _ in range(2)]
    steps = [rng.choice([1, 2, 3, -1, -2, -3]) for _ in axes]
    compare("Slice", [data, *(integers(*v) for v in (*operands, axes, steps))])


@given(st.integers(0, 1 << 32))
def test_integer_arithmetic(seed: int) -> None:
    rng = random.Random(seed)
    dtype = rng.choice([np.int64, np.int32])
    limits = np.iinfo(dtype)
    pool = [0, 1, -1, 2, -2, 3, 7, -7, limits.max, limits.min, limits.max - 1]
    a = np.asarray([rng.choice(pool) for _ in range(6)], dtype).reshape(rng.choice([(6,), (2, 3), (1, 6)]))
    b = np.asarray([rng.choice(pool) for _ in range(a.shape[-1])], dtype)
    compare(rng.choice(["Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Equal", "Less", "GreaterOrEqual"]), [a, b])
    compare(rng.choice(["Neg", "Abs", "Sign"]), [a])


@given(st.integers(0, 1 << 32))
def test_movement(seed: int) -> None:
    rng = random.Random(seed)
    data = np.random.default_rng(seed).standard_normal((2, 3, 4)).astype(np.float32)
    axis = rng.choice([-3, -1, 0, 1, 2])
    index = integers(*(rng.randint(-2, 1) for _ in range(rng.randint(1, 3))))
    compare("Gather", [data, index], axis=axis)
    compare("Gather", [data, np.asarray(rng.randint(-2, 1))], axis=axis)
    compare("GatherElements", [data, index.reshape(1, 1, -1)], axis=axis)
    compare("GatherND", [data, index[:, None]])
    compare("Concat", [data, data], axis=axis)
    compare("Transpose", [data], perm=rng.sample(range(3), 3))
    compare("Reshape", [data, integers(*rng.choice([(0, -1), (-1,), (6, 4), (0, 0, -1), (2, 1, -1, 4)]))])
    compare("Tile", [data, integers(*(rng.randint(0, 2) for _ in range(3)))])
    compare("Expand", [data[:1], integers(*rng.choice([(2, 1, 1), (5, 1, 3, 4), (1,), (3, 4)]))])
    compare("Pad", [data, integers(*(rng.randint(-1, 2) for _ in range(6))), np.asarray(7, np.float32)])
    compare("Pad", [data, integers(1, -1), None, integers(axis)])
    compare("Split", [data], outputs=2, axis=axis, num_outputs=2)
    compare("Trilu", [data, np.asarray(rng.randint(-4, 4))], upper=rng.randint(0, 1))
    compare("Flatten", [data], axis=axis)
    compare("Squeeze", [data[:1]])
    compare("Compress", [data, np.asarray([True, False, True])], axis=rng.choice([1, None]) or 1)
    compare("CumSum", [integers(3, -4, 5), np.asarray(0)], reverse=rng.randint(0, 1))
    compare("Where", [data > 0, data, -data])
    compare(
        "ReduceSum", [integers(1, 2, 3, 4).reshape(2, 2), integers(rng.choice([0, -1]))], keepdims=rng.randint(0, 1)
    )
    compare("Shape", [data], start=rng.randint(-4, 4), end=rng.randint(-4, 4))
    compare(
        "Range", [np.asarray(rng.randint(-5, 5)), np.asarray(rng.randint(-5, 5)), np.asarray(rng.choice([1, 2, -3]))]
    )
    compare("EyeLike", [data[0]], k=rng.randint(-3, 3))
    compare("NonZero", [np.round(data)])


@pytest.mark.parametrize(
    "target", [TensorProto.INT8, TensorProto.INT32, TensorProto.BOOL, TensorProto.DOUBLE, TensorProto.FLOAT]
)
@pytest.mark.parametrize("source", [np.int64, np.int32, np.uint8, np.bool_, np.float32, np.float16])
def test_casts(source: Any, target: int) -> None:
    values = (
        np.asarray([0, 1, 3, 200, 1 << 20, (1 << 53) + 1]).astype(source)
        if source != np.float16
        else np.float16([0, 1, 0.1])
    )
    compare("Cast", [values], to=target)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("target", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64])
def test_floats_become_integers_where_they_fit(source: Any, target: Any) -> None:
    limits, to = np.iinfo(target), helper.np_dtype_to_tensor_dtype(np.dtype(target))
    above, below = source(limits.max + 1), source(2 * limits.min - 1)
    least = max(source(limits.min), np.finfo(source).min)
    values = np.asarray([0, -0.0, 0.5, -0.9, 1.5, 2.5, 126.9, np.nextafter(above, source(0)), least], source)
    node, _ = node_of("Cast", [values], 18, to=to)
    assert run_kernel(node, [values])[0].tolist() == [int(value) for value in values.tolist()]
    compare("Cast", [values], to=to)
    for wrong in (above, below, np.nan, np.inf, -np.inf):
        with pytest.raises(Unsupported):
            run_kernel(node, [np.asarray([0, wrong], source)])


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("Div", [integers(1), integers(0)], {}),
        ("Div", [integers(-(1 << 63)), integers(-1)], {}),
        ("Mod", [integers(1), integers(0)], {}),
        ("Add", [np.float32([1]), np.float32([2])], {}),
        ("Cast", [np.float32([1e30])], {"to": TensorProto.INT64}),
        ("Cast", [np.float64([1e-7])], {"to": TensorProto.FLOAT16}),
        ("Cast", [np.asarray([-0.0], ml_dtypes.float8_e5m2)], {"to": TensorProto.BOOL}),
        ("Gather", [integers(1, 2), integers(5)], {}),
        ("Reshape", [integers(1, 2), integers(3)], {}),
        ("Reshape", [integers(1, 2), integers(-1, -1)], {}),
        ("Reshape", [np.zeros((0, 3)), integers(0, -1, 0)], {}),
        ("Squeeze", [integers(1, 2), integers(0)], {}),
        ("Slice", [integers(1, 2), integers(0), integers(1), integers(0), integers(0)], {}),
        ("BitShift", [np.uint8([1]), np.uint8([8])], {"direction": "LEFT"}),
        ("Range", [np.asarray(0), np.asarray(5), np.asarray(0)], {}),
        ("Transpose", [np.zeros((2, 2))], {"perm": [0, 0]}),
        ("Split", [integers(1, 2, 3), integers(1, 1)], {}),
        ("Pad", [integers(1), integers(1, 1)], {"mode": "reflect"}),
        ("Relu", [integers(1)], {}),
        ("ReduceMax", [np.zeros(0, np.int64)], {}),
    ],
)
def test_refusals(op: str, inputs: list[np.ndarray], attrs: dict[str, Any]) -> None:
    node, _ = node_of(op, list(inputs), 18, outputs=2 if op == "Split" else 1, **attrs)
    with pytest.raises(Unsupported):
        run_kernel(node, inputs)


def test_old_broadcasting_is_refused() -> None:
    node, _ = node_of("Add", [integers(1, 2), integers(1)], 6, broadcast=1)
    with pytest.raises(Unsupported):
        run_kernel(node, [integers(1, 2), integers(1)])


@pytest.mark.slow
def test_the_standards_own_cases() -> None:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    computed = 0
    for case in cases:
        model = Model.load(case.model)
        node = model.graph.first
        inputs, outputs = case.data_sets[0]
        if len(model.graph) != 1 or node is None or node.op not in KERNELS or len(inputs) != len(model.graph.inputs):
            continue
        given = dict(zip(model.graph.inputs, map(array_of, inputs), strict=True))
        try:
            found = run_kernel(node, [None if v is None else given[v] for v in node.inputs])
        except Unsupported:
            continue
        for a, b in zip(found, map(array_of, outputs), strict=False):
            assert b is not None
            assert (a.dtype, a.shape) == (b.dtype, b.shape), case.name
            assert a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes(), case.name
            computed += 1
    assert computed > 300


def array_of(value: Any) -> np.ndarray | None:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else None
