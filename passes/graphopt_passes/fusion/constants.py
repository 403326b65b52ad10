"""Arithmetic with constants in a row, and quotients."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.ir import FLOAT_TYPES, Node, Value
from graphopt.operators.linear import narrowed
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.elimination.facts import only_reader

Step = tuple[Value, np.ndarray]


def _step(node: Node) -> Step | None:
    """What a binary node reads beside a constant, and the constant; a constant on the left only commutes."""
    left, right = node.input(0), node.input(1)
    if left is None or right is None:
        return None
    array = right.const()
    if array is not None and not left.is_const:
        return left, array
    array = left.const() if node.op in ("Mul", "Add") else None
    return (right, array) if array is not None and not right.is_const else None


def _pair(node: Node, ops: tuple[str, ...]) -> tuple[Value, np.ndarray, np.ndarray, Node] | Mismatch | None:
    """What the first node reads, the two constants, and the first node."""
    second = _step(node)
    first = second[0].producer if second is not None else None
    if second is None or first is None or first.op not in ops:
        return None
    value = second[0]
    inner = _step(first)
    if inner is None:
        return None
    problem = only_reader(value, node)
    if problem is not None:
        return problem
    one, two = inner[1], second[1]
    if np.broadcast_shapes(one.shape, two.shape) not in (one.shape, two.shape):
        return Mismatch("the constants of shapes {} and {} would make a larger one", one.shape, two.shape)
    return inner[0], one, two, first


class FuseConsecutiveMul(OpRule):
    """Join two multiplications or divisions by constants into one.

    Both must make numbers larger, or both smaller: then nothing overflows or vanishes on the way that would not at the
    end. Integers are only multiplied.
    """

    name = "fuse_consecutive_mul"
    ops = ("Mul", "Div")
    opsets = "7-"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxsim": "fuse_consecutive_mul"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Multiply the constants."""
        found = _pair(node, ("Mul", "Div"))
        if not isinstance(found, tuple):
            return found
        x, one, two, first = found
        divides = (first.op == "Div", node.op == "Div")
        if node.outputs[0] is None or one.dtype.kind in "iu":
            if any(divides):
                return Mismatch("integers are divided")
            return rw.replace(node, [rw.op("Mul", x, np.asarray(one * two))])
        if x.dtype not in FLOAT_TYPES:
            return Mismatch("the element type of {} is not known", x.name)
        factors = [array.astype(np.float64) for array in (one, two)]
        op = "Div" if all(divides) else "Mul"
        with np.errstate(all="ignore"):
            factors = [1 / f if d and op == "Mul" else f for f, d in zip(factors, divides, strict=True)]
        sizes = [np.abs(f) for f in factors]
        if not all(np.isfinite(s).all() for s in sizes):
            return Mismatch("the constants give infinities or NaN")
        if not (all((s >= 1).all() for s in sizes) or all((s <= 1).all() for s in sizes)):
            return Mismatch("one constant makes numbers larger, the other smaller")
        product = narrowed(factors[0] * factors[1], one.dtype, "constants")
        if _vanishes(factors, product):
            return Mismatch("the new constants leave the range of their element type")
        return rw.replace(node, [rw.op(op, x, product)])


def _vanishes(factors: list[np.ndarray], product: np.ndarray) -> bool:
    """Whether a number became so small that it loses digits."""
    tiny = 2.0 ** (-14 if product.dtype == np.float16 else -126)
    exact = factors[0] * factors[1]
    return bool(((exact != 0) & (np.abs(product.astype(np.float64)) < tiny)).any() or (~exact.astype(bool)).any())


class FuseConsecutiveAdd(OpRule):
    """Join two additions or subtractions of constants into one.

    The two must not cancel each other, since what they round away in between would come back.
    """

    name = "fuse_consecutive_add"
    ops = ("Add", "Sub")
    opsets = "7-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Add the constants."""
        found = _pair(node, ("Add", "Sub"))
        if not isinstance(found, tuple):
            return found
        x, one, two, first = found
        signs = (-1 if first.op == "Sub" else 1, -1 if node.op == "Sub" else 1)
        if one.dtype.kind in "iu":
            total = (one if signs[0] > 0 else 0 - one) + (two if signs[1] > 0 else 0 - two)
            return rw.replace(node, [rw.op("Add", x, np.asarray(total).astype(one.dtype))])
        if x.dtype not in FLOAT_TYPES:
            return Mismatch("the element type of {} is not known", x.name)
        a, b = one.astype(np.float64) * signs[0], two.astype(np.float64) * signs[1]
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            return Mismatch("the constants hold infinities or NaN")
        if (np.sign(a) * np.sign(b) < 0).any():
            return Mismatch("the constants cancel each other")
        return rw.replace(node, [rw.op("Add", x, narrowed(a + b, one.dtype, "constants"))])


class FuseDivMul(OpRule):
    """Divide by a number instead of multiplying by its reciprocal, which is a `Reciprocal` or a `Div` of 1.

    The reciprocal of a denormal number overflows, below 2^-128 in 32 bits and 2^-16 in 16: there the product is an
    infinity, or NaN where the other factor is 0, and the quotient the number that exact arithmetic gives.
    """

    name = "fuse_div_mul"
    ops = ("Mul",)
    opsets = "7-"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "DivMulFusion"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look for the reciprocal on either side."""
        outcome: Outcome = None
        for value, other in ((node.input(0), node.input(1)), (node.input(1), node.input(0))):
            if value is None or other is None or value.producer is None:
                continue
            below = _denominator(value.producer)
            if below is None:
                continue
            if value.producer.graph is not node.graph:
                outcome = Mismatch("{} is computed in an outer graph", value.name)
            elif not value.one_use:
                outcome = Mismatch("{} has other readers", value.name)
            elif value.dtype not in FLOAT_TYPES:
                outcome = Mismatch("the element type of {} is not known to be a float", value.name)
            else:
                return rw.replace(node, [rw.op("Div", other, below)])
        return outcome


def _denominator(node: Node) -> Value | None:
    if node.op == "Reciprocal":
        return node.input(0)
    one, below = node.input(0), node.input(1)
    if node.op != "Div" or one is None or below is None:
        return None
    array = one.const()
    if array is None or array.size != 1 or array.reshape(-1)[0] != 1:
        return None
    return below if not array.ndim or (below.rank is not None and array.ndim <= below.rank) else None
