"""Single operators in blocks, and the decisions of the cost model."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from graphopt.operators.linear import block_diagonal
from graphopt.system.machine import host
from graphopt_passes.layout import weights
from graphopt_passes.layout.mincut import INFINITE, MinimumCut
from tests.passes.layout_emulation import weight_both, weight_outputs
from tests.passes.layout_models import Builder, assert_close, blocked_ops, convert, run

needs_kernels = pytest.mark.skipif(host().block == 1, reason="no blocked kernels on this machine")


def between_depthwise(op: str, *extra: Any, channels: int = 24, opset: int = 17, **attrs: Any) -> onnx.ModelProto:
    """Conv, the operator, Conv; images of 12x10."""
    b = Builder(3, opset)
    x = b.image("x", channels, 12, 10)
    (name,) = b.op("Conv", x.name, b.random(channels, 1, 3, 3), group=channels, pads=[1, 1, 1, 1])
    (name,) = b.op(op, name, *(b.weight(e) if isinstance(e, np.ndarray) else e for e in extra), **attrs)
    (name,) = b.op("Conv", name, b.random(7, channels, 1, 1))
    return b.model([b.image(name, 7, 12, 10)], 2, dynamic=False)


SCALES = np.array([1, 1, 2, 3], np.float32)
CASES = {
    "max pool": ("MaxPool", (), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "max pool, rounded up": ("MaxPool", (), {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
    "max pool, dilated": ("MaxPool", (), {"kernel_shape": [2, 2], "dilations": [2, 3]}),
    "average, padding counted": (
        "AveragePool", (), {"kernel_shape": [3, 3], "pads": [1, 0, 1, 2], "count_include_pad": 1},
    ),
    "average, padding left out": ("AveragePool", (), {"kernel_shape": [3, 3], "pads": [1, 0, 1, 2]}),
    "average, rounded up": ("AveragePool", (), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    "global maximum": ("GlobalMaxPool", (), {}),
    "nearest": ("Resize", ("", SCALES), {}),
    "nearest, torch": ("Resize", ("", SCALES), {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
    "linear": ("Resize", ("", SCALES), {"mode": "linear"}),
    "linear, corners": (
        "Resize", ("", SCALES), {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ),
    "linear, asymmetric": (
        "Resize", ("", SCALES), {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
    ),
    "linear to a size": ("Resize", ("", "", np.array([2, 24, 24, 20])), {"mode": "linear"}),
    "nearest, doubled": (
        "Resize", ("", np.array([1, 1, 2, 2], np.float32)), {"coordinate_transformation_mode": "asymmetric"},
    ),
    "mean": ("ReduceMean", (), {"axes": [2, 3]}),
    "slope for each channel": ("PRelu", (np.linspace(-1, 2, 24, dtype=np.float32).reshape(24, 1, 1),), {}),
    "one slope": ("PRelu", (np.array([0.3], np.float32),), {}),
    "padded": ("Pad", (np.array([0, 0, 1, 2, 0, 0, 0, 3]), np.array(-2, np.float32)), {}),
    "mirrored": ("Pad", (np.array([0, 0, 1, 2, 0, 0, 0, 3]),), {"mode": "reflect"}),
    "edges repeated": ("Pad", (np.array([0, 0, 1, 2, 0, 0, 0, 3]),), {"mode": "edge"}),
    "cropped by padding": ("Pad", (np.array([0, 0, -1, 2, 0, 0, -2, -3]),), {}),
    "cut": ("Slice", (np.array([1, 2]), np.array([-1, 99]), np.array([3, 2])), {}),
    "every second row": ("Slice", (np.array([0]), np.array([99]), np.array([2]), np.array([2])), {}),
    "turned over": ("Slice", (np.array([-1]), np.array([-99]), np.array([3]), np.array([-1])), {}),
    "one image of the batch": ("Slice", (np.array([1]), np.array([2]), np.array([0])), {}),
}  # fmt: skip

OLD = {
    "padded": (10, "Pad", (), {"pads": [0, 0, 1, 2, 0, 0, 0, 3], "value": -2.0}),
    "mirrored": (9, "Pad", (), {"pads": [0, 0, 1, 2, 0, 0, 0, 3], "mode": "reflect"}),
    "cut": (9, "Slice", (), {"axes": [3, 2], "starts": [1, 2], "ends": [-1, 99]}),
    "cut without axes": (9, "Slice", (), {"starts": [1], "ends": [2]}),
    "nearest of opset 10": (10, "Resize", (SCALES,), {}),
    "wrapped": (19, "Pad", (np.array([0, 0, 1, 2, 0, 0, 0, 3]),), {"mode": "wrap"}),
    "padded axes": (18, "Pad", (np.array([1, 2, 0, 3]), "", np.array([-1, 2])), {}),
    "resized axes": (18, "Resize", ("", np.array([3, 2], np.float32)), {"axes": [3, 2]}),
    "resized axes to a size": (18, "Resize", ("", "", np.array([24, 20])), {"axes": [-2, -1], "mode": "linear"}),
    "centers mirrored": (19, "Resize", ("", SCALES), {"coordinate_transformation_mode": "half_pixel_symmetric"}),
    "mean of opset 18": (18, "ReduceMean", (np.array([-1, -2]),), {}),
}
"""Forms of other opsets."""


@needs_kernels
@pytest.mark.parametrize("case", CASES)
def test_numbers(case: str) -> None:
    op, extra, attrs = CASES[case]
    _compare(between_depthwise(op, *extra, **attrs))


@needs_kernels
@pytest.mark.parametrize("case", OLD)
def test_numbers_of_other_opsets(case: str) -> None:
    opset, op, extra, attrs = OLD[case]
    _compare(between_depthwise(op, *extra, opset=opset, **attrs))


def _compare(model: onnx.ModelProto) -> None:
    result = convert(model)
    assert blocked_ops(result.model).count("ReorderOutput") == 1, [miss.reason for miss in result.near_misses]
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 24, 12, 10)).astype(np.float32)}
    assert_close(run(model, feeds), run(result.model, feeds))


@pytest.mark.parametrize(
    ("extra", "attrs"),
    [
        (("", SCALES), {"mode": "cubic"}),
        (("", SCALES), {"nearest_mode": "ceil"}),
        (("", np.array([1, 1, 1.5, 2], np.float32)), {}),
        (("", np.array([1, 2, 2, 2], np.float32)), {}),
    ],
)
def test_other_resizes_stay_in_nchw(extra: tuple[Any, ...], attrs: dict[str, Any]) -> None:
    channels = 48 if len(extra) > 1 and extra[1][1] == 2 else 24
    b = Builder(3)
    x = b.image("x", 24, 12, 10)
    (name,) = b.op("Conv", x.name, b.random(24, 1, 3, 3), group=24)
    (name,) = b.op("Resize", name, *(b.weight(e) if isinstance(e, np.ndarray) else e for e in extra), **attrs)
    result = convert(b.model([b.image(name, channels, 1, 1)], 1, dynamic=False))
    assert "Upsample" not in blocked_ops(result.model)
    assert any("Upsample" in miss.reason or "scales" in miss.reason for miss in result.near_misses)


def _conv(
    inputs: int, outputs: int, kernel: int, size: int, group: int = 1, *, before: bool = False
) -> onnx.ModelProto:
    b = Builder(1)
    x = b.image("x", inputs, size, size)
    name = x.name
    if before:
        (name,) = b.op("Conv", name, b.random(inputs, 1, 3, 3), group=inputs, pads=[1] * 4)
    weight = b.random(outputs, inputs // group, kernel, kernel)
    (name,) = b.op("Conv", name, weight, group=group, pads=[kernel // 2] * 4)
    return b.model([b.image(name, outputs, size, size)], 1, dynamic=False)


LONE = [
    ((64, 64, 3, 56), True),
    ((64, 1, 1, 56), False),
    ((64, 8, 1, 56), False),
    ((64, 1, 3, 56), False),
    ((24, 24, 1, 56), False),
    ((20, 20, 3, 56), False),
    ((3, 32, 3, 224), True),  # within the error: as the runtime has it
    ((3, 32, 5, 224), True),
    ((16, 16, 3, 112), True),
    ((32, 32, 1, 112), False),
    ((1024, 1024, 1, 7), True),
    ((64, 64, 3, 56, 64), True),
    ((58, 58, 3, 28, 58), True),
    ((256, 256, 3, 28, 32), True),
    ((152, 152, 3, 14, 19), True),
    ((168, 168, 3, 14, 7), False),
]
"""Inputs, outputs, kernel, image side and groups of a convolution, and whether it gains."""


@pytest.mark.parametrize(("sizes", "blocked"), LONE)
def test_lone_convolutions_are_blocked_when_that_pays(sizes: tuple[int, ...], blocked: bool) -> None:
    result = convert(_conv(*sizes), "avx512-zen4", force=False)
    assert bool(blocked_ops(result.model)) == blocked, [m.reason for m in result.near_misses]


def test_head_with_few_outputs_stays_behind_the_reorder() -> None:
    result = convert(_conv(64, 1, 3, 112, before=True), "avx512", force=False)
    assert blocked_ops(result.model) == ["ReorderInput", "Conv", "ReorderOutput"]
    assert [node.op_type for node in result.model.graph.node if not node.domain] == ["Conv"]


@pytest.mark.parametrize("block", [8, 16])
def test_weights_come_back(block: int) -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((21, 13, 3, 2)).astype(np.float32)
    inputs, outputs = (5, 8), (21,)
    both = weight_both(weights.both_blocked(weight, inputs, outputs, block), block)
    where = np.ix_(weights.positions(outputs, block), weights.positions(inputs, block))
    np.testing.assert_array_equal(both[where], weight)
    assert np.count_nonzero(both) == weight.size
    first = weight_outputs(weights.outputs_blocked(weight, outputs, block), block)
    np.testing.assert_array_equal(first[:21], weight)
    assert not first[21:].any()


def test_layouts_join_where_pieces_end_with_a_block() -> None:
    assert weights.canonical((16, 8, 4, 32, 5), 16) == (24, 4, 37)
    assert weights.lanes((24, 4, 37), 16) == 32 + 16 + 48


def test_merged_groups_are_block_diagonal() -> None:
    weight = np.arange(1, 9, dtype=np.float32).reshape(4, 2, 1, 1)
    wide = block_diagonal(weight, 2, 2)[:, :, 0, 0]
    np.testing.assert_array_equal(wide, [[1, 2, 0, 0], [3, 4, 0, 0], [0, 0, 5, 6], [0, 0, 7, 8]])


def test_merged_groups_are_filled_up_with_zeros() -> None:
    weight = np.arange(1, 7, dtype=np.float32).reshape(3, 2, 1, 1)
    wide = block_diagonal(weight, 3, 2)[:, :, 0, 0]
    np.testing.assert_array_equal(wide, [[1, 2, 0, 0], [0, 0, 3, 4], [5, 6, 0, 0], [0, 0, 0, 0]])


MERGED = [
    ((32, (16, 16), 16), 1), ((4, (8, 8), 16), 2), ((19, (8, 8), 16), 2), ((46, (4, 4), 16), 4),
    ((7, (24, 24), 16), 7),  # pairs would be four times 48 channels, where 168 are padded to 176
    ((3, (8, 16), 16), 3),  # pairs would make 64 channels of 48
    ((4, (8, 16), 16), 2), ((3, (5, 5), 16), 3), ((1, (24, 40), 16), 1), ((6, (4, 4), 8), 2),
]  # fmt: skip
"""Groups, what each reads and makes, the block, and how many groups become one."""


@pytest.mark.parametrize(("sizes", "merge"), MERGED)
def test_groups_become_whole_blocks(sizes: tuple[int, tuple[int, int], int], merge: int) -> None:
    assert weights.groups_in_one(*sizes) == merge


def test_cut_is_the_cheapest_of_all() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        size = 6
        prices = [(a, b, float(rng.integers(0, 9))) for a in range(size) for b in range(size) if a != b]
        cut = MinimumCut()
        things = [MinimumCut.SOURCE, MinimumCut.SINK, *(cut.thing() for _ in range(size - 2))]
        for a, b, amount in prices:
            cut.price(things[a], things[b], amount)

        def total(side: set[int], prices: list[tuple[int, int, float]] = prices) -> float:
            return sum(amount for a, b, amount in prices if a in side and b not in side)

        best = min(total({0, *(i + 2 for i in range(size - 2) if mask >> i & 1)}) for mask in range(1 << (size - 2)))
        assert total(cut.solve()) == best
    assert INFINITE > 1e12
