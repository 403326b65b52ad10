"""What is masked, by bounds or by a product in place of a choice for each element."""

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
"""Operators through which what is no number comes to a masked place from one beside it, or from the same."""

_UNBOUNDED = frozenset(
    {"Acos", "Acosh", "Asin", "Atanh", "Cosh", "Exp", "Log", "Mod", "Reciprocal", "ReduceLogSum", "Sinh", "Sqrt"}
)
"""Operators that make an infinity or a NaN of some numbers; so do quotients and powers."""

_UNLIMITED = {"Max": -np.inf, "Min": np.inf}
"""What stands for no limit, which is never the result of these where their other operand is a number."""

_TELLING = frozenset({"IsInf", "IsNaN"})
_MOST_NODES, _MOST_BYTES = 64, 1 << 20


class _Masked(Weighed, OpRule):
    """Another form of a `Where` that puts one number into some places of a value of float32.

    The kernel chooses from either operand in a pass of its own, element by element, and joins both in a third. What is
    masked must be a number: a mask that guards against a division by 0 or the root of a negative number stays, and so
    does one that is told by an infinity or a NaN.
    """

    ops = ("Where",)
    opsets = "9-"
    numerics = Numerics.FAST

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        if node.result.dtype != TensorProto.FLOAT:
            raise Decline("{} is not of float32, for which the kernels were measured", node.result.name)
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
        """The other form of `x` filled in some places, which the condition holds in, or says what is `kept`."""


def _check_numbers(value: Value, *, told: bool = False) -> None:
    """Decline where a value may be no number though all that a model is given are, or is `told` by what is none."""
    seen, waiting = {value}, [(value, 0.0)]
    while waiting:
        at, unbounded = waiting.pop()
        array = at.const(_MOST_BYTES)
        if array is not None and array.dtype.kind == "f" and not (np.isfinite(array) | (array == unbounded)).all():
            raise Decline("{} depends on {}, which is not finite", value.name, at.name)
        maker = at.made_by(*_FOLLOWED)
        if maker is not None and array is None:
            if maker.op in _TELLING or len(seen) > _MOST_NODES or not (told or _gives_numbers(maker)):
                raise Decline("{} depends on {}, which may be no number", value.name, at.name)
            unbounded = _UNLIMITED.get(maker.op, unbounded if maker.op == "Where" else 0.0)
            new = {*maker.operands} - seen
            waiting += ((operand, unbounded) for operand in new)
            seen |= new


def _gives_numbers(node: Node) -> bool:
    """Whether an operator makes numbers of numbers, as far as these are not enormous."""
    if node.op == "Div":
        divisor = node.operand(1).const(_MOST_BYTES)
        return divisor is not None and bool(divisor.all())
    if node.op == "Pow":
        exponent = number(node.operand(1))
        return exponent is not None and exponent >= 0 and float(exponent).is_integer()
    return node.op not in _UNBOUNDED


class ConvertMaskToBounds(_Masked):
    """Mask by the smaller one of a value and a bound, which is infinite where the value is kept.

    The bound has the size of the mask, which attention has once for all heads. The number is the least or the largest
    one, or an infinity. A NaN in a masked place stays one, and so does an infinity beyond the number.
    """

    def write(self, x: Value, condition: Value, fill: float, kept: bool, rw: Rewriter) -> Value:
        if not (fill <= _LIMITS.min or fill >= _LIMITS.max):
            raise Decline("{} is masked by {}, and may have numbers beyond", x.name, fill)
        size, bounds = size_of(x), 0 if condition.is_const else size_of(condition)
        self.weigh(rw, {"kernel": 1, "where": size}, {"kernel": 2, "where": bounds, "bound": size})
        masked, lower = np.array(fill, np.float32), fill < 0
        free = np.array(np.inf if lower else -np.inf, np.float32)
        bound = rw.op("Where", condition, *((free, masked) if kept else (masked, free)))
        return rw.op("Min" if lower else "Max", x, bound)


class ConvertZeroMaskToProduct(_Masked):
    """Put zeros into a value by a product with the condition as a number.

    A NaN or an infinity in a masked place gives a NaN.
    """

    def write(self, x: Value, condition: Value, fill: float, kept: bool, rw: Rewriter) -> Value:
        if fill:
            raise Decline("{} is masked by {}", x.name, fill)
        size, bounds = size_of(x), 0 if condition.is_const else size_of(condition)
        passes = 1 if kept else 2
        then = {"kernel": 1 + passes, "element": size + 2 * passes * bounds}
        self.weigh(rw, {"kernel": 1, "where": size}, then)
        ones = rw.op("Cast", condition if kept else rw.op("Not", condition), to=TensorProto.FLOAT)
        return rw.op("Mul", x, ones)


class ConvertNanMaskToThresholdedRelu(PatternRule):
    """Put zeros in place of NaN into probabilities by `ThresholdedRelu`: a NaN is not larger than -1.

    Since PyTorch 2.5 attention gives nothing where all of a row is masked, and its `Softmax` gives NaN. `IsNaN` and
    `Where` take a third of the time of all that is between the products; one kernel that compares takes a tenth.
    Probabilities are those of `Softmax` and `Sigmoid`, in float32, for which the runtime has the kernel.
    """

    opsets = "10-"
    level = Level.EXTENDED

    def pattern(self, op: OpBuilder, probability: Pattern = FLOAT32) -> Pattern:
        """What gives the probability is not part of the match, since it stays."""
        return op.Where(op.IsNaN(probability, _shared=True), 0.0, probability)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        if m.probability.made_by("Softmax", "Sigmoid") is None:
            raise Decline("{} may be -1 or less", m.probability.name)
        return rw.op("ThresholdedRelu", m.probability, alpha=-1.0)
