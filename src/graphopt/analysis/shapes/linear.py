"""Output shapes of matrix products, convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from graphopt.analysis.kernels import Unsupported
from graphopt.analysis.pool_sizes import pool_may_differ, pool_steps, pool_window
from graphopt.analysis.shapes.dim import Size, at_least, divide
from graphopt.analysis.shapes.engine import Rule, Shape, ShapeAnalysis
from graphopt.ir import Node


def _matmul_shape(analysis: ShapeAnalysis, a: Shape, b: Shape) -> Shape:
    if not a or not b:
        raise Unsupported("a scalar operand")
    rows = a[-2:-1] if len(a) > 1 else ()
    columns = b[-1:] if len(b) > 1 else ()
    return analysis.broadcast([a[:-2], b[:-2]]) + rows + columns


def _matmul(analysis: ShapeAnalysis, node: Node) -> Shape:
    return _matmul_shape(analysis, analysis.need(node, 0), analysis.need(node, 1))


def _quantized_matmul(analysis: ShapeAnalysis, node: Node) -> Shape:
    return _matmul_shape(analysis, analysis.need(node, 0), analysis.need(node, 3))


def _gemm(analysis: ShapeAnalysis, node: Node) -> Shape:
    a, b = analysis.need(node, 0), analysis.need(node, 1)
    if len(a) != 2 or len(b) != 2:
        raise Unsupported("not matrices")
    return a[1 if node.attr("transA", 0) else 0], b[0 if node.attr("transB", 0) else 1]


def _fused_matmul(analysis: ShapeAnalysis, node: Node) -> Shape:
    a, b = analysis.need(node, 0), analysis.need(node, 1)
    if node.attr("transBatchA", 0) or node.attr("transBatchB", 0) or len(a) < 2 or len(b) < 2:
        raise Unsupported("transposed batches")
    a = (*a[:-2], a[-1], a[-2]) if node.attr("transA", 0) else a
    b = (*b[:-2], b[-1], b[-2]) if node.attr("transB", 0) else b
    return _matmul_shape(analysis, a, b)


def _einsum(analysis: ShapeAnalysis, node: Node) -> Shape:
    equation = node.attr("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if "." in equation or len(terms) != len(node.inputs):
        raise Unsupported("an ellipsis")
    dims: dict[str, Size] = {}
    for index, term in enumerate(terms):
        shape = analysis.need(node, index)
        if len(shape) != len(term):
            raise Unsupported("equation and ranks differ")
        for letter, dim in zip(term, shape, strict=True):
            # The runtime broadcasts dimensions of 1: a shared letter does not imply equal sizes.
            merged = analysis.symbols.broadcast(dims[letter], dim) if letter in dims else dim
            if merged is None:
                raise Unsupported("operands do not fit")
            dims[letter] = merged
    if not arrow:
        right = "".join(sorted(letter for letter in dims if left.count(letter) == 1))
    return tuple(dims[letter] for letter in right)


# Windows over the spatial axes


def _ints(node: Node, name: str, count: int, default: int) -> Sequence[int]:
    value = node.attr(name)
    if not value:
        return [default] * count
    if len(value) != count:
        raise Unsupported(f"{name} does not fit {count} spatial axes")
    return tuple(value)


def _windows(analysis: ShapeAnalysis, node: Node, spatial: Shape, kernel: Sequence[Size]) -> Shape:
    """The spatial dimensions of the result of a convolution."""
    count = len(spatial)
    if len(kernel) != count:
        raise Unsupported("the kernel does not fit the rank")
    strides = _ints(node, "strides", count, 1)
    dilations = _ints(node, "dilations", count, 1)
    auto_pad = node.attr("auto_pad", "NOTSET")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        ceil_div = analysis.symbols.ceil_div
        return tuple(ceil_div(dim, stride) for dim, stride in zip(spatial, strides, strict=True))
    pads = _ints(node, "pads", 2 * count, 0) if auto_pad == "NOTSET" else [0] * (2 * count)
    if {*map(type, spatial), *map(type, kernel)} == _NUMBERS:
        known = _fixed_windows((*spatial,), (*kernel,), (*strides,), (*dilations,), (*pads,))
        if known is not None:
            return known
    rooms = [d + pads[i] + pads[i + count] - (kernel[i] - 1) * dilations[i] - 1 for i, d in enumerate(spatial)]
    return tuple(_steps(analysis, room, stride) for room, stride in zip(rooms, strides, strict=True))


_NUMBERS = {int}


@lru_cache(maxsize=1024)
def _fixed_windows(
    spatial: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...],
    pads: tuple[int, ...],
) -> tuple[int, ...] | None:  # fmt: skip
    """`_windows` for fixed sizes; None if a result is not fixed, or a stride is not positive."""
    found = []
    for at, dim in enumerate(spatial):
        room, stride = dim + pads[at] + pads[at + len(spatial)] - (kernel[at] - 1) * dilations[at] - 1, strides[at]
        if stride <= 0 or room < -stride:
            return None
        found.append(room // stride + 1)
    return tuple(found)


def _steps(analysis: ShapeAnalysis, room: Size, stride: int) -> Size:
    """The number of windows that start in `room + 1` positions.

    If the window may be larger than the padded data, runtimes round differently (ONNX Runtime's convolutions and pools
    do): the result is then an unspecified function of the same numbers.
    """
    if at_least(room, -stride):
        return analysis.symbols.floor_div(room, stride) + 1
    return analysis.symbols.function("conv", room, stride)


def _pool_size(analysis: ShapeAnalysis, node: Node, dim: Size, axis: int, count: int) -> Size:
    """A spatial dimension of the result of a pool; for a size that is not fixed, unknown if it rounds up."""
    if isinstance(dim, int):
        return pool_steps(node, dim, axis, count)[1]
    symbols = analysis.symbols
    window = pool_window(node, axis, count)
    if pool_may_differ(node):
        return symbols.function("ceil", dim, *window.figures())
    if window.same:
        return symbols.ceil_div(dim, window.stride)
    room = dim + (window.head + window.tail - window.wide)
    if at_least(room, 0):
        return symbols.floor_div(room, window.stride) + 1
    return symbols.function("pool", room, window.stride)


def _conv_shape(analysis: ShapeAnalysis, node: Node, x: Shape, w: Shape) -> Shape:
    if len(x) < 3 or len(w) != len(x):
        raise Unsupported("ranks of data and weight")
    kernel = node.attr("kernel_shape") or w[2:]
    return x[0], w[0], *_windows(analysis, node, x[2:], kernel)


def _conv(analysis: ShapeAnalysis, node: Node) -> Shape:
    return _conv_shape(analysis, node, analysis.need(node, 0), analysis.need(node, 1))


def _quantized_conv(analysis: ShapeAnalysis, node: Node) -> Shape:
    x, w = analysis.need(node, 0), analysis.need(node, 3)
    if not node.domain or not node.attr("channels_last", 0):
        return _conv_shape(analysis, node, x, w)
    if len(x) < 3:
        raise Unsupported("the rank of the data")
    batch, channels, *image = _conv_shape(analysis, node, (x[0], x[-1], *x[1:-1]), w)
    return batch, *image, channels


def _pool(analysis: ShapeAnalysis, node: Node) -> list[Shape | None]:
    x = analysis.need(node, 0)
    count = len(x) - 2
    if count < 1 or len(node.attr("kernel_shape")) != count or node.attr("channels_last", 0):
        raise Unsupported("the kernel does not fit the rank, or channels last")
    shape: Shape = x[0], x[1], *(_pool_size(analysis, node, d, a, count) for a, d in enumerate(x[2:]))
    return [shape, shape]


def _global_pool(analysis: ShapeAnalysis, node: Node) -> Shape:
    x = analysis.need(node, 0)
    return x[:2] + (1,) * (len(x) - 2)


def _conv_transpose(analysis: ShapeAnalysis, node: Node) -> Shape:
    x, w = analysis.need(node, 0), analysis.need(node, 1)
    count = len(x) - 2
    if count < 1 or len(w) != len(x):
        raise Unsupported("ranks of data and weight")
    channels = w[1] * node.attr("group", 1)
    stated = node.attr("output_shape")
    if stated:
        return x[0], channels, *stated[-count:]
    strides = _ints(node, "strides", count, 1)
    auto_pad = node.attr("auto_pad", "NOTSET")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        return x[0], channels, *(dim * stride for dim, stride in zip(x[2:], strides, strict=True))
    dilations = _ints(node, "dilations", count, 1)
    pads = _ints(node, "pads", 2 * count, 0) if auto_pad == "NOTSET" else [0] * (2 * count)
    extra = _ints(node, "output_padding", count, 0)
    kernel = node.attr("kernel_shape") or w[2:]
    spatial = [
        (dim - 1) * strides[i] + extra[i] + (kernel[i] - 1) * dilations[i] + 1 - pads[i] - pads[i + count]
        for i, dim in enumerate(x[2:])
    ]
    return x[0], channels, *spatial


def _nchwc_reorder_input(analysis: ShapeAnalysis, node: Node) -> Shape:
    x = analysis.need(node, 0)
    if node.attr("channels_last", 0) or len(x) < 3:
        raise Unsupported("channels last")
    return x


def _nchwc_reorder_output(analysis: ShapeAnalysis, node: Node) -> Shape:
    x = analysis.need(node, 0)
    channels = node.attr("channels")
    if node.attr("channels_last", 0) or not channels or len(x) < 3:
        raise Unsupported("channels last")
    return x[0], channels, *x[2:]


def _col2im(analysis: ShapeAnalysis, node: Node) -> Shape:
    x = analysis.need(node, 0)
    image, block = analysis.sizes(node.input(1)), analysis.sizes(node.input(2))
    if image is None or block is None:
        raise Unsupported("image or block shape")
    area: Size = 1
    for size in block:
        area = area * size
    channels = divide(x[1], area)
    return x[0], analysis.fresh() if channels is None else channels, *image


RULES: dict[str, Rule] = {
    "AveragePool": _pool,
    "Col2Im": _col2im,
    "Conv": _conv,
    "ConvInteger": _conv,
    "ConvTranspose": _conv_transpose,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "GlobalAveragePool": _global_pool,
    "GlobalLpPool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "LpPool": _pool,
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "MaxPool": _pool,
    "QLinearConv": _quantized_conv,
    "QLinearMatMul": _quantized_matmul,
    "com.microsoft.nchwc::AveragePool": _pool,
    "com.microsoft.nchwc::Conv": _conv,
    "com.microsoft.nchwc::GlobalAveragePool": _global_pool,
    "com.microsoft.nchwc::GlobalMaxPool": _global_pool,
    "com.microsoft.nchwc::MaxPool": _pool,
    "com.microsoft.nchwc::ReorderInput": _nchwc_reorder_input,
    "com.microsoft.nchwc::ReorderOutput": _nchwc_reorder_output,
    "com.microsoft::DynamicQuantizeMatMul": _matmul,
    "com.microsoft::FusedConv": _conv,
    "com.microsoft::FusedGemm": _gemm,
    "com.microsoft::FusedMatMul": _fused_matmul,
    "com.microsoft::MatMulIntegerToFloat": _matmul,
    "com.microsoft::QLinearAveragePool": _pool,
    "com.microsoft::QLinearConv": _quantized_conv,
}
