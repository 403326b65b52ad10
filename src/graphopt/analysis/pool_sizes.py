"""The number of windows of a pool along an axis: by the standard's inference, and by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.ir import Node
from graphopt.records import dataclass


def spatial(node: Node, name: str, count: int, default: int) -> tuple[int, ...]:
    """An attribute with one number per spatial axis; the default if it is missing or of another length."""
    given = node.attr(name)
    return tuple(given) if given and len(given) == count else (default,) * count


@dataclass(frozen=True, slots=True)
class PoolAxis:
    """The window of a pool along one axis.

    Attributes:
        kernel: its number of elements.
        wide: its dilated extent.
        stride: its stride.
        head: padding at the start.
        tail: padding at the end.
        ceil: whether the last window may exceed the padding.
        same: "SAME_UPPER" or "SAME_LOWER" if the padding is automatic, else "".
    """

    kernel: int
    wide: int
    stride: int
    head: int
    tail: int
    ceil: bool
    same: str

    def figures(self) -> tuple[int, ...]:
        """All settings as numbers."""
        same = ("", "SAME_UPPER", "SAME_LOWER").index(self.same)
        return self.kernel, self.wide, self.stride, self.head, self.tail, int(self.ceil), same


def pool_window(node: Node, axis: int, count: int) -> PoolAxis:
    """The window of a pool along one of its spatial axes, of which there are `count`."""
    kernel, stride = node.attr("kernel_shape")[axis], spatial(node, "strides", count, 1)[axis]
    wide = (kernel - 1) * spatial(node, "dilations", count, 1)[axis] + 1
    auto = node.attr("auto_pad", "NOTSET")
    pads = spatial(node, "pads", 2 * count, 0) if auto == "NOTSET" else (0,) * (2 * count)
    ceil, same = node.attr("ceil_mode", 0) == 1, auto if auto.startswith("SAME") else ""
    return PoolAxis(kernel, wide, stride, pads[axis], pads[axis + count], ceil, same)


def pool_steps(node: Node, size: int, axis: int, count: int) -> tuple[int, int]:
    """The number of windows of a pool along a spatial axis: by the standard's inference, and by ONNX Runtime.

    Args:
        node: the pool.
        size: the size of the axis.
        axis: the index of the spatial axis.
        count: the number of spatial axes.
    """
    window = pool_window(node, axis, count)
    if not window.same:
        padded = window.head + window.tail
        return _standard_steps(node, size, window, window.head, padded), _runtime_steps(
            size, window, window.head, padded
        )
    upper = window.same == "SAME_UPPER"
    padding = max(window.wide - (size % window.stride or window.stride), 0)
    standard = _standard_steps(node, size, window, padding // 2 if upper else padding - padding // 2, padding)
    needed = (-(-size // window.stride) - 1) * window.stride + window.kernel - size
    return standard, _runtime_steps(size, window, _towards_zero(needed if upper else needed + 1, 2), needed)


_CLIPPED = 22
"""From this opset on, the standard too does not count a last window that would start in the padding."""


def _standard_steps(node: Node, size: int, window: PoolAxis, head: int, padding: int) -> int:
    room, stride = size + padding - window.wide, window.stride
    if not window.ceil or node.graph.opset() < _CLIPPED:
        return _rounded(room, stride, window.ceil) + 1
    steps = _towards_zero(room + stride - 1, stride) + 1
    return steps - 1 if (steps - 1) * stride >= size + head else steps


def _runtime_steps(size: int, window: PoolAxis, head: int, padding: int) -> int:
    steps = _rounded(size + padding - window.wide, window.stride, window.ceil) + 1
    return steps - 1 if window.ceil and (steps - 1) * window.stride >= size + head else steps


def _rounded(room: int, stride: int, ceil: bool) -> int:
    return -(-room // stride) if ceil else _towards_zero(room, stride)


def _towards_zero(a: int, b: int) -> int:
    return a // b if a >= 0 else -(-a // b)


def pool_may_differ(node: Node) -> bool:
    """Whether the two numbers may differ for some size."""
    return bool(node.attr("ceil_mode", 0)) or is_dilated_beyond_padding(node)


def is_dilated_beyond_padding(node: Node) -> bool:
    """Whether a pool has dilations and automatic padding, which the runtime computes without dilations."""
    same = node.attr("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")
    return same and any(d != 1 for d in node.attr("dilations") or ())


def axes_that_differ(node: Node, sizes: Sequence[object]) -> list[int]:
    """The spatial axes of known size along which the two numbers differ.

    Args:
        node: the pool.
        sizes: the spatial sizes of its operand, integers if they are known.
    """
    if not pool_may_differ(node):
        return []
    known = [(axis, size) for axis, size in enumerate(sizes) if type(size) is int]
    return [axis for axis, size in known if len(set(pool_steps(node, size, axis, len(sizes)))) > 1]
