"""Convolutions in NCHW by Winograd's algorithm: the operators that compute them."""

from __future__ import annotations

import numpy as np

from graphopt.operators.builder import with_operand
from graphopt.rewrite import Fired, Rewriter, Value
from graphopt_passes.algorithm.layer import PlainLayer
from graphopt_passes.algorithm.transforms import input_filters, output_matrix, transformed_weight
from graphopt_passes.algorithm.work import check_count
from graphopt_passes.shared import Shared


class PlainBuilder(Shared):
    """Builds layers for a pass, with constants that several layers share built once per graph.

    Attributes:
        plain: whether to use standard operators only.
    """

    def __init__(self, rw: Rewriter, plain: bool) -> None:
        super().__init__(rw)
        self.plain = plain

    def build(self, layer: PlainLayer, tile: int) -> Fired:
        """Replace a layer's `Conv`, and the `Relu` after it, with Winograd's algorithm for tiles of size `tile`."""
        self.begin()
        weight = transformed_weight(layer.kernel, tile)
        result = self._edges(layer, tile, self._tiles_out(layer, tile, weight))
        fired = self.rw.replace(layer.relu or layer.node, [result], detail=f"F({tile}x{tile},3x3)")
        self.keep()
        return fired

    def _tiles_in(self, layer: PlainLayer, tile: int) -> Value:
        """The input transform, with every channel as a separate image: [N*C, a*a, rows, columns]."""
        height, width = layer.source
        rows, columns = layer.tiles(tile)
        top, left, _, _ = layer.pads
        below, right = tile * rows + 2 - height - top, tile * columns + 2 - width - left
        batch = -1 if layer.batch is None else layer.batch * layer.inputs
        images = self._reshape(layer.x, batch, 1, height, width)
        filters = self._constant(layer, "winograd_input", tile, input_filters(tile))
        pads, size = [top, left, below, right], tile + 2
        return self.rw.op("Conv", images, filters, kernel_shape=[size, size], strides=[tile, tile], pads=pads)

    def _tiles_out(self, layer: PlainLayer, tile: int, weight: np.ndarray) -> Value:
        """Products and output transform; the images of a batch share the axis of tiles: [N, m*m*K, rows, columns]."""
        area, wide = (tile + 2) ** 2, tile * tile * layer.outputs
        rows, columns = layer.tiles(tile)
        tiles = rows * columns
        batch = layer.batch if layer.batch is not None else -1
        seen = self._tiles_in(layer, tile)
        if batch == 1:
            split = self._reshape(seen, layer.inputs, area, tiles)
            moved = self.rw.op("Transpose", split, perm=[1, 0, 2])
        else:
            split = self._reshape(seen, batch, layer.inputs, area, tiles)
            turned = self.rw.op("Transpose", split, perm=[2, 1, 0, 3])
            moved = self._reshape(turned, area, layer.inputs, max(batch * tiles, -1))
        product = self.rw.op("MatMul", self._constant(layer, layer.weight, tile, weight), moved)
        flat = self._reshape(product, area, max(layer.outputs * batch * tiles, -1))
        if batch == -1:
            return self._open_result(layer, tile, flat)
        result = self._transformed(
            layer, tile, flat, self._bias(layer, 1, batch * tiles, (1, -1)), layer.relu is not None
        )
        if batch > 1:
            parts = self._reshape(result, wide, batch, tiles)
            result = self.rw.op("Transpose", parts, perm=[1, 0, 2])
        return self._reshape(result, batch, wide, rows, columns)

    def _open_result(self, layer: PlainLayer, tile: int, flat: Value) -> Value:
        """The result for an open batch, for which the bias cannot be expanded in advance, and is added afterwards."""
        wide = tile * tile * layer.outputs
        rows, columns = layer.tiles(tile)
        late = layer.bias is not None and layer.relu is not None
        result = self._transformed(layer, tile, flat, None, layer.relu is not None and not late)
        parts = self._reshape(result, wide, -1, rows * columns)
        turned = self.rw.op("Transpose", parts, perm=[1, 0, 2])
        image = self._reshape(turned, -1, wide, rows, columns)
        bias = self._bias(layer, tile * tile, 1, (-1, 1, 1))
        image = with_operand(self.rw, "Add", image, bias)
        return self.rw.op("Relu", image) if late else image

    def _transformed(self, layer: PlainLayer, tile: int, flat: Value, bias: Value | None, relu: bool) -> Value:
        """The output transform with bias and activation: [m*m, K*N*tiles]."""
        matrix = self._constant(layer, "winograd_output", tile, output_matrix(tile))
        if relu and not self.plain:
            return self.rw.op("FusedGemm", matrix, flat, bias, domain="com.microsoft", activation="Relu")
        result = self.rw.op("Gemm", matrix, flat, bias)
        return self.rw.op("Relu", result) if relu else result

    def _edges(self, layer: PlainLayer, tile: int, tiles: Value) -> Value:
        """Assemble an image from tiles, and crop it at its edges."""
        image = self.rw.op("DepthToSpace", tiles, blocksize=tile, mode="DCR")
        (height, width), (rows, columns) = layer.size, layer.tiles(tile)
        axes = [axis for axis, ragged in ((2, rows * tile > height), (3, columns * tile > width)) if ragged]
        if not axes:
            return image
        starts, ends = np.zeros(len(axes), np.int64), np.array([(height, width)[axis - 2] for axis in axes], np.int64)
        return self.rw.op("Slice", image, starts, ends, np.array(axes, np.int64))

    def _bias(self, layer: PlainLayer, outer: int, inner: int, shape: tuple[int, ...]) -> Value | None:
        """The bias, each number repeated `inner` times, and the whole `outer` times."""
        if layer.bias is None:
            return None
        check_count(len(layer.bias) * inner * outer, "biases", 1 << 22)
        spread = np.tile(np.repeat(layer.bias.astype(np.float32), inner), outer).reshape(shape)
        return self.rw.constant(spread, like=layer.node.input(2))

    def _constant(self, layer: PlainLayer, what: Value | str, tile: int, array: np.ndarray) -> Value:
        name = what if isinstance(what, str) else f"{what.name}_winograd"
        key = (layer.node.graph, what, tile)
        return self.once(key, lambda: self.rw.constant(array, like=f"{name}{tile}"))

    def _reshape(self, value: Value, *shape: int) -> Value:
        return self.rw.op("Reshape", value, shape=shape)
