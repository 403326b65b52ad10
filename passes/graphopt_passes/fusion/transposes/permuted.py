"""How operators work on permuted inputs: what to change so that the permutation can be done afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch

MOST_BYTES = 1 << 20
"""A constant that is larger is not written a second time in another order."""

UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cast", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Elu",
    "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Log", "Mish", "Neg",
    "BitwiseNot", "Not", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus",
    "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu",
)  # fmt: skip
BROADCASTING = (
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "PRelu", "Pow", "Sub", "Sum", "Where", "Xor",
)  # fmt: skip
Perm = tuple[int, ...]
Sources = Mapping[Value, Value]
"""Which inputs of an operator are permuted, and from what."""


@dataclass(frozen=True, slots=True)
class Permuted:
    """An operator on unpermuted inputs, and the permutation that its result needs then.

    Attributes:
        inputs: its inputs; arrays are new constants.
        attrs: its attributes.
        perm: of each result: axis `i` of it is axis `perm[i]` of what the operator gives now.
    """

    inputs: list[Value | np.ndarray | None]
    attrs: dict[str, Any]
    perm: Perm


def first(node: Node, sources: Sources) -> Value | Mismatch:
    """The source of the first input, the others not being permuted.

    Args:
        node: the operator.
        sources: which of its inputs are permuted, and from what.
    """
    x = node.input(0)
    if x is None or x not in sources or any(v in sources for v in node.inputs[1:] if v is not None):
        return Mismatch("the transposed value is not only what it works on")
    return sources[x]


def unary(node: Node, sources: Sources, perm: Perm) -> Permuted | Mismatch:
    """Operators that treat each element alike, whatever else they are told."""
    x = first(node, sources)
    return x if isinstance(x, Mismatch) else Permuted([x, *node.inputs[1:]], dict(node.attrs), perm)


def broadcasting(node: Node, sources: Sources, perm: Perm) -> Permuted | Mismatch:
    """Operators that broadcast their operands, all of them permuted alike or constant."""
    if node.graph.opset() < (7 if node.op != "PRelu" else 9) or (
        node.op in ("Max", "Mean", "Min", "Sum") and node.graph.opset() < 8
    ):
        return Mismatch("the operands of {} are not broadcast freely at this opset", node.op)
    if node.op == "PRelu" and node.input(0) not in sources:
        return Mismatch("only the slope is transposed")
    inputs: list[Value | np.ndarray | None] = []
    for value in node.inputs:
        if value is None:
            return Mismatch("an operand is left out")
        found = sources[value] if value in sources else rearranged(value, perm)
        if isinstance(found, Mismatch):
            return found
        inputs.append(found)
    return Permuted(inputs, dict(node.attrs), perm)


def rearranged(value: Value, perm: Perm) -> Value | np.ndarray | Mismatch:
    """An operand as the source needs it: a constant in the other order, and what is alike in every order as it is.

    Args:
        value: an operand that broadcasts to as many axes as the permutation has.
        perm: the permutation.
    """
    rank, shape = len(perm), value.shape
    if shape is not None and len(shape) <= rank and all(dim == 1 for dim in shape):
        return value
    array = value.const(MOST_BYTES)
    if array is None or array.dtype == object:
        return Mismatch("{} is neither transposed alike nor a small constant", value.name)
    if array.ndim > rank:
        return Mismatch("{} adds axes", value.name)
    whole = array.reshape((1,) * (rank - array.ndim) + array.shape)
    return np.ascontiguousarray(whole.transpose(np.argsort(perm)))
