"""Masking by `Min`, `Max` or `Mul` instead of `Where`."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from onnx import TensorProto

from graphopt.match import FLOAT32, Match, OpBuilder, Pattern
from graphopt.match.factors import number
from graphopt.operators.reduce import REDUCTIONS
from graphopt.rewrite import Decline, Level, Node, Numerics, OpRule, Outcome, PatternRule, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, size_of
from graphopt_passes.elementwise import MOVES, TOGETHER, UNARY

_LIMITS = np.finfo(np.float32)

_FOLLOWED = MOVES.union(UNARY, TOGETHER, REDUCTIONS, ("LogSoftmax", "Mod", "Softmax"))
"""Operators that propagate NaN or infinity to a masked element, from the same element or another one."""

_UNBOUNDED = frozenset(
    {"Acos", "Acosh", "Asin", "Atanh", "Cosh", "Exp", "Log", "Mod", "Reciprocal", "ReduceLogSum", "Sinh", "Sqrt"}
)
"""Operators that map some finite numbers to infinity or NaN, as do quotients and powers."""

_UNLIMITED = {"Max": -np.inf, "Min": np.inf}
"""The infinity that means no limit; it is never the result if the other operand is finite."""

_TELLING = frozenset({"IsInf", "IsNaN"})
_MOST_NODES, _MOST_BYTES = 64, 1 << 20


class _Masked(Weighed, OpRule):
    """Replace a `Where` that fills masked elements of a float32 value with one number.

    The kernel of `Where` selects from each operand in a separate pass, element by element, and merges both in a third.
    Masked elements must be finite: a mask that guards against a division by 0 or the root of a negative number stays,
    as does one that tests for infinity or NaN.
    """

    ops = ("Where",)
    opsets = "9-"
    numerics = Numerics.FAST

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        if node.result.dtype != TensorProto.FLOAT:
            raise Decline("{} is not float32, for which the kernels were measured", node.result.name)
        condition, *operands = (node.operand(at) for at in range(3))
        numbers = [number(value) for value in operands]
        kept = [value for value, known in zip(operands, numbers, strict=True) if known is None]
        if len(kept) != 1:
            raise Decline
        x, fill = kept[0], next(known for known in numbers if known is not None)
        condition.check_fits(x)
        for value in operands:
            value.check_fits(x)
        _check_numbers(x)
        _check_numbers(condition, told=True)
        return rw.replace(node, [self.write(x, condition, fill, operands[0] is x, rw)])

    @abstractmethod
    def write(self, x: Value, condition: Value, fill: float, kept: bool, rw: Rewriter) -> Value:
        """Write `x` filled where the condition is true or, if `kept`, where it is false."""


def _check_numbers(value: Value, *, told: bool = False) -> None:
    """Decline if a value may be NaN or infinite for finite inputs or, if `told`, depends on a test for either."""
    seen, waiting = {value}, [(value, 0.0)]
    while waiting:
        at, unbounded = waiting.pop()
        array = at.const(_MOST_BYTES)
        if array is not None and array.dtype.kind == "f" and not (np.isfinite(array) | (array == unbounded)).all():
            raise Decline("{} depends on {}, which is not finite", value.name, at.name)
        maker = at.made_by(*_FOLLOWED)
        if maker is not None and array is None:
            if maker.op in _TELLING or len(seen) > _MOST_NODES or not (told or _gives_numbers(maker)):
                raise Decline("{} depends on {}, which may be NaN or infinite", value.name, at.name)
            unbounded = _UNLIMITED.get(maker.op, unbounded if maker.op == "Where" else 0.0)
            new = {*maker.operands} - seen
            waiting += ((operand, unbounded) for operand in new)
            seen |= new


def _gives_numbers(node: Node) -> bool:
    """Whether an operator maps finite operands to finite results, short of overflow."""
    if node.op == "Div":
        divisor = node.operand(1).const(_MOST_BYTES)
        return divisor is not None and bool(divisor.all())
    if node.op == "Pow":
        exponent = number(node.operand(1))
        return exponent is not None and exponent >= 0 and float(exponent).is_integer()
    return node.op not in _UNBOUNDED


class ConvertMaskToBounds(_Masked):
    """Replace a masking `Where` with `Min` or `Max` of the value and a bound, infinite where the value is kept.

    The bound has the size of the mask, which attention has once for all heads. The fill must be the least or largest
    float32, or beyond. A NaN in a masked element stays NaN, and an infinity beyond the fill stays.
    """

    def write(self, x: Value, condition: Value, fill: float, kept: bool, rw: Rewriter) -> Value:
        if not (fill <= _LIMITS.min or fill >= _LIMITS.max):
            raise Decline("{} is masked with {}, which its elements may exceed", x.name, fill)
        size, bounds = size_of(x), 0 if condition.is_const else size_of(condition)
        self.weigh(rw, {"kernel": 1, "where": size}, {"kernel": 2, "where": bounds, "bound": size})
        masked, lower = np.array(fill, np.float32), fill < 0
        free = np.array(np.inf if lower else -np.inf, np.float32)
        bound = rw.op("Where", condition, *((free, masked) if kept else (masked, free)))
        return rw.op("Min" if lower else "Max", x, bound)


class ConvertZeroMaskToProduct(_Masked):
    """Replace a `Where` that fills with zeros with a product with the condition cast to float.

    A NaN or an infinity in a masked element gives NaN.
    """

    def write(self, x: Value, condition: Value, fill: float, kept: bool, rw: Rewriter) -> Value:
        if fill:
            raise Decline("{} is masked with {}, expected 0", x.name, fill)
        size, bounds = size_of(x), 0 if condition.is_const else size_of(condition)
        passes = 1 if kept else 2
        then = {"kernel": 1 + passes, "element": size + 2 * passes * bounds}
        self.weigh(rw, {"kernel": 1, "where": size}, then)
        ones = rw.op("Cast", condition if kept else rw.op("Not", condition), to=TensorProto.FLOAT)
        return rw.op("Mul", x, ones)


class ConvertNanMaskToThresholdedRelu(PatternRule):
    """Replace `IsNaN` and `Where` that set NaN probabilities to zero with `ThresholdedRelu`: `NaN > -1` is false.

    Since PyTorch 2.5, attention gives zeros for a fully masked row, whose `Softmax` is NaN. `IsNaN` and `Where` take a
    third of the time spent between the two products, `ThresholdedRelu` a tenth. Probabilities are results of `Softmax`
    or `Sigmoid` in float32, the type that the runtime has the kernel for.
    """

    opsets = "10-"
    level = Level.EXTENDED

    def pattern(self, op: OpBuilder, probability: Pattern = FLOAT32) -> Pattern:
        """The producer of the probability is not part of the match, since it stays."""
        return op.Where(op.IsNaN(probability, _shared=True), 0.0, probability)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        if m.probability.made_by("Softmax", "Sigmoid") is None:
            raise Decline("{} may be -1 or less", m.probability.name)
        return rw.op("ThresholdedRelu", m.probability, alpha=-1.0)
