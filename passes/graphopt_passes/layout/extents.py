"""Batch and spatial sizes as expressions, so that equal sizes are known to be equal even when they are dynamic.

An extent is a number, a name, `(input, stride, offset)` for floor((input + offset) / stride) + 1, the size that every
convolution and pool without ceil mode gives, or `(None, input, offset)` for input + offset. Two are equal if they are
written alike: a 3x3 convolution with padding 1 and a 1x1 one without, both of stride 2 over the same value, give the
same expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphopt.ir import Node, Value

Extent = Any
Extents = tuple[Extent, Extent, Extent]
"""Batch, height, width."""

_UNKNOWN_SIDE = 56
_UNKNOWN_IMAGE = 224
_FEW_CHANNELS = 4


def window(size: Extent, stride: int, offset: int) -> Extent:
    """floor((size + offset) / stride) + 1."""
    if isinstance(size, int):
        return (size + offset) // stride + 1
    if stride != 1:
        return (size, stride, offset)
    if isinstance(size, tuple) and size[0] is None:
        size, offset = size[1], offset + size[2]
    return size if offset == -1 else (None, size, offset + 1)


def declared(value: Value) -> Extents | None:
    """The extents that the value's type tells; unknown ones get a name of their own."""
    shape = value.shape
    if shape is None or len(shape) != 4:
        return None
    named = [dim if dim is not None else f"?{value.name}:{axis}" for axis, dim in enumerate(shape)]
    return named[0], named[2], named[3]


def anonymous(value: Value) -> Extents:
    """Extents of a value of which nothing is known."""
    return f"?{value.name}:0", f"?{value.name}:2", f"?{value.name}:3"


def refine(derived: Extents, value: Value) -> Extents:
    """Derived extents, with numbers from the value's type where it has them."""
    stated = declared(value)
    if stated is None:
        return derived
    batch, height, width = (s if isinstance(s, int) else d for s, d in zip(stated, derived, strict=True))
    return batch, height, width


def sliding(node: Node, source: Extents, kernel: Sequence[int]) -> Extents | None:
    """Extents after a window of `kernel` has slid over `source`; None when the node rounds up."""
    if node.attr("ceil_mode", 0):
        return None
    strides = node.attr("strides") or (1, 1)
    dilations = node.attr("dilations") or (1, 1)
    pads = node.attr("pads") or (0, 0, 0, 0)
    auto = node.attr("auto_pad", b"NOTSET")
    auto = auto.decode() if isinstance(auto, bytes) else auto
    sizes = []
    for axis in (0, 1):
        span = (kernel[axis] - 1) * dilations[axis] + 1
        padding = 0 if auto == "VALID" else pads[axis] + pads[axis + 2]
        offset = -1 if auto.startswith("SAME") else padding - span
        sizes.append(window(source[axis + 1], strides[axis], offset))
    return source[0], sizes[0], sizes[1]


def nominal(extent: Extent, side: int = _UNKNOWN_SIDE) -> int:
    """A number to reckon with where a size is dynamic."""
    if isinstance(extent, int):
        return max(extent, 1)
    if isinstance(extent, tuple):
        if extent[0] is None:
            return max(nominal(extent[1], side) + int(extent[2]), 1)
        return max((nominal(extent[0], side) + int(extent[2])) // int(extent[1]) + 1, 1)
    return side


def pixels(extents: Extents, channels: int) -> int:
    """Positions of a value of these extents; a dynamic batch counts as one."""
    side = _UNKNOWN_IMAGE if channels <= _FEW_CHANNELS else _UNKNOWN_SIDE
    batch = extents[0] if isinstance(extents[0], int) else 1
    return max(batch, 1) * nominal(extents[1], side) * nominal(extents[2], side)
