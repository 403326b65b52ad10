"""Sizes of 0, which a `Reshape` before opset 14 copies, in what operators are written out by."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks.conversion import differs, run_model
from graphopt.opsets import convert


def _same(opset: int, graph: str, feed: dict[str, Any], *targets: int) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {graph}')
    expected = run_model(model, feed)
    for target in targets:
        after = convert(model, opset=target)
        onnx.checker.check_model(after, full_check=True)
        assert differs(expected, run_model(after, feed)) is None, target


def _ones(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize(
    ("own", "shape"), [((0, 3), (0, 0)), ((3, 0), (0, 3)), ((3, 2), (2, 3)), ((0, 3), (-1, 3)), ((3, 0), (3, 0))]
)
def test_several_sizes_that_are_computed_are_0(own: tuple[int, ...], shape: tuple[int, ...]) -> None:
    graph = "(float[a,b] x, int64[2] s) => (float[c,d] y) { y = Reshape <allowzero = 1> (x, s) }"
    _same(14, graph, {"x": _ones(*own), "s": np.asarray(shape)}, 13, 8, 7)


@pytest.mark.parametrize("sizes", ["0, 3", "0, 3, 0"])
def test_sizes_of_0_are_stated(sizes: str) -> None:
    dims = "c, d, e"[: len(sizes)]
    text = f"(float[a,b] x) => (float[{dims}] y) {{ s = Constant <value_ints = [{sizes}]> ()"
    _same(14, f"{text}  y = Reshape <allowzero = 1> (x, s) }}", {"x": _ones(3, 0)}, 13, 7)


@pytest.mark.parametrize("sizes", ["batch, steps, heads, each", "batch, rest, each"])
def test_a_computed_shape_whose_zeros_are_copied_rightly_stays(sizes: str) -> None:
    """The size is that of the same axis, or there is none beside a -1: as exporters write it."""
    model = onnx.parser.parse_model(f"""
<ir_version: 8, opset_import: ["" : 15]>
g (float[n,s,6] x) => (float[] y) {{
  batch = Shape <start = 0, end = 1> (x)
  steps = Shape <start = 1, end = 2> (x)
  heads = Constant <value_ints = [2]> ()
  each = Constant <value_ints = [3]> ()
  rest = Constant <value_ints = [-1]> ()
  shape = Concat <axis = 0> ({sizes})
  y = Reshape <allowzero = 1> (x, shape)
}}
""")
    after = convert(model, opset=13)
    assert "Expand" not in [node.op_type for node in after.graph.node]
    for shape in [(2, 3, 6)] if "rest" in sizes else [(2, 3, 6), (0, 3, 6), (2, 0, 6), (0, 0, 6)]:
        feed = {"x": _ones(*shape)}
        assert differs(run_model(model, feed), run_model(after, feed)) is None


@pytest.mark.parametrize("shape", [(2, 0, 3), (2, 3, 0), (0, 2, 0), (2, 3, 4)])
@pytest.mark.parametrize("along", ["time_axis = 0, batch_axis = 1", "time_axis = 1, batch_axis = 0"])
def test_sequences_without_steps_are_reversed(shape: tuple[int, ...], along: str) -> None:
    graph = f"(float[a,b,c] x, int64[n] k) => (float[a,b,c] y) {{ y = ReverseSequence <{along}> (x, k) }}"
    time = int(along[12])
    _same(10, graph, {"x": _ones(*shape), "k": np.full(shape[1 - time], shape[time])}, 9)


@pytest.mark.parametrize("shape", [(1, 4, 2, 0), (1, 4, 0, 2), (0, 4, 0, 0), (2, 4, 2, 3)])
@pytest.mark.parametrize("stated", [True, False])
def test_images_without_pixels_are_woven(shape: tuple[int, ...], stated: bool) -> None:
    dims = ",".join(map(str, shape)) if stated else "a,4,c,d"
    graph = f'(float[{dims}] x) => (float[q,r,s,t] y) {{ y = DepthToSpace <blocksize = 2, mode = "CRD"> (x) }}'
    _same(11, graph, {"x": _ones(*shape)}, 10)


@pytest.mark.parametrize("shape", [(2, 0), (2, 0, 3), (2, 3, 0), (2, 3)])
def test_nothing_is_scattered(shape: tuple[int, ...]) -> None:
    dims = ",".join(map(str, shape))
    feed = {"x": _ones(*shape), "k": np.zeros(shape, np.int64), "u": _ones(*shape) + 9}
    for opset, reduction in ((16, "add"), (18, "max")):
        graph = f"""(float[{dims}] x, int64[{dims}] k, float[{dims}] u) => (float[{dims}] y) {{
          y = ScatterElements <axis = 1, reduction = "{reduction}"> (x, k, u)
        }}"""
        _same(opset, graph, feed, 15, 13, 10)


def test_slices_of_nothing_by_places_of_several_axes() -> None:
    places = np.asarray([[1, 2], [0, 0]])
    graph = "(float[2,3,0] x, int64[2,2] k) => (float[2,0] y) { y = GatherND (x, k) }"
    _same(11, graph, {"x": _ones(2, 3, 0), "k": places}, 10)
    graph = "(float[2,3,0] x, int64[2,2] k, float[2,0] u) => (float[2,3,0] y) { y = ScatterND (x, k, u) }"
    _same(11, graph, {"x": _ones(2, 3, 0), "k": places, "u": _ones(2, 0)}, 10)


@pytest.mark.parametrize("shape", [(2, 0, 3, 0), (0, 2, 0, 3), (2, 3, 0, 2), (0, 0, 0, 0), (2, 3, 4, 5)])
@pytest.mark.parametrize("axis", [1, 2, -2])
def test_softmax_where_several_sizes_are_0(shape: tuple[int, ...], axis: int) -> None:
    graph = f"(float[a,b,c,d] x) => (float[a,b,c,d] y) {{ y = Softmax <axis = {axis}> (x) }}"
    _same(12, graph, {"x": _ones(*shape)}, 13)


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0), (2, 3, 3)])
def test_diagonals_of_no_matrices(shape: tuple[int, ...]) -> None:
    graph = '(float[a,b,b] x) => (float[c,d] y) { y = Einsum <equation = "bii->bi"> (x) }'
    _same(12, graph, {"x": _ones(*shape)}, 11, 9)


@pytest.mark.parametrize(("shape", "points"), [((0, 2, 3, 3), (0, 2, 2, 2)), ((1, 2, 3, 3), (1, 0, 2, 2))])
def test_no_points_of_an_image(shape: tuple[int, ...], points: tuple[int, ...]) -> None:
    dims, grid = (",".join(map(str, each)) for each in (shape, points))
    graph = f"(float[{dims}] x, float[{grid}] q) => (float[k,l,m,n] y) {{ y = GridSample (x, q) }}"
    _same(16, graph, {"x": _ones(*shape), "q": _ones(*points)}, 15)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 3)])
@pytest.mark.parametrize("stated", [True, False])
def test_nothing_has_no_places(shape: tuple[int, ...], stated: bool) -> None:
    dims = ",".join(map(str, shape)) if stated else "a,b"
    _same(13, f"(float[{dims}] x) => (int64[2,n] y) {{ y = NonZero (x) }}", {"x": _ones(*shape)}, 9, 8, 7)


def test_no_box_is_chosen() -> None:
    graph = "(float[1,6,4] b, float[1,1,6] s) => (int64[n,3] y) { y = NonMaxSuppression (b, s) }"
    _same(11, graph, {"b": _ones(1, 6, 4), "s": _ones(1, 1, 6)}, 10, 9, 8, 7)
