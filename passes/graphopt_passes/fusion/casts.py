"""Conversions of the element type that meet."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from onnx import TensorProto as T
from onnx.helper import tensor_dtype_to_np_dtype

from graphopt.ir import Node, Tensor
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import made_by, only_reader


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
