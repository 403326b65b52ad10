"""Tensors of positions, which exporters write to index along several axes at once.

At `[i, j, ...]`, such a tensor holds `start + a * i + b * j + ...`; start and steps may depend on sizes. Examples are
`Range`, its reshaped and expanded forms, and sums and multiples of them; their lengths need not be known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import TensorProto

from graphopt.analysis.disagreements import BROKEN
from graphopt.analysis.shapes.dim import Size, TooComplexError, at_least
from graphopt.analysis.shapes.engine import Shape, ShapeAnalysis
from graphopt.ir import Node, Value
from graphopt.records import dataclass

_INTEGERS = frozenset({TensorProto.INT64, TensorProto.INT32})
_MOST_ELEMENTS = 1 << 18
_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class Positions:
    """The contents of a tensor of positions.

    Attributes:
        start: the first element.
        steps: the difference of adjacent elements along each axis; 0 along axes of size 1.
    """

    start: Size
    steps: tuple[Size, ...]


class PositionAnalysis:
    """Finds tensors of positions in a model.

    A claim holds for every successful run, for all sizes including 0, under the first assumption of `ShapeAnalysis`.
    """

    def __init__(self, shapes: ShapeAnalysis) -> None:
        """Use the shape analysis of the same model."""
        self.shapes = shapes
        self._known: dict[Value, Positions | None] = {}

    def of(self, value: Value | None, depth: int = 0) -> Positions | None:
        """The positions in a value; None if it is not known to be a tensor of positions."""
        if value is None or value.dtype not in _INTEGERS or depth > _DEEPEST:
            return None
        if value not in self._known:
            try:
                self._known[value] = self._settled(value, self._work_out(value, depth))
            except (TooComplexError, *BROKEN):
                self._known[value] = None
        return self._known[value]

    def _work_out(self, value: Value, depth: int) -> Positions | None:
        shape = self.shapes.shape(value)
        if shape is None:
            return None
        tensor = value.constant_tensor
        if tensor is not None:
            return of_numbers(tensor.array()) if 1 <= tensor.numel <= _MOST_ELEMENTS else None
        sizes = self.shapes.sizes(value)
        if sizes is not None and len(sizes) == 1:
            return Positions(sizes[0], (0,) * len(shape))
        node = value.producer
        rule = _RULES.get(node.op) if node is not None else None
        return rule(self, node, shape, depth + 1) if node is not None and rule is not None else None

    def _settled(self, value: Value, found: Positions | None) -> Positions | None:
        """The same positions with steps of 0 along axes of size 1, so that they can be broadcast."""
        shape = self.shapes.shape(value)
        if found is None or shape is None or len(shape) != len(found.steps):
            return None
        return Positions(found.start, tuple(0 if d == 1 else s for d, s in zip(shape, found.steps, strict=True)))

    def covers(self, positions: Positions, shape: Shape, size: Size) -> bool:
        """Whether a tensor holds 0, 1, 2, ..., size - 1 in row-major order.

        Args:
            positions: its contents.
            shape: its shape.
            size: the expected number of elements.
        """
        total: Size = 1
        for dim, step in zip(reversed(shape), reversed(positions.steps), strict=True):
            if dim != 1 and step != total:
                return False
            total = total * dim
        return positions.start == 0 and total == size


_LONGEST_STEP = 1 << 40
"""No array has so many elements, and no multiple of such a step overflows."""


def of_numbers(array: np.ndarray) -> Positions | None:
    """The positions in an array of integers; None if its contents have another form.

    Args:
        array: an array of at least one integer.
    """
    start = array.reshape(-1)[0]
    steps = []
    for axis, size in enumerate(array.shape):
        at = [0] * array.ndim
        at[axis] = min(1, size - 1)
        steps.append(int(array[tuple(at)]) - int(start))
    wanted = np.asarray(int(start), np.int64)
    if any(abs(step) > _LONGEST_STEP for step in steps):
        return None
    for axis, (size, step) in enumerate(zip(array.shape, steps, strict=True)):
        wanted = wanted + step * np.arange(size).reshape([-1 if a == axis else 1 for a in range(array.ndim)])
    return Positions(int(start), tuple(steps)) if np.array_equal(wanted.reshape(array.shape), array) else None


def _range(known: PositionAnalysis, node: Node, shape: Shape, depth: int) -> Positions | None:
    start, step = (known.shapes.sizes(node.input(index)) for index in (0, 2))
    return Positions(start[0], (step[0],)) if start and step and len(shape) == 1 else None


def _same(known: PositionAnalysis, node: Node, shape: Shape, depth: int) -> Positions | None:
    return known.of(node.input(0), depth)


def _reshaped(known: PositionAnalysis, node: Node, shape: Shape, depth: int) -> Positions | None:
    """A reshape that adds or removes axes of size 1 only."""
    source = known.of(node.input(0), depth)
    before = known.shapes.shape(node.inputs[0]) if node.inputs[0] is not None else None
    if source is None or before is None or wide(before) != wide(shape):
        return None
    steps = iter([step for dim, step in zip(before, source.steps, strict=True) if dim != 1])
    return Positions(source.start, tuple(0 if dim == 1 else next(steps) for dim in shape))


def wide(shape: Sequence[Size]) -> list[Size]:
    """The dimensions of a shape except those known to be 1."""
    return [dim for dim in shape if dim != 1]


def _transposed(known: PositionAnalysis, node: Node, shape: Shape, depth: int) -> Positions | None:
    source = known.of(node.input(0), depth)
    perm = node.attr("perm") or tuple(range(len(shape)))[::-1]
    return Positions(source.start, tuple(source.steps[axis] for axis in perm)) if source is not None else None


def _expanded(known: PositionAnalysis, node: Node, shape: Shape, depth: int) -> Positions | None:
    return _broadcast(known, node.input(0), shape, depth)


def _broadcast(known: PositionAnalysis, value: Value | None, shape: Shape, depth: int) -> Positions | None:
    """The positions of an operand broadcast to a shape."""
    source = known.of(value, depth)
    before = known.shapes.shape(value) if value is not None else None
    if source is None or before is None or len(before) > len(shape):
        return None
    offset = len(shape) - len(before)
    if any(dim not in (1, wanted) for dim, wanted in zip(before, shape[offset:], strict=True)):
        return None
    return Positions(source.start, (0,) * offset + source.steps)


def _sum(sign: int) -> Callable[[PositionAnalysis, Node, Shape, int], Positions | None]:
    def rule(known: PositionAnalysis, node: Node, shape: Shape, depth: int) -> Positions | None:
        one, two = (_broadcast(known, node.input(index), shape, depth) for index in (0, 1))
        if one is None or two is None:
            return None
        steps = tuple(a + b * sign for a, b in zip(one.steps, two.steps, strict=True))
        return Positions(one.start + two.start * sign, steps)

    return rule


def _multiple(known: PositionAnalysis, node: Node, shape: Shape, depth: int) -> Positions | None:
    one, two = (_broadcast(known, node.input(index), shape, depth) for index in (0, 1))
    if one is None or two is None:
        return None
    if any(step != 0 for step in one.steps):
        one, two = two, one
    if any(step != 0 for step in one.steps):
        return None
    return Positions(two.start * one.start, tuple(step * one.start for step in two.steps))


def _cut(known: PositionAnalysis, node: Node, shape: Shape, depth: int) -> Positions | None:
    """A `Slice` with known, non-negative starts and positive steps."""
    source = known.of(node.input(0), depth)
    columns = [known.shapes.sizes(node.input(index)) for index in (1, 3, 4)]
    starts = columns[0]
    if source is None or starts is None or any(
        c is None and node.input(i) is not None for i, c in zip((1, 3, 4), columns, strict=True)
    ):  # fmt: skip
        return None
    axes = columns[1] or list(range(len(starts)))
    steps = columns[2] or [1] * len(starts)
    first, factors = source.start, list(source.steps)
    for begin, axis, step in zip(starts, axes, steps, strict=True):
        if not isinstance(axis, int) or not at_least(begin, 0) or not at_least(step, 1):
            return None
        first = first + factors[axis] * begin
        factors[axis] = factors[axis] * step
    return Positions(first, tuple(factors))


_RULES: dict[str, Callable[[PositionAnalysis, Node, Shape, int], Positions | None]] = {
    "Add": _sum(1),
    "Cast": _same,
    "Expand": _expanded,
    "Flatten": _reshaped,
    "Identity": _same,
    "Mul": _multiple,
    "Range": _range,
    "Reshape": _reshaped,
    "Slice": _cut,
    "Squeeze": _reshaped,
    "Sub": _sum(-1),
    "Transpose": _transposed,
    "Unsqueeze": _reshaped,
}
