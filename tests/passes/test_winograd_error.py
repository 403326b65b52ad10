"""The numbers of Winograd convolutions against float64, in NCHW and in blocks: docs/adr/0008-winograd-numerics.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from graphopt.results import Result
from graphopt.system.machine import host
from graphopt.verify import compare
from tests.passes import test_winograd as plain
from tests.passes import test_winograd_blocked as blocked
from tests.passes.test_winograd import TILES, chain, image, layer, run, weights

Convert = Callable[..., Result]
BLOCKS = pytest.param(
    blocked.convert, id="blocks",
    marks=pytest.mark.skipif(host().block == 1, reason="no blocked kernels on this machine"),
)  # fmt: skip
FORMS: list[Any] = [pytest.param(plain.convert, id="nchw"), BLOCKS]

LARGEST_ERROR = {2: 1e-6, 4: 1.5e-5}
"""Of a result's largest number, for one layer, by the size of the tile."""

ALONG_ONE_AXIS = {2: 1e-6, 4: 3e-6}
"""The same for kernels of one row or column."""

KINDS = ("normal", "positive", "offset", "2", "4", "6", "8")


def inputs(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of both signs, cut off below zero, far from zero, or of magnitudes over so many powers of ten."""
    values = image(*shape)
    if kind in ("normal", "positive", "offset"):
        return {"normal": values, "positive": np.maximum(values, 0), "offset": values + np.float32(1000)}[kind]
    random, decades = np.random.default_rng(0), float(kind)
    spread = random.standard_normal(shape) * 10.0 ** random.uniform(-decades / 2, decades / 2, shape)
    return np.asarray(spread, np.float32)


def exact_conv(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """The convolution in float64, padded so that the size stays."""
    height, width = kernel.shape[2:]
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (height // 2,) * 2, (width // 2,) * 2))
    windows: np.ndarray = np.lib.stride_tricks.sliding_window_view(wide, (height, width), axis=(2, 3))
    return np.asarray(np.einsum("nchwij,kcij->nkhw", windows, kernel.astype(np.float64), optimize=True))


def error_of(convert: Convert, kernel: tuple[int, int], tile: int, kind: str) -> float:
    """The largest error of one layer of 64 channels, in parts of the largest number of its result."""
    x, pads = inputs(kind, (1, 64, 24, 24)), [kernel[0] // 2, kernel[1] // 2] * 2
    result = convert(layer(x.shape, 64, kernel=kernel, bias=False, relu=False, pads=pads), force=tile)
    assert result.hits[plain.PASS] == 1
    expected = exact_conv(x, weights(64, 64, kernel=kernel))
    return float(np.abs(run(result.model, x=x) - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("convert", FORMS)
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("kind", KINDS)
def test_error_of_a_layer(convert: Convert, tile: int, kind: str) -> None:
    assert error_of(convert, (3, 3), tile, kind) < LARGEST_ERROR[tile]


@pytest.mark.parametrize("convert", [BLOCKS])
@pytest.mark.parametrize(("kernel", "tile"), [(kernel, tile) for kernel, ts in blocked.OTHERS.items() for tile in ts])
@pytest.mark.parametrize("kind", KINDS)
def test_error_of_other_kernels(convert: Convert, kernel: tuple[int, int], tile: int, kind: str) -> None:
    """F(2,5) and F(2,7) have the points of F(4,3), or more, and so its limit."""
    limits = ALONG_ONE_AXIS if min(kernel) == 1 else LARGEST_ERROR
    assert error_of(convert, kernel, tile, kind) < limits[4 if max(kernel) > 3 else tile]


@pytest.mark.parametrize("convert", FORMS)
@pytest.mark.parametrize("tile", TILES)
def test_four_loses_small_numbers_beside_large_ones(convert: Convert, tile: int) -> None:
    """Within a tile of F(4,3) the error follows the largest input; an output of F(2,3) reads its own inputs only."""
    model = layer((1, 16, 8, 8), 16, bias=False, relu=False, pads=[1, 1, 1, 1])
    x = image(1, 16, 8, 8)
    x[..., 2, 2] *= np.float32(1e8)  # the corner does not read it, its tile does
    expected = exact_conv(x, weights(16, 16))[..., 0, 0]
    direct, found = run(model, x=x)[..., 0, 0], run(convert(model, force=tile).model, x=x)[..., 0, 0]
    assert np.abs(direct - expected).max() < 1e-5
    assert np.isfinite(found).all()
    assert (np.abs(found - expected).max() > 0.1) == (tile == 4)


@pytest.mark.parametrize("convert", FORMS)
@pytest.mark.parametrize("tile", TILES)
def test_error_of_a_deep_chain(convert: Convert, tile: int) -> None:
    model = chain(32, 16, 16, residual=True)
    x = image(1, 32, 16, 16)
    expected = x.astype(np.float64)
    for tensor in model.graph.initializer:
        expected = np.maximum(exact_conv(expected, numpy_helper.to_array(tensor)) + expected, 0)
    error = np.abs(run(convert(model, force=tile).model, x=x) - expected).max() / expected.max()
    assert error < LARGEST_ERROR[tile]


@pytest.mark.parametrize("convert", FORMS)
@pytest.mark.parametrize("tile", TILES)
def test_infinities_spread_over_the_tile(convert: Convert, tile: int) -> None:
    model = layer((1, 16, 8, 8), 16, pads=[1, 1, 1, 1])
    result = convert(model, force=tile).model
    assert compare(model, result, numerics="rounding", sets=["ordinary", "extreme"]).ok
    assert not compare(model, result, numerics="rounding", sets=["special"]).ok
