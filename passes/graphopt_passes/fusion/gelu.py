"""Written-out `Gelu`, with its factors multiplied in any order."""

from __future__ import annotations

import math

import numpy as np

from graphopt.match import FLOAT32, Either, Match, OpBuilder, Pattern, Product
from graphopt.match.factors import close, factors_of, number
from graphopt.operators.linear import narrowed
from graphopt.rewrite import Decline, Node, Numerics, PatternRule, Rewriter, Value


def gelu_by_erf(op: OpBuilder, x: Pattern) -> Pattern:
    """`scale * x * (1 + erf(x / sqrt(2)))`; the scale is 0.5 unless a part of it went into weights.

    JAX writes the sum as `erfc(-x / sqrt(2))`, which is `1 - erf(-x / sqrt(2))`.
    """
    negated = op.Erf(Product(x, scale=-math.sqrt(0.5)))
    return Either(
        _gated(op, x, op.Erf(Product(x, scale=math.sqrt(0.5)))), Product(x, op.Sub(1.0, negated), scale="scale")
    )


def gelu_by_tanh(op: OpBuilder, x: Pattern) -> Pattern:
    """`scale * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))`."""
    root = math.sqrt(2 / math.pi)
    cubic = Product(op.Add(x, Product(x, x, x, scale=0.044715)), scale=root)
    factored = Product(x, op.Add(1.0, Product(x, x, scale=0.044715)), scale=root)
    return _gated(op, x, op.Tanh(Either(cubic, factored)))


def _gated(op: OpBuilder, x: Pattern, curve: Pattern) -> Pattern:
    """`scale * x * (1 + curve)`, or `x * (0.5 + 0.5 * curve)`."""
    halved = Product(x, op.Add(0.5, Product(curve, scale=0.5)))
    return Either(Product(x, op.Add(1.0, curve), scale="scale"), halved)


def is_halved(m: Match) -> bool:
    """Whether the scale of a written-out Gelu is 0.5, as in `Gelu`."""
    return m.scale is None or close(m.scale, 0.5)


class FuseGelu(PatternRule):
    """Recognize `Gelu`, with `Erf` or approximated with `Tanh`, with its factors multiplied in any order.

    `0.5 * x * (1 + erf(x / sqrt(2)))` and `0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))`, for float32;
    `0.5` may be multiplied into the sum.
    """

    opsets = "20-"
    numerics = Numerics.ROUNDING
    peers = {"onnxsim": "fuse_gelu", "onnxruntime": "GeluFusionL1"}

    def pattern(self, op: OpBuilder, x: Pattern = FLOAT32) -> Pattern:
        return Either(gelu_by_erf(op, x), gelu_by_tanh(op, x))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        if not is_halved(m):
            raise Decline
        approximate = "tanh" if any(node.op == "Tanh" for node in m.owners) else None
        return rw.op("Gelu", m.x, approximate=approximate)


def with_any_scale(gelu: Value, m: Match, rw: Rewriter) -> Value:
    """`2 * scale * Gelu(x)`, where the scale is not 0.5 since a part of it went into weights."""
    if is_halved(m):
        return gelu
    reader = m.root.result.read_by("Mul", "Div")
    if reader is not None and any(number(v) is not None for v in reader.inputs):
        raise Decline
    return rw.op("Mul", gelu, narrowed(np.array(2 * m.scale), np.dtype(np.float32), "factors"))


def completes_gelu(node: Node) -> bool:
    """Whether a node is the last product of a written-out Gelu: `0.5 * x * (1 + curve)`, with `Erf` or `Tanh`."""
    above = [maker for value in node.operands if (maker := value.made_by("Mul", "Div"))]
    if not any(_gates(value) for reader in (node, *above) for value in reader.operands):
        return False
    product = factors_of(node)
    return len(product.values) == 2 and close(product.scale, 0.5)


def _gates(value: Value) -> bool:
    """Whether a value is 1 plus an `Erf` or `Tanh`."""
    add = value.made_by("Add")
    pairs = (add.operands, add.operands[::-1]) if add is not None else ()
    return any(curve.made_by("Erf", "Tanh") and number(one) == 1.0 for curve, one in pairs)
