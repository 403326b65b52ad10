"""Uniform tensors, whose elements are all equal, of any size: parts of masks of dynamic length."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from onnx import TensorProto

from graphopt.analysis.disagreements import BROKEN
from graphopt.analysis.kernels import Array, Unsupported, run_kernel
from graphopt.analysis.shapes.dim import Size, TooComplexError, at_least
from graphopt.analysis.shapes.engine import ShapeAnalysis
from graphopt.analysis.shapes.positions import PositionAnalysis
from graphopt.ir import Node, Tensor, Value

_MOST_ELEMENTS = 1 << 18
_DEEPEST = 64

_MOVES = frozenset({
    "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Slice", "Squeeze", "Tile",
    "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators whose results contain only elements of their first input."""

_COMPUTED = frozenset({
    "Add", "And", "Cast", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mul", "Neg",
    "Not", "Or", "Sub", "Xor",
})  # fmt: skip
"""Elementwise operators with exact kernels for integers and booleans."""

_WITH_ITSELF = {
    "Equal": True, "GreaterOrEqual": True, "LessOrEqual": True, "Greater": False, "Less": False, "Xor": False,
}  # fmt: skip
"""The result of comparing an integer or boolean with itself."""

_EXACT = frozenset({TensorProto.BOOL, TensorProto.INT64, TensorProto.INT32, TensorProto.UINT8, TensorProto.INT8})


class UniformAnalysis:
    """Finds uniform tensors in a model.

    A claim holds for every successful run, for all sizes, under the first assumption of `ShapeAnalysis`; for an empty
    tensor it means nothing.
    """

    def __init__(self, analyse: Callable[[], ShapeAnalysis]) -> None:
        """Start without any analysis, which runs on demand.

        Args:
            analyse: returns the shapes of the model, any of whose sizes may be 0.
        """
        self._analyse = analyse
        self._known: dict[Value, Array | None] = {}

    @cached_property
    def shapes(self) -> ShapeAnalysis:
        """The shape analysis of the model: a pass over all of it, which few queries need."""
        return self._analyse()

    @cached_property
    def positions(self) -> PositionAnalysis:
        """The analysis of tensors of positions."""
        return PositionAnalysis(self.shapes)

    def of(self, value: Value | None, depth: int = 0) -> Array | None:
        """The number in all elements of a value, as an array of rank 0; None if it is not known to be uniform."""
        if value is None or depth > _DEEPEST:
            return None
        if value not in self._known:
            try:
                self._known[value] = self._work_out(value, depth + 1)
            except (TooComplexError, Unsupported, *BROKEN):
                self._known[value] = None
        return self._known[value]

    def _work_out(self, value: Value, depth: int) -> Array | None:
        tensor = value.constant_tensor
        if tensor is not None:
            return _of_constant(tensor)
        node = value.producer
        if node is None or node.output(0) is not value or node.graph.opset() < 8:
            return None
        if node.op == "ConstantOfShape":
            fill = node.attr("value")
            return _of_constant(fill) if isinstance(fill, Tensor) else np.zeros((), np.float32)
        if node.op in _MOVES:
            return self.of(node.input(0), depth)
        return self._computed(node, depth) if node.op in _COMPUTED else None

    def _computed(self, node: Node, depth: int) -> Array | None:
        operands = [self.of(v, depth) for v in node.inputs]
        if all(operand is not None for operand in operands):
            return np.asarray(run_kernel(node, operands)[0]).reshape(())
        if node.op in ("And", "Or"):
            decides = node.op == "Or"
            return np.asarray(decides) if any(o is not None and bool(o) is decides for o in operands) else None
        if len(operands) != 2 or node.op not in _COMPARED:
            return None
        if node.inputs[0] is node.inputs[1] and node.inputs[0] is not None and node.inputs[0].dtype in _EXACT:
            return np.asarray(_WITH_ITSELF[node.op])
        return None if node.op == "Xor" else self._compared(node)

    def _compared(self, node: Node) -> Array | None:
        """The uniform result of comparing two tensors of positions, None if it is not uniform."""
        one, two = (self._bounds(value) for value in node.inputs)
        if one is None or two is None:
            return None
        answer = _COMPARED[node.op](at_least(one[0] - two[1], 0), at_least(one[0] - two[1], 1),
                                    at_least(two[0] - one[1], 0), at_least(two[0] - one[1], 1))  # fmt: skip
        return None if answer is None else np.asarray(answer)

    def _bounds(self, value: Value | None) -> tuple[Size, Size] | None:
        """The least and the largest element of a tensor of positions with non-negative steps."""
        if value is None or value.dtype != TensorProto.INT64 or not _counts(value):
            return None
        shape, found = self.shapes.shape(value), self.positions.of(value)
        if shape is None or found is None or not all(at_least(step, 0) for step in found.steps):
            return None
        last = found.start
        for dim, step in zip(shape, found.steps, strict=True):
            last = last + step * (dim - 1)
        return found.start, last


def _order(when_more: bool, strictly: bool) -> Callable[[bool, bool, bool, bool], bool | None]:
    """The result of a comparison, given whether a >= b, a > b, b >= a, b > a hold for all elements."""

    def answer(at_least_b: bool, above_b: bool, at_least_a: bool, above_a: bool) -> bool | None:
        yes, no = (above_b, at_least_a) if strictly else (at_least_b, above_a)
        if not when_more:
            yes, no = (above_a, at_least_b) if strictly else (at_least_a, above_b)
        return True if yes else False if no else None

    return answer


_COMPARED: dict[str, Callable[[bool, bool, bool, bool], bool | None]] = {
    "Equal": lambda _, above_b, __, above_a: False if above_a or above_b else None,
    "Greater": _order(when_more=True, strictly=True),
    "GreaterOrEqual": _order(when_more=True, strictly=False),
    "Less": _order(when_more=False, strictly=True),
    "LessOrEqual": _order(when_more=False, strictly=False),
    "Xor": lambda *_: None,
}


def _counts(value: Value) -> bool:
    """Whether a value is a range, a constant or a size, only moved since: sums and products might overflow."""
    for _ in range(_DEEPEST):
        node = value.producer
        if value.is_const or node is None or node.op in ("Range", "Shape", "Size"):
            return value.is_const or node is not None
        source = node.input(0)
        if node.op not in _MOVES or source is None:
            return False
        value = source
    return False


def _of_constant(tensor: Tensor) -> Array | None:
    if not 1 <= tensor.numel <= _MOST_ELEMENTS:
        return None
    array = tensor.array()
    if array.dtype.kind not in "biuf" or array.dtype.isbuiltin != 1:
        return None
    first = array.reshape(-1)[0]
    if not np.all(array == first) or np.any(np.signbit(array) != np.signbit(first)):
        return None  # NaN is not one number, and zero has two signs
    return np.asarray(first)
