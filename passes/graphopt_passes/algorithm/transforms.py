"""The matrices of Winograd's minimal filtering, in the layouts of the ONNX constants.

F(m x m, r x r), r the side of the kernel, computes m x m outputs from a x a inputs, a = m + r - 1, with a * a
multiplications per channel pair:
Y = A^T [ (G g G^T) * (B^T d B) ] A. See Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015).
Kernels of one row or column are transformed along one axis only.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from graphopt.errors import Decline
from graphopt.records import dataclass

TILES = (4, 2)
"""The supported sizes of output tiles."""

TILES_OF = {
    (3, 3): TILES, (1, 3): TILES, (3, 1): TILES,
    (5, 5): (2,), (1, 5): (2,), (5, 1): (2,), (1, 7): (2,), (7, 1): (2,),
}  # fmt: skip
"""Sizes of output tiles by height and width of the kernel; F(2x2,5x5) has the input tiles of F(4x4,3x3)."""


@dataclass(frozen=True, slots=True)
class Filtering:
    """An algorithm F(m x m, r x r), or F(1 x m, 1 x r) and F(m x 1, r x 1) for kernels of one row or column.

    Attributes:
        tile: m, the size of an output tile along the transformed axes.
        kernel: height and width of the kernel.
    """

    tile: int
    kernel: tuple[int, int]

    @property
    def outputs(self) -> tuple[int, int]:
        """Height and width of an output tile."""
        height, width = (self.tile if side > 1 else 1 for side in self.kernel)
        return height, width

    @property
    def inputs(self) -> tuple[int, int]:
        """Height and width of an input tile, and of its coefficients."""
        height, width = (m + r - 1 for m, r in zip(self.outputs, self.kernel, strict=True))
        return height, width

    @property
    def area(self) -> int:
        """Number of coefficients of a tile."""
        return self.inputs[0] * self.inputs[1]

    def __str__(self) -> str:
        (height, width), (rows, columns) = self.outputs, self.kernel
        return f"F({height}x{width},{rows}x{columns})"


_POINTS = {4: (0, 1, -1), 6: (0, 1, -1, 2, -2), 8: (0, 1, -1, 2, -2, 1 / 2, -1 / 2)}
"""Evaluation points of the Toom-Cook construction, besides infinity, by the size of an input tile."""


def _signed(rows: np.ndarray, *at: int) -> np.ndarray:
    """Negate the rows of points 0 and infinity for F(2,3), as in the paper."""
    if len(rows) == 4:
        rows[list(at)] *= -1
    return rows + 0.0  # no negative zeros


@lru_cache
def input_rows(size: int) -> np.ndarray:
    """B^T, which transforms one axis of tiles: polynomials with all points but one, or all, as roots: [a, a]."""
    points = _POINTS[size]
    rows = [(*np.poly([other for other in points if other != point])[::-1], 0) for point in points]
    return np.asarray(_signed(np.array([*rows, np.poly(points)[::-1]]), 0, -1), np.float32)


def _powers(size: int, count: int) -> np.ndarray:
    """The first `count` powers of each point; for infinity, the last unit vector: [a, count]."""
    return np.concatenate([np.vander(_POINTS[size], count, increasing=True), np.eye(count)[-1:]])


@lru_cache
def _weight(tile: int, kernel: int) -> np.ndarray:
    """G: values at the points, divided by the values of B^T's polynomials there: [a, r]."""
    points = _POINTS[tile + kernel - 1]
    scale = [1 / prod(point - other for other in points if other != point) for point in points]
    return _signed(_powers(tile + kernel - 1, kernel) * np.array([*scale, 1])[:, None], 0)


@lru_cache
def output_rows(tile: int, kernel: int) -> np.ndarray:
    """A^T, which transforms one axis of products, with the powers of each point as a column: [m, a]."""
    return np.array(_signed(_powers(tile + kernel - 1, tile), -1).T, np.float32)


@lru_cache
def input_filters(tile: int) -> np.ndarray:
    """B^T d B as the filters of a convolution with the tile as its stride: [a*a, 1, a, a]."""
    rows, size = input_rows(tile + 2), tile + 2
    return np.asarray(np.einsum("ai,bj->abij", rows, rows).reshape(size * size, 1, size, size))


@lru_cache
def output_matrix(tile: int) -> np.ndarray:
    """A^T M A as one matrix over the flattened tiles: [m*m, a*a]."""
    rows, size = output_rows(tile, 3), tile + 2
    return np.asarray(np.einsum("ai,bj->abij", rows, rows).reshape(tile * tile, size * size))


def transformed_weight(weight: np.ndarray, tile: int) -> np.ndarray:
    """G g G^T for every channel pair, computed in float64: [a*a, K, C]; declines if it overflows float32."""
    rows, columns = (_weight(tile, side) if side > 1 else np.ones((1, 1)) for side in weight.shape[2:])
    half = np.einsum("ai,kcij->akcj", rows, weight.astype(np.float64), optimize=True)
    full = np.einsum("akcj,bj->abkc", half, columns, optimize=True)
    with np.errstate(over="ignore"):
        narrow = np.ascontiguousarray(full.reshape(-1, *weight.shape[:2]), np.float32)
    if not np.isfinite(narrow).all():
        raise Decline("the transformed weights overflow in float32")
    return narrow
