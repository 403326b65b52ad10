"""`Clip`, `Relu`, and `Min` and `Max` with a constant number, as bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.ir.numpy_types import numpy_type
from graphopt.ir.types import type_name
from graphopt.operators.builder import NodeBuilder
from graphopt.records import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """`min(max(x, low), high)`; a bound is infinite if there is none.

    A `Clip` without a bound still has one, the largest number of the element type: it clamps infinities.

    Attributes:
        x: the value.
        low: the lower bound, a number of the element type.
        high: the upper bound.
    """

    x: Value
    low: Any = -math.inf
    high: Any = math.inf

    @classmethod
    def of(cls, node: Node, dtype: int | None = None) -> Bounds:
        """Read a `Relu`, a `Clip`, or a `Min` or `Max` of two operands, one of them a constant number.

        Args:
            node: the operator.
            dtype: the element type, if the caller knows it.

        Raises:
            Decline: it is none, a bound is not constant or NaN, low > high, or the default of an omitted bound
                depends on an unknown element type.
        """
        if node.op == "Relu":
            return cls(node.operand(0), low=0.0)
        bounds = cls._of_clip(node, dtype) if node.op == "Clip" else cls._of_extremum(node)
        if np.isnan(bounds.low) or np.isnan(bounds.high):
            raise Decline("a bound is NaN")
        if bounds.low > bounds.high:
            raise Decline("the lower bound {} is above the upper bound {}", bounds.low, bounds.high)
        return bounds

    @classmethod
    def _of_clip(cls, node: Node, dtype: int | None) -> Bounds:
        x, opset = node.operand(0), node.graph.opset()
        # The schema's defaults of attributes are not used: they do not apply to float16.
        low, high = (node.number(name) if opset >= _OPERANDS_SINCE else node.attrs.get(name) for name in ("min", "max"))
        if low is None or high is None:
            left_out = _left_out(dtype or x.element_type(), opset)
            low, high = (limit if given is None else given for given, limit in zip((low, high), left_out, strict=True))
        return cls(x, low, high)

    @classmethod
    def _of_extremum(cls, node: Node) -> Bounds:
        if node.op not in ("Max", "Min") or not node.graph.broadcasts(node.op):
            raise Decline
        if len(node.inputs) != 2:
            raise Decline("{} has {} operands, expected 2", node.op, len(node.inputs))
        left, right = node.operand(0), node.operand(1)
        for x, other in ((left, right), (right, left)):
            array = other.const()
            if array is None or array.size != 1 or x.is_const:
                continue
            if array.ndim and array.ndim > len(x.dims()):
                raise Decline("broadcasting the constant may raise the rank of {}", x.name)
            number = array.reshape(-1)[0].item()
            return cls(x, low=number) if node.op == "Max" else cls(x, high=number)
        raise Decline("no operand of {} is a constant number", node.op)

    def then(self, second: Bounds) -> Bounds:
        """The composition with second bounds of the result."""
        low, high = (min(max(number, second.low), second.high) for number in (self.low, self.high))
        return replace(self, low=low, high=high)

    def write(self, to: NodeBuilder) -> Value:
        """Write the operator in the form of the graph's opset.

        Raises:
            Decline: the element type is not known, or not supported by ONNX Runtime's `Clip` at the opset.
        """
        dtype, opset = self.x.element_type(), to.graph.opset()
        if self.low == 0 and self.high == math.inf and dtype in FLOAT_TYPES:
            return to.op("Relu", self.x)
        if opset < ALL_TYPES_SINCE and dtype not in _FIRST_TYPES:
            raise Decline("before opset 12 ONNX Runtime has no Clip for the element type of {}", self.x.name)
        low, high = self.low, self.high
        if low != high:  # if low == high, both are written: the value may lie beyond the default of the other bound
            least, most = _left_out(dtype, opset)
            low = None if _says_nothing(low, least, dtype) else low
            high = None if _says_nothing(high, most, dtype) else high
        return to.op("Clip", self.x, min=low, max=high)


ALL_TYPES_SINCE = 12
"""From this opset on ONNX Runtime's `Clip` supports all element types."""

_FIRST_TYPES = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16})
"""Element types that it supports before; float16 by conversion."""

_OPERANDS_SINCE = 11
"""Before this opset the bounds are attributes, with float32 defaults for all element types."""

_ATTRIBUTE_LIMIT = 3.4028234663852886e38


def _left_out(dtype: int, opset: int) -> tuple[Any, Any]:
    """The default bounds of a `Clip`."""
    import ml_dtypes  # few models have a `Clip` without bounds

    kind = numpy_type(dtype)
    if dtype not in FLOAT_TYPES:
        if kind.kind not in "iu":
            raise Decline("Clip does not support element type {}", type_name(dtype))
        return int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    top = float(ml_dtypes.finfo(kind).max)  # type: ignore[no-untyped-call]  # not annotated
    if opset < _OPERANDS_SINCE:
        top = math.inf if top < _ATTRIBUTE_LIMIT else _ATTRIBUTE_LIMIT  # beyond half precision: no bound
    return -top, top


def _says_nothing(bound: Any, left_out: Any, dtype: int) -> bool:
    """Whether a bound can be omitted; integers have no infinite ones."""
    return bool(bound == left_out) or (dtype not in FLOAT_TYPES and abs(bound) == math.inf)
