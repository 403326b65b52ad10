"""Conversions of the element type that meet."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from onnx import TensorProto as T
from onnx.helper import tensor_dtype_to_np_dtype

from graphopt.ir import Node, Tensor
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by, only_reader, pass_on

_FLOATS = frozenset({T.FLOAT16, T.BFLOAT16, T.FLOAT, T.DOUBLE})
_WIDER: dict[int, frozenset[int]] = {
    T.BOOL: frozenset({T.INT8, T.UINT8, T.INT16, T.UINT16, T.INT32, T.UINT32, T.INT64, T.UINT64}) | _FLOATS,
    T.INT8: frozenset({T.INT16, T.INT32, T.INT64}) | _FLOATS,
    T.UINT8: frozenset({T.INT16, T.UINT16, T.INT32, T.UINT32, T.INT64, T.UINT64}) | _FLOATS,
    T.INT16: frozenset({T.INT32, T.INT64, T.FLOAT, T.DOUBLE}),
    T.UINT16: frozenset({T.INT32, T.UINT32, T.INT64, T.UINT64, T.FLOAT, T.DOUBLE}),
    T.INT32: frozenset({T.INT64, T.DOUBLE}),
    T.UINT32: frozenset({T.INT64, T.UINT64, T.DOUBLE}),
    T.FLOAT16: frozenset({T.FLOAT, T.DOUBLE}),
    T.BFLOAT16: frozenset({T.FLOAT, T.DOUBLE}),
    T.FLOAT: frozenset({T.DOUBLE}),
}
"""The types that hold every number of a type exactly."""


class FuseConsecutiveCasts(OpRule):
    """Leave out a `Cast` to a type that holds every number of the one before, when another `Cast` follows.

    Where that leads back to the first type both go. The first one stays for its other readers, where it has any.
    """

    name = "fuse_consecutive_casts"
    ops = ("Cast",)
    opsets = "6-"
    peers: ClassVar[dict[str, str]] = {"onnxscript": "CastCast", "onnxruntime": "CastChainElimination"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Cast what the first one reads."""
        value = node.input(0)
        first = made_by(value, "Cast")
        if value is None or first is None:
            return None
        if first.graph is not node.graph:
            return Mismatch("{} is computed in an outer graph", value.name)
        x = first.input(0)
        if x is None or x.dtype is None:
            return Mismatch("the element type that {} is converted from is not known", value.name)
        middle, last = first.attr("to"), node.attr("to")
        if middle not in _WIDER.get(x.dtype, ()):
            return Mismatch("not every number of type {} fits type {}", T.DataType.Name(x.dtype), _name(middle))
        if x.dtype == last:
            return pass_on(node, x, rw)
        if x.dtype in _FLOATS and last not in _FLOATS:
            return Mismatch("what is out of the range of {} may convert otherwise", _name(last))
        return rw.replace(node, [rw.op("Cast", x, **node.attrs)])


def _name(dtype: int) -> str:
    return str(T.DataType.Name(dtype))


class FuseCastIntoConstantOfShape(OpRule):
    """Fill a tensor with a number of the right type at once, instead of converting each of its elements.

    Where the number is the same in both types.
    """

    name = "fuse_cast_into_constant_of_shape"
    ops = ("Cast",)
    opsets = "9-"
    peers: ClassVar[dict[str, str]] = {"onnxscript": "cast_constant_of_shape_rule"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Convert the number."""
        value = node.input(0)
        fill = made_by(value, "ConstantOfShape")
        if value is None or fill is None:
            return None
        problem = only_reader(value, node)
        if problem is not None:
            return problem
        given, target = fill.attr("value"), node.attr("to")
        array = np.zeros(1, np.float32) if given is None else given.array()
        if array.dtype.kind not in "fiub" or target not in _NUMBERS:
            return Mismatch("type {} holds no plain numbers", _name(target))
        with np.errstate(all="ignore"):
            converted = array.astype(tensor_dtype_to_np_dtype(target))
            same = converted.astype(array.dtype).tobytes() == array.tobytes()  # a negative zero is not 0 either
        if not same:
            return Mismatch("the number is another one in type {}", _name(target))
        made = Tensor.from_array(converted.reshape(1), target)
        return rw.replace(node, [rw.op("ConstantOfShape", fill.input(0), value=made)])


_NUMBERS = frozenset({
    T.BOOL, T.FLOAT16, T.FLOAT, T.DOUBLE, T.INT8, T.INT16, T.INT32, T.INT64, T.UINT8, T.UINT16, T.UINT32, T.UINT64,
})  # fmt: skip
