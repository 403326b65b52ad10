"""How many windows of a pool there are along an axis: to the standard's inference, and to ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.ir import Node
from graphopt.records import dataclass


def spatial(node: Node, name: str, count: int, default: int) -> tuple[int, ...]:
    """An attribute with a number for each spatial axis; the default where it is missing or does not fit."""
    given = node.attr(name)
    return tuple(given) if given and len(given) == count else (default,) * count


@dataclass(frozen=True, slots=True)
class PoolAxis:
    """How the window of a pool moves along one axis.

    Attributes:
        kernel: how many elements it has.
        wide: how far they reach.
        stride: how far it moves.
        head: padding before the axis.
        tail: padding behind it.
        ceil: whether the last one may end behind the padding.
        same: "SAME_UPPER" or "SAME_LOWER" where the padding is to be worked out, else "".
    """

    kernel: int
    wide: int
    stride: int
    head: int
    tail: int
    ceil: bool
    same: str

    def figures(self) -> tuple[int, ...]:
        """All of it as numbers."""
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
    """How many windows a pool has along a spatial axis: to the standard's inference, and to ONNX Runtime.

    Args:
        node: the pool.
        size: the size of the axis.
        axis: which of the spatial axes it is.
        count: how many there are.
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
"""From this opset on a last window that would start in the padding does not count to the standard either."""


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
    """Whether there are sizes of which the two make different ones."""
    return bool(node.attr("ceil_mode", 0)) or is_dilated_beyond_padding(node)


def is_dilated_beyond_padding(node: Node) -> bool:
    """Whether a pool has dilations, and padding that is worked out: the runtime works it out without them."""
    same = node.attr("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")
    return same and any(d != 1 for d in node.attr("dilations") or ())


def axes_that_differ(node: Node, sizes: Sequence[object]) -> list[int]:
    """The spatial axes along which the two make different sizes.

    Args:
        node: the pool.
        sizes: the spatial sizes of what it reads, integers where they are known.
    """
    if not pool_may_differ(node):
        return []
    known = [(axis, size) for axis, size in enumerate(sizes) if type(size) is int]
    return [axis for axis, size in known if len(set(pool_steps(node, size, axis, len(sizes)))) > 1]
