"""Winograd convolution in blocked layout: which layers qualify, and the operators that compute them.

A blocked value is [C / b, H, W, b] in memory. `Gather` moves rows of b numbers: one pixel of one channel block.
Tiles are rows too: the input transform computes [a * a, C / b, tiles, b] by two matrix products, a 1x1 convolution of
a * a groups multiplies that with the weights, and the output transform, a matrix product with bias and activation,
computes [m * m, K / b, tiles, b]. A `Gather` of these rows forms the image, or the tiles of the next layer. A row of
zeros serves as padding. For kernels of one row or column, each transform is one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto

from graphopt.ir import Graph, Node, TensorType, Value
from graphopt.operators.builder import with_operand
from graphopt.records import dataclass
from graphopt.rewrite import Decline, Fired, Rewriter
from graphopt_passes.algorithm.layer import Layer, checked, extents, moves_of
from graphopt_passes.algorithm.transforms import TILES_OF, Filtering, input_rows, output_rows, transformed_weight
from graphopt_passes.algorithm.work import check_count
from graphopt_passes.layout.activations import ACTIVATIONS
from graphopt_passes.layout.blocks import DOMAIN
from graphopt_passes.layout.weights import grouped_blocked
from graphopt_passes.shared import Shared

FLOAT = TensorProto.FLOAT

FUSED = ("Relu", "LeakyRelu", "Sigmoid", "Tanh")
"""Activations that `FusedGemm` supports."""


@dataclass(frozen=True, slots=True, eq=False)
class BlockedLayer(Layer):
    """A blocked convolution whose kernel size has Winograd transform matrices."""

    block: int  # channels per block

    @property
    def residual(self) -> Value | None:
        return self.node.input(3)

    @property
    def activation(self) -> str | None:
        name: str | None = self.node.attr("activation")
        return name

    @property
    def form(self) -> tuple[Any, ...]:
        """The properties that determine a layer's index tables, besides the tile grid."""
        return self.inputs, self.outputs, self.sides, self.source, self.pads, self.batch, self.block, self.strides

    def grid(self, tile: int) -> Grid:
        """The layout of the layer's tiles."""
        return Grid(Filtering(tile, self.sides).outputs, *self.tiles(tile), self.batch or 1)

    def tables(self, tile: int) -> int:
        """Bytes of the index tables for the input tiles, the image and the residual operand."""
        form, grid = Filtering(tile, self.sides), self.grid(tile)
        height, width = self.size
        inward = form.area * self.inputs * grid.count
        image = grid.batch * self.outputs * height * width if tile > 1 else 0
        added = prod(form.outputs) * self.outputs * grid.count if self.residual is not None and tile > 1 else 0
        return 4 * (inward + image + added) // self.block


def read_blocked(node: Node, block: int) -> BlockedLayer:
    """Read a blocked `Conv`; declines without a reason if its kernel size has no Winograd algorithm."""
    x, weight = node.operand(0), node.operand(1)
    sides = weight.shape[2:] if weight.shape is not None and len(weight.shape) == 4 else None
    if sides not in TILES_OF:
        raise Decline
    pads, strides = moves_of(node, sides)
    kernel = weight.array()
    outputs, inputs = kernel.shape[:2]
    if not kernel.size or outputs % block or inputs % block:
        raise Decline("its {} input channels or its outputs are not a multiple of the block size", inputs)
    batch, source = extents(x)
    if node.attr("activation") not in (None, *ACTIVATIONS):
        raise Decline("its activation is {}", node.attr("activation"))
    return checked(BlockedLayer(node, unblocked(kernel, block), batch, source, pads, strides, block))


def unblocked(kernel: np.ndarray, block: int) -> np.ndarray:
    """OIHW from OIHWBiBo, see `graphopt_passes.layout.weights.both_blocked`."""
    outputs, inputs, height, width = kernel.shape
    split = kernel.reshape(outputs // block, inputs // block, height, width, block, block)
    return np.ascontiguousarray(split.transpose(0, 5, 1, 4, 2, 3)).reshape(kernel.shape)


@dataclass(frozen=True, slots=True)
class Grid:
    """The layout of a value's tiles.

    Attributes:
        tile: height and width of a tile.
        rows: rows of tiles.
        columns: columns of tiles.
        batch: images on the axis of tiles; 1 if the batch has its own axis.
    """

    tile: tuple[int, int]
    rows: int
    columns: int
    batch: int

    @property
    def count(self) -> int:
        """Number of tiles, padded where that is faster: blocked kernels are fastest with multiples of six."""
        tiles = self.batch * self.rows * self.columns
        return 6 if tiles == 4 else tiles + (tiles % 6 == 5)


@dataclass(frozen=True, slots=True)
class BlockRows:
    """A value as rows of b numbers, b the block size.

    Attributes:
        value: [rows, b], or [N, rows, b] where the batch is not fixed.
        grid: the layout of the tiles; None for an image.
        count: number of rows.
    """

    value: Value
    grid: Grid | None
    count: int


def image_rows(layer_size: tuple[int, int], blocks: int, grid: Grid | None, batch: int) -> np.ndarray:
    """The row index of every pixel: [batch, blocks, height, width]."""
    height, width = layer_size
    check_count(batch * blocks * height * width, "rows of pixels", 1 << 24)
    n, c, y, x = np.ogrid[:batch, :blocks, :height, :width]
    if grid is None:
        return np.asarray(((n * blocks + c) * height + y) * width + x)
    tall, wide = grid.tile
    place = (y % tall) * wide + x % wide
    within = (n * grid.rows + y // tall) * grid.columns + x // wide
    return np.asarray((place * blocks + c) * grid.count + within)


class BlockedBuilder(Shared):
    """Builds blocked layers for a pass; caches shared constants, and the values that exist as rows."""

    _layer: BlockedLayer

    def __init__(self, rw: Rewriter) -> None:
        super().__init__(rw)
        self._rows: dict[tuple[Graph, Value], BlockRows] = {}
        self._fresh_rows: dict[tuple[Graph, Value], BlockRows] = {}
        self._batches: dict[Value, Value] = {}

    def build(self, layer: BlockedLayer, tile: int) -> Fired:
        """Replace the `Conv` of a layer with Winograd's algorithm for output tiles of size `tile`."""
        rw = self.rw
        self.begin()
        self._fresh_rows, self._layer = {}, layer
        if layer.residual is not None and (layer.residual.graph is not layer.node.graph):
            raise Decline("its residual operand belongs to another graph")
        form = Filtering(tile, layer.sides)
        if tile == 1:
            return rw.replace(layer.node, [self._taps(layer, form)], detail=str(form))
        if layer.strides != (1, 1):
            raise Decline("its strides are {}", layer.strides)
        if tile not in TILES_OF[layer.sides]:
            raise Decline("there is no {}", form)
        weight = transformed_weight(layer.kernel, tile)
        grid = layer.grid(tile)
        tiles = self._result(layer, form, grid, self._product(layer, form, grid, weight))
        image = self._image(layer, grid, tiles)
        fired = rw.replace(layer.node, [image], detail=str(form))
        self.keep()
        self._rows.update(self._fresh_rows)
        return fired

    def _taps(self, layer: BlockedLayer, form: Filtering) -> Value:
        """Gather all taps as channels of one 1x1 convolution, whose kernel is faster for images of few pixels."""
        grid = Grid((1, 1), *layer.size, 1)
        rows, places = self._tiles(layer, grid, padded=any(layer.pads))
        seen = self._reshape(self._gather(rows, places), form.area * layer.inputs, *layer.size, batch=1)
        wide = layer.kernel.transpose(0, 2, 3, 1).reshape(layer.outputs, form.area * layer.inputs, 1, 1)
        weights = self._constant(layer.weight, "taps", lambda: grouped_blocked(wide, layer.block))
        attrs = {name: layer.node.attrs.get(name) for name in ("activation", "activation_params")}
        image = self.rw.op(
            "Conv", seen, weights, layer.node.input(2), layer.residual, domain=DOMAIN, kernel_shape=[1, 1], **attrs
        )
        image.type = TensorType(FLOAT, (1, layer.outputs, *layer.size))
        return image

    def _tiles(self, layer: BlockedLayer, grid: Grid, *, padded: bool = True) -> tuple[Value, Value]:
        """The rows of a layer's input, and the indices of the rows that form its tiles."""
        source = self._rows_of(layer.x, layer.inputs, layer.source, layer)
        key, rows = (source.grid, layer.form, grid), source.value
        places = self._constant("winograd_tiles", key, lambda: _gathered(layer, grid, source))
        if padded:
            whole = (self._graph(), "winograd_padded", rows)
            rows = self.once(whole, lambda: self._padded(source.value, layer))
        return rows, places

    def _product(self, layer: BlockedLayer, form: Filtering, grid: Grid, weight: np.ndarray) -> Value:
        """Input transform and product with the weights: [a*a * K/b * tiles, b]."""
        area, count = form.area, grid.count
        padded, places = self._tiles(layer, grid)
        seen = self._gather(padded, places)
        for axis, side in _transformed(form):
            matrix = self._matrix("winograd_input", side, input_rows(side), padded)
            seen = self.rw.op("MatMul", matrix, self._matrices(seen, form.inputs, axis, layer.inputs * count))
        moved = self._reshape(seen, area * layer.inputs, count, 1, batch=1)
        wide = weight.reshape(area * layer.outputs, layer.inputs, 1, 1)
        weights = self._constant(layer.weight, form.tile, lambda: grouped_blocked(wide, layer.block))
        product = self.rw.op(
            "Conv", moved, weights, self._bias(layer, form), domain=DOMAIN, kernel_shape=[1, 1], group=area
        )
        product.type = TensorType(FLOAT, (None if layer.is_open else 1, area * layer.outputs, count, 1))
        return product

    def _result(self, layer: BlockedLayer, form: Filtering, grid: Grid, product: Value) -> Value:
        """Output transform, residual sum and activation, as rows: [m*m * K/b * tiles, b]."""
        numbers, (rows, columns) = layer.outputs * grid.count, form.outputs
        (last, side), *first = _transformed(form)
        if first:
            # Transform columns first: then rows are the leading axis of one matrix, to which `Gemm` can add C.
            matrix = self._output(form, first[0][1], product)
            product = self.rw.op("MatMul", matrix, self._matrices(product, form.inputs, 1, numbers))
        matrix = self._output(form, side, product)
        rest = columns if first else 1
        product = self._matrices(product, (side, rest), 0, numbers)
        added = None
        if layer.residual is not None:
            added = self._flat(self._residual(layer, grid), form.outputs[last], rest * numbers)
        name, parameters = layer.activation, tuple(layer.node.attr("activation_params") or ())
        fused = not layer.is_open and name in FUSED
        if fused:
            named = {f"activation_{key}": number for key, number in _named(str(name), parameters).items()}
            result = self.rw.op("FusedGemm", matrix, product, added, domain="com.microsoft", activation=name, **named)
        elif not layer.is_open and added is not None:
            result = self.rw.op("Gemm", matrix, product, added)
        else:
            result = with_operand(self.rw, "Add", self.rw.op("MatMul", matrix, product), added)
        tiles = self._reshape(result, rows * columns * (layer.outputs // layer.block) * grid.count, layer.block)
        return tiles if fused or name is None else _applied(name, tiles, parameters, self.rw)

    def _output(self, form: Filtering, side: int, product: Value) -> Value:
        """The matrix of the output transform of an axis with `side` coefficients."""
        tile, kernel = form.tile, side - form.tile + 1
        return self._matrix("winograd_output", (tile, kernel), output_rows(tile, kernel), product)

    def _matrices(self, value: Value, sizes: tuple[int, int], axis: int, numbers: int) -> Value:
        """Reshape tiles of the given height and width to the matrices that a transform along `axis` multiplies."""
        height, width = sizes
        if axis == 0 or height == 1:
            side, rest = (height, width) if axis == 0 else (width, height)
            return self._flat(value, side, rest * numbers)
        return self._reshape(value, height, width, numbers)

    def _residual(self, layer: BlockedLayer, grid: Grid) -> Value:
        """The residual operand as tiles of the result's layout."""
        assert layer.residual is not None
        source = self._rows_of(layer.residual, layer.outputs, layer.size, layer)
        if source.grid == grid:
            return source.value
        places = self._constant("winograd_sum", (source.grid, layer.form, grid), lambda: _tiled(layer, grid, source))
        return self._gather(source.value, places)

    def _image(self, layer: BlockedLayer, grid: Grid, tiles: Value) -> Value:
        """Gather tiles into an image, [N, K, H, W] in blocks."""
        blocks = layer.outputs // layer.block
        places = self._constant(
            "winograd_image", (layer.form, grid), lambda: image_rows(layer.size, blocks, grid, grid.batch).ravel()
        )
        image = self._reshape(self._gather(tiles, places), layer.outputs, *layer.size, batch=grid.batch)
        image.type = TensorType(FLOAT, (layer.batch, layer.outputs, *layer.size))
        if layer.is_open:
            self._batches[image] = self._batch()
        rows = prod(grid.tile) * (layer.outputs // layer.block) * grid.count
        self._fresh_rows[self._graph(), image] = BlockRows(tiles, grid, rows)
        return image

    def _rows_of(self, value: Value, channels: int, size: tuple[int, int], layer: BlockedLayer) -> BlockRows:
        """The rows of a value: its tiles if an earlier layer computes them, else its pixels."""
        key = (self._graph(), value)
        known = self._rows.get(key) or self._fresh_rows.get(key)
        if known is not None and not (known.value.producer is not None and known.value.producer.removed):
            return known
        count = (layer.batch or 1) * channels // layer.block * size[0] * size[1]
        rows = self._fresh_rows[key] = BlockRows(self._reshape(value, count, layer.block), None, count)
        return rows

    def _padded(self, rows: Value, layer: BlockedLayer) -> Value:
        """Append a row of zeros, from which pixels outside the image are read."""
        if layer.is_open:
            return self.rw.op("Pad", rows, np.array([0, 0, 0, 0, 1, 0], np.int64))
        zeros = self._constant("winograd_zeros", layer.block, lambda: np.zeros((1, layer.block), np.float32))
        return self.rw.op("Concat", rows, zeros, axis=0)

    def _bias(self, layer: BlockedLayer, form: Filtering) -> Value | None:
        """The bias of the product, at point 1 of each axis: the output transform adds it to all elements of a tile.

        `Gemm` would broadcast a bias over its result in a separate pass, on one thread only.
        """
        numbers = layer.bias
        if numbers is None:
            return None
        spread = np.zeros((*form.inputs, layer.outputs), np.float32)
        spread[tuple(int(side > 1) for side in form.inputs)] = numbers
        return self.rw.constant(spread.ravel(), like=layer.node.input(2))

    def _matrix(self, what: str, key: object, array: np.ndarray, batched: Value) -> Value:
        """The matrix of a transform, expanded to an open batch: `MatMul` does not broadcast to an empty one."""
        matrix = self._constant(what, key, lambda: array)
        if not self._open():
            return matrix
        whole = (self._graph(), what, key, self._batch())
        return self.once(whole, lambda: self._spread(matrix, array.shape, batched))

    def _spread(self, matrix: Value, shape: tuple[int, ...], batched: Value) -> Value:
        first = self.rw.op("Slice", self.rw.op("Shape", batched), np.array([0], np.int64), np.array([1], np.int64))
        sizes = self.rw.op("Concat", first, np.array((1, *shape), np.int64), axis=0)
        return self.rw.op("Expand", matrix, sizes)

    def _batch(self) -> Value:
        """The value whose first axis is the open batch: the input of the first layer in a row of layers."""
        return self._batches.get(self._layer.x, self._layer.x)

    def _constant(self, what: Value | str, key: Any, make: Callable[[], np.ndarray]) -> Value:
        like = what if isinstance(what, str) else f"{what.name}_winograd"

        def build() -> Value:
            array = np.ascontiguousarray(make())
            if array.dtype.kind == "i":
                array = array.astype(np.int32 if array.max(initial=0) < 2**31 else np.int64)
            return self.rw.constant(array, like=like)

        return self.once((self._graph(), what, key), build)

    def _graph(self) -> Graph:
        return self._layer.node.graph

    def _open(self) -> bool:
        return self._layer.is_open

    def _gather(self, rows: Value, places: Value) -> Value:
        return self.rw.op("Gather", rows, places, axis=1 if self._open() else 0)

    def _reshape(self, value: Value, *shape: int, batch: int | None = None) -> Value:
        """Reshape; an open batch stays the first axis, a fixed batch gets its own axis if `batch` is given."""
        lead = (0,) if self._open() else () if batch is None else (batch,)
        return self.rw.op("Reshape", value, np.array((*lead, *shape), np.int64))

    def _flat(self, value: Value, *shape: int) -> Value:
        return self._reshape(value, *((1, *shape) if self._open() else shape))


def _transformed(form: Filtering) -> list[tuple[int, int]]:
    """The transformed axes, each with the number of tile coefficients along it."""
    return [(axis, side) for axis, side in enumerate(form.inputs) if side > 1]


def _gathered(layer: BlockedLayer, grid: Grid, source: BlockRows) -> np.ndarray:
    """Row indices of the input tiles: [a*a * C/b * tiles]."""
    (tall, broad), (rows, columns) = grid.tile, layer.sides
    pixels = image_rows(layer.source, layer.inputs // layer.block, source.grid, grid.batch)
    (height, width), (top, left, _, _) = layer.source, layer.pads
    down, across = (step * side for step, side in zip(layer.strides, grid.tile, strict=True))
    below = max(down * (grid.rows - 1) + tall + rows - 1 - height - top, 0)
    right = max(across * (grid.columns - 1) + broad + columns - 1 - width - left, 0)
    wide = np.pad(pixels, ((0, 0), (0, 0), (top, below), (left, right)), constant_values=source.count)
    y = np.arange(tall + rows - 1)[:, None] + down * np.arange(grid.rows)
    x = np.arange(broad + columns - 1)[:, None] + across * np.arange(grid.columns)
    windows = wide[:, :, y[:, None, :, None], x[None, :, None, :]]  # n, c, i, j, rows, columns
    return _filled(windows.transpose(2, 3, 1, 0, 4, 5), grid.count)


def _tiled(layer: BlockedLayer, grid: Grid, source: BlockRows) -> np.ndarray:
    """Row indices of the result tiles: [m*m * K/b * tiles]."""
    tall, broad = grid.tile
    pixels = image_rows(layer.size, layer.outputs // layer.block, source.grid, grid.batch)
    (height, width), (rows, columns) = layer.size, (grid.rows, grid.columns)
    ragged = ((0, 0), (0, 0), (0, tall * rows - height), (0, broad * columns - width))
    wide = np.pad(pixels, ragged)  # elements beyond the edges are not used
    split = wide.reshape(*wide.shape[:2], rows, tall, columns, broad)
    return _filled(split.transpose(3, 5, 1, 0, 2, 4), grid.count)


def _filled(places: np.ndarray, count: int) -> np.ndarray:
    """Join the last three axes to one of `count` tiles, with row 0 in unused tiles, and flatten."""
    split = places.reshape(*places.shape[:3], -1)
    return np.pad(split, [(0, 0)] * 3 + [(0, count - split.shape[3])]).ravel()


def _named(name: str, parameters: tuple[float, ...]) -> dict[str, Any]:
    return dict(zip(ACTIVATIONS[name], parameters, strict=False))


def _applied(name: str, value: Value, parameters: tuple[float, ...], rw: Rewriter) -> Value:
    """An activation as a separate operator."""
    if name == "HardSwish":
        return rw.op("Mul", value, rw.op("HardSigmoid", value, alpha=1 / 6, beta=0.5))
    named = _named(name, parameters)
    if name == "Clip":
        named = {limit: np.array(number, np.float32) for limit, number in named.items()}
    return rw.op(name, value, **named)
