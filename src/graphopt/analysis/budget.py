"""Estimates of the bytes and the work of computing a node, before it is computed."""

from __future__ import annotations

import math
from collections.abc import Iterable

from onnx import TensorProto

from graphopt.analysis.nodes import dtype_of_output
from graphopt.analysis.shapes import ShapeAnalysis
from graphopt.ir import Graph, Node, Value
from graphopt.ir.types import tensor_nbytes
from graphopt.records import dataclass

SMALL = 1 << 16
"""Results up to this many bytes are always worth storing: shapes, scales, biases."""

_ALLOWANCE = 1 << 20
"""Bytes by which any model may grow in all."""

_SHARE = 16
"""A model with large weights may grow by 1 / `_SHARE` of them in all, but never by more than `_MOST_GROWTH`."""

_MOST_GROWTH = 1 << 24

_STRING_BYTES = 64
"""Assumed bytes of a string."""

_AT_MOST_FIRST = frozenset({
    "Abs", "Cast", "Ceil", "Compress", "Cos", "Erf", "Exp", "Floor", "Identity", "Log", "Neg", "Not", "Reciprocal",
    "Relu", "Round", "Sigmoid", "Sign", "Sin", "Slice", "Sqrt", "Squeeze", "Tanh", "Transpose", "Unique", "Unsqueeze",
})  # fmt: skip
"""Operators whose results never have more elements than their first input."""

_WINDOWS = frozenset({"AveragePool", "LpPool", "MaxPool"})


@dataclass(slots=True)
class Allowance:
    """The budget by which stored results may enlarge a model, shared by all of its graphs.

    Attributes:
        limit: the bytes by which it may grow in all.
        left: the remaining bytes.
        small: results up to this many bytes are stored whatever they free.
        refused: the smallest result that was rejected because it is above `small`.
        short: whether a result was rejected because too little was left.
    """

    limit: int
    left: int
    small: int
    refused: int | None = None
    short: bool = False

    @classmethod
    def of(cls, weights: int, spent: int = 0) -> Allowance:
        """The allowance of a model.

        Args:
            weights: bytes of its original constants; later ones do not raise the limit.
            spent: bytes by which earlier results enlarged it.
        """
        share = min(max(weights, 0) // _SHARE, _MOST_GROWTH)
        limit = max(_ALLOWANCE, share)
        return cls(limit, limit - max(spent, 0), max(SMALL, share))

    def refuses_more_than(self, other: Allowance) -> bool:
        """Whether this allowance rejected a result that another one of the same model would not."""
        return self.short or (self.refused is not None and self.refused <= other.small)


def constant_bytes(graphs: Iterable[Graph]) -> int:
    """Bytes of the constants of graphs.

    Args:
        graphs: the graphs, without their subgraphs.
    """
    return sum([v.tensor.nbytes for graph in graphs for v in graph.values.values() if v.tensor is not None])


_NUMBERS = frozenset({int})


def dims(analysis: ShapeAnalysis, value: Value) -> tuple[int, ...] | None:
    """The shape of a value if it is fixed."""
    shape = analysis.shape(value)
    if shape is None:
        return None
    if {*map(type, shape)} <= _NUMBERS and min(shape, default=0) >= 0:  # type: ignore[operator, type-var]  # numbers
        return shape  # type: ignore[return-value]
    known = tuple(d for d in shape if isinstance(d, int) and d >= 0)
    return known if len(known) == len(shape) else None


def output_bytes(analysis: ShapeAnalysis, node: Node) -> int | None:
    """Bytes of all outputs of a node, or an upper bound; None if they are unbounded."""
    total = 0
    for index, value in enumerate(node.outputs):
        if value is None:
            continue
        count = _count(analysis, node, value)
        dtype = dtype_of_output(node, index)
        if count is None or dtype is None:
            return None
        size = count * _STRING_BYTES if dtype == TensorProto.STRING else tensor_nbytes(dtype, count)
        if size is None:
            return None
        total += size
    return total


def _count(analysis: ShapeAnalysis, node: Node, value: Value) -> int | None:
    known = dims(analysis, value)
    if known is not None:
        return math.prod(known)
    source = node.input(0)
    given = dims(analysis, source) if source is not None else None
    if given is None:
        return None
    if node.op in _AT_MOST_FIRST:
        return math.prod(given)
    return max(len(given), 1) * math.prod(given) if node.op == "NonZero" else None


def has_no_elements(analysis: ShapeAnalysis, node: Node) -> bool:
    """Whether an operand may be an empty tensor, on which some runtime kernels crash the process."""
    for value in node.inputs:
        if value is not None:
            known = dims(analysis, value)
            if known is None or 0 in known:
                return True
    return False


def work(analysis: ShapeAnalysis, node: Node) -> int:
    """Approximate number of elementary steps of a node; its outputs must be bounded."""
    reads = [_elements(analysis, v) for v in node.inputs if v is not None]
    writes = sum(_elements(analysis, v) for v in node.outputs if v is not None)
    return sum(reads) + writes * _steps_per_element(analysis, node)


def _elements(analysis: ShapeAnalysis, value: Value) -> int:
    known = dims(analysis, value)
    return math.prod(known) if known is not None else 0


def _steps_per_element(analysis: ShapeAnalysis, node: Node) -> int:
    first, second = (_known(analysis, node, i) for i in (0, 1))
    if node.op in ("MatMul", "MatMulInteger", "QLinearMatMul"):
        return first[-1] if first else 1
    if node.op == "Gemm":
        return max(first, default=1)
    if node.op in ("Conv", "ConvInteger"):
        return math.prod(second[1:])
    if node.op == "ConvTranspose":
        return max(1, second[0] * math.prod(second[2:])) if second else 1
    if node.op in _WINDOWS:
        return math.prod(node.attr("kernel_shape") or ())
    if node.op == "Einsum":
        return math.prod(math.prod(_known(analysis, node, i)) for i in range(1, len(node.inputs)))
    return 16


def _known(analysis: ShapeAnalysis, node: Node, index: int) -> tuple[int, ...]:
    value = node.input(index)
    return (dims(analysis, value) if value is not None else None) or ()
