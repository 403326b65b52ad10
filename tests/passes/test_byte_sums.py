"""Kernels of this machine at the ends of what `sums_bytes_exactly` allows: the sums are those of integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.system.machine import Target, has_vnni, host
from graphopt.system.sessions import open_session
from graphopt_passes.fusion.contrib.sums import is_depthwise, sums_bytes_exactly, window_rows

MICROSOFT = "com.microsoft"
AVX2 = Target("avx2", 8)
STEP = np.float32(4096)
"""What a result of bytes is quantized by, so that sums of long rows stay in range."""


def extreme_rows(count: int, length: int, signs: str = "both") -> np.ndarray:
    """Rows of weights whose pairs come to 128 or -128, as different as they can be or not."""
    random = np.random.default_rng(length)
    first = random.integers(1, 128, (count, -(-length // 2)))
    sign = {"both": random.choice([-1, 1], (*first.shape, 1)), "+": 1, "-": -1}[signs]
    rows = np.stack([first, 128 - first], axis=-1) * sign
    rows[..., 0, :] = (-128, 0) if signs != "+" else (127, 1)
    return rows.reshape(count, -1)[:, :length].astype(np.int8)


def run(op: str, feeds: dict[str, np.ndarray], constants: dict[str, np.ndarray], inputs: str, **attrs: Any) -> Any:
    """What the runtime computes by one operator, all its optimizations off."""
    domain = MICROSOFT if op.startswith(f"{MICROSOFT}::") else ""
    node = helper.make_node(op.rpartition(":")[2], inputs.split(" "), ["y"], domain=domain, **attrs)
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()],
        [helper.make_tensor_value_info("y", _result(op), None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)])
    model.ir_version = 9
    return open_session(model).run(None, feeds)[0]


def _result(op: str) -> int:
    if op == "MatMulInteger":
        return int(TensorProto.INT32)
    return int(TensorProto.FLOAT if op.endswith(("ToFloat", "DynamicQuantizeMatMul")) else TensorProto.UINT8)


def bytes_of(sums: np.ndarray) -> np.ndarray:
    """Sums as they are quantized by `STEP` around 128."""
    return np.clip(np.rint(sums.astype(np.float32) / STEP) + 128, 0, 255).astype(np.uint8)


ZEROS = [(0, 0), (7, -8)]
"""Zero points of the operand and of the weights: what is multiplied are bytes, whatever stands for 0."""


def quantized(weight: np.ndarray, zeros: tuple[int, int]) -> dict[str, np.ndarray]:
    """The parameters of an operator whose operands are in units of 1."""
    own = {"zx": np.array(zeros[0], np.uint8), "zw": np.array(zeros[1], np.int8)}
    return {"one": np.array(1, np.float32), "w": weight, "step": np.array(STEP), "zy": np.array(128, np.uint8), **own}


@pytest.mark.parametrize("zeros", ZEROS)
@pytest.mark.parametrize("signs", ["both", "+", "-"])
@pytest.mark.parametrize("rows", [1, 2, 7, 64])
@pytest.mark.parametrize(("length", "columns"), [(1, 3), (5, 16), (33, 1), (128, 40), (515, 17), (2592, 5)])
def test_products(rows: int, length: int, columns: int, signs: str, zeros: tuple[int, int]) -> None:
    matrix = extreme_rows(columns, length, signs)
    assert sums_bytes_exactly(matrix, AVX2)
    x = np.random.default_rng(rows).choice(np.array([0, 254, 255], np.uint8), (rows, length), p=[0.1, 0.1, 0.8])
    x[0] = 255
    wanted = (x.astype(np.int64) - zeros[0]) @ (matrix.T.astype(np.int64) - zeros[1])
    stored, both = np.ascontiguousarray(matrix.T), {"x": x}
    own = quantized(stored, zeros)
    points = {name: own[name] for name in ("zx", "zw")}
    assert np.array_equal(run("MatMulInteger", both, {"w": stored, **points}, "x w zx zw"), wanted)
    assert np.array_equal(run("MatMulInteger", {**both, "w": stored}, points, "x w zx zw"), wanted)
    scaled = {"one": np.float32([1]), "w": stored, **{name: point.reshape(1) for name, point in points.items()}}
    found = run(f"{MICROSOFT}::MatMulIntegerToFloat", both, scaled, "x w one one zx zw")
    assert np.array_equal(found, wanted.astype(np.float32))
    linear = "x one zx w one zw step zy"
    assert np.array_equal(run("QLinearMatMul", both, own, linear), bytes_of(wanted))
    batched = run("QLinearMatMul", both, quantized(np.stack([stored] * 2), zeros), linear)
    assert np.array_equal(batched, np.stack([bytes_of(wanted)] * 2))
    for trans, weight in ((0, stored), (1, matrix)):
        gemm = run(
            f"{MICROSOFT}::QGemm", both, quantized(weight, zeros), "x one zx w one zw  step zy", transB=trans
        )  # fmt: skip
        assert np.array_equal(gemm, bytes_of(wanted))


CONVOLUTIONS = {
    "a pixel of few channels": (5, 7, (1, 1), 1), "a pixel of fours": (32, 64, (1, 1), 1),
    "three channels": (16, 3, (3, 3), 1), "fours": (16, 8, (3, 3), 1), "odd channels": (9, 13, (5, 3), 1),
    "groups": (8, 6, (3, 3), 4), "two results per channel": (12, 1, (3, 3), 6), "one channel": (1, 1, (3, 3), 1),
    "depthwise": (16, 1, (3, 3), 16), "odd depthwise": (5, 1, (3, 3), 5), "a row": (8, 5, (3,), 1),
    "a volume": (4, 3, (2, 3, 2), 1), "a long window": (3, 32, (9, 9), 1),
}  # fmt: skip
"""Outputs, inputs of a group, the window and groups."""


def convolved(x: np.ndarray, weight: np.ndarray, group: int) -> np.ndarray:
    """A convolution of integers without padding, in which channels are second."""
    axes = tuple(range(2, x.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], axes)
    parts = zip(np.split(windows, group, 1), np.split(weight, group), strict=True)
    rank = len(axes)
    made = [
        np.tensordot(part, own, ((1, *range(2 + rank, 2 + 2 * rank)), tuple(range(1, 2 + rank)))) for part, own in parts
    ]
    return np.moveaxis(np.concatenate(made, -1), -1, 1)


@pytest.mark.parametrize("zeros", ZEROS)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, last: bool, zeros: tuple[int, int]) -> None:
    outputs, inputs, window, group = CONVOLUTIONS[name]
    rows = extreme_rows(outputs, inputs * int(np.prod(window)))
    weight = np.moveaxis(rows.reshape(outputs, *window, inputs), -1, 1)
    if is_depthwise(group, weight.shape):
        weight = np.random.default_rng(0).choice(np.array([-128, 127, 126], np.int8), weight.shape)
    else:
        assert np.array_equal(window_rows(weight), rows)
        assert sums_bytes_exactly(window_rows(weight), AVX2)
    random = np.random.default_rng(1)
    x = random.choice(np.array([0, 255], np.uint8), (2, inputs * group, *[size + 4 for size in window]), p=[0.1, 0.9])
    wanted = bytes_of(convolved(x.astype(np.int64) - zeros[0], weight.astype(np.int64) - zeros[1], group))
    attrs: dict[str, Any] = {"channels_last": 1} if last else {}
    feed = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x
    op = f"{MICROSOFT}::QLinearConv" if last else "QLinearConv"
    found = run(op, {"x": feed}, quantized(weight, zeros), "x one zx w one zw step zy", group=group, **attrs)
    assert np.array_equal(np.moveaxis(found, -1, 1) if last else found, wanted)


@pytest.mark.skipif(host() != AVX2 or has_vnni(), reason="only kernels of AVX2 without VNNI are known to overflow")
@pytest.mark.parametrize("pair", [(65, 64), (127, 2), (-128, -1), (-65, -64)])
def test_one_step_more_overflows(pair: tuple[int, int]) -> None:
    weight = np.array([pair], np.int8).T
    assert not sums_bytes_exactly(weight.T, AVX2)
    x = np.full((4, 2), 255, np.uint8)
    assert not np.array_equal(run("MatMulInteger", {"x": x}, {"w": weight}, "x w"), x.astype(np.int64) @ weight)


@pytest.mark.parametrize(
    ("row", "pairs", "fours"),
    [
        ([64] * 9, True, True), ([127, 1] * 3, True, False), ([127, 2], False, False), ([1, 127, 127, 1], True, False),
        ([-128, 0, 0, -1], True, False), ([0, -128, -1, 0], True, False), ([-128, -1], False, False),
        ([-128, 127] * 4, True, False), ([3, 3, 3, 125, 4], True, True), ([3, 3, 4, 125, 4], False, False),
        ([127], True, True), ([], True, True),
    ],
)  # fmt: skip
def test_which_neighbours_count(row: list[int], pairs: bool, fours: bool) -> None:
    """Pairs where the order is known, any two of four elsewhere."""
    weights = np.array([[0] * len(row), row], np.int8)
    vnni = host().name == "avx2" and has_vnni()
    assert sums_bytes_exactly(weights, AVX2) == (pairs or vnni)
    assert sums_bytes_exactly(weights, Target("sse2", 8)) == fours
    assert sums_bytes_exactly(weights, Target("neon", 16))
    assert sums_bytes_exactly(None, Target("neon", 16))


def test_many_rows_are_looked_at_in_pieces() -> None:
    weights = np.full((3 << 10, 1 << 10), 65, np.int8)
    weights[:, 1::2] = 63
    assert sums_bytes_exactly(weights, AVX2)
    weights[-1, -1] = 64
    assert sums_bytes_exactly(weights, AVX2) == (host() == AVX2 and has_vnni())
