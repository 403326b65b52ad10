"""Conversions of the element type that meet."""

from __future__ import annotations

import numpy as np

from graphopt.ir import Tensor, Value
from graphopt.ir.numpy_types import numpy_type
from graphopt.ir.types import NUMBER_TYPES, type_name
from graphopt.match import Attr, Match, OpBuilder, Pattern
from graphopt.rewrite import Decline, PatternRule, Rewriter


class FuseCastIntoConstantOfShape(PatternRule):
    """Fill a tensor with a number of the right type at once, instead of converting each of its elements.

    Where the number is the same in both types.
    """

    opsets = "9-"
    peers = {"onnxscript": ("cast_constant_of_shape_rule", "cast_constant_of_shape_without_value_rule")}

    def pattern(self, op: OpBuilder, shape: Pattern) -> Pattern:
        """How the `Cast` rounds does not matter for a number that stays the same."""
        fill = op.ConstantOfShape(shape, value=Attr("value"))
        return op.Cast(fill, to=Attr("to"), _other_attrs=True)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        array = np.zeros(1, np.float32) if m.value is None else m.value.array()
        if array.dtype.kind not in "fiub" or m.to not in NUMBER_TYPES:
            raise Decline("type {} holds no plain numbers", type_name(m.to))
        with np.errstate(all="ignore"):
            converted = array.astype(numpy_type(m.to))
            same = converted.astype(array.dtype).tobytes() == array.tobytes()  # a negative zero is not 0 either
        if not same:
            raise Decline("the number is another one in type {}", type_name(m.to))
        made = Tensor.from_array(converted.reshape(1), m.to)
        return rw.op("ConstantOfShape", m.shape, value=made)
