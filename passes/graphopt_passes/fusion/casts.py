"""`Cast` after another `Cast` or a `ConstantOfShape`, or before a comparison."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T

from graphopt.ir import FLOAT_TYPES, Tensor, Value
from graphopt.ir.numpy_types import numpy_type
from graphopt.ir.types import NUMBER_TYPES, type_name
from graphopt.match import Attr, Match, OpBuilder, Pattern, Scalar, Var
from graphopt.rewrite import Decline, Fired, PatternRule, Rewriter


class FuseCastIntoConstantOfShape(PatternRule):
    """Fold a `Cast` into the `ConstantOfShape` before it.

    Both types must represent the number exactly.
    """

    opsets = "9-"
    peers = {"onnxscript": ("cast_constant_of_shape_rule", "cast_constant_of_shape_without_value_rule")}

    def pattern(self, op: OpBuilder, shape: Pattern) -> Pattern:
        """The rounding mode of the `Cast` does not matter for a number that stays the same."""
        fill = op.ConstantOfShape(shape, value=Attr("value"))
        return op.Cast(fill, to=Attr("to"), _other_attrs=True)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        array = np.zeros(1, np.float32) if m.value is None else m.value.array()
        if array.dtype.kind not in "fiub" or m.to not in NUMBER_TYPES:
            raise Decline("type {} is not a plain number type", type_name(m.to))
        if array.size != 1:
            raise Decline("{} numbers are given, expected one", array.size)
        with np.errstate(all="ignore"):
            converted = array.astype(numpy_type(m.to))
            same = converted.astype(array.dtype).tobytes() == array.tobytes()  # -0 differs from 0
        if not same:
            raise Decline("the number is not exact in type {}", type_name(m.to))
        made = Tensor.from_array(converted.reshape(1), m.to)
        return rw.op("ConstantOfShape", m.shape, value=made)


_PLAIN = NUMBER_TYPES | FLOAT_TYPES
_LONG = frozenset({T.INT64, T.UINT64})
"""Types not all of whose numbers a floating-point type holds, whatever NumPy says of `DOUBLE`."""


def holds_all(wide: int, narrow: int) -> bool:
    """Whether the plain number type `wide` represents every number of another, `narrow`, exactly."""
    plain = {wide, narrow} <= _PLAIN and wide != narrow and not (narrow in _LONG and wide in FLOAT_TYPES)
    return plain and np.can_cast(numpy_type(narrow), numpy_type(wide), "safe")


class FuseConsecutiveCasts(PatternRule):
    """Remove a `Cast` to a type that represents every number of its operand, when another `Cast` follows.

    If the second returns to the original type, both are removed. The first one stays for its other readers, where it
    has any.
    """

    opsets = "6-"
    peers = {"onnxruntime": "CastChainElimination", "onnxscript": "CastCast"}

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        """The rounding mode of the first one does not matter, since it is exact."""
        first = op.Cast(x, to=Attr("middle"), _shared=True, _other_attrs=True)
        return op.Cast(first, to=Attr("last"), _other_attrs=True)

    def rewrite(self, m: Match, rw: Rewriter) -> Fired:
        x, middle, last = m.x, m.middle, m.last
        if x.dtype is None:
            raise Decline("the element type that {} is converted from is not known", m.root.operand(0).name)
        if not holds_all(middle, x.dtype):
            raise Decline("not every number of type {} is exact in type {}", type_name(x.dtype), type_name(middle))
        if x.dtype == last:
            return rw.pass_on(m.root, x)
        if last == T.STRING:
            raise Decline("runtimes write numbers of another type as another text")
        if x.dtype in FLOAT_TYPES and last not in FLOAT_TYPES:
            raise Decline("numbers outside the range of {} may convert differently", type_name(last))
        return rw.replace(m.root, [rw.again(m.root, x)])


_COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_EXACT: dict[int | None, int] = {T.FLOAT: 2**24, T.DOUBLE: 2**53}
"""The least integer that a neighbouring integer is rounded to, for each floating-point type."""


class FuseCastIntoComparison(PatternRule):
    """Compare integers with a whole number as integers, without casting them to floats.

    The number lies where floats represent every integer, so rounding leaves each integer on its side of the number.
    """

    opsets = "9-"

    def pattern(self, op: OpBuilder) -> Pattern:
        integers = Var("integers", dtype=(T.INT32, T.INT64))
        floats = op.Cast(integers, _shared=True, _other_attrs=True, _bind="floats")
        return op.AnyOf(*_COMPARISONS)(floats, Scalar("number"), _ordered=True)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        dtype = np.int32 if m.integers.dtype == T.INT32 else np.int64
        most = min(_EXACT.get(m.floats.result.dtype, -1), np.iinfo(dtype).max)
        if not float(m.number).is_integer() or abs(m.number) >= most:
            raise Decline("{} is not an integer well inside the exact range of both types", m.number)
        return rw.op(m.root.op, m.integers, rw.constant(np.array(int(m.number), dtype)))
