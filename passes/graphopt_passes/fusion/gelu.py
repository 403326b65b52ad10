"""`Gelu` that is written out, whichever way its factors are multiplied."""

from __future__ import annotations

import math

import numpy as np

from graphopt.match import FLOAT32, Either, Match, OpBuilder, Pattern, Product
from graphopt.match.factors import close, factors_of, number
from graphopt.operators.linear import narrowed
from graphopt.rewrite import Decline, Node, Numerics, PatternRule, Rewriter, Value


def gelu_by_erf(op: OpBuilder, x: Pattern) -> Pattern:
    """`x * (1 + erf(x / sqrt(2)))`, times a scale, which is 0.5 where nothing of it went into weights.

    JAX has `erfc(-x / sqrt(2))` for the sum, which is 1 minus the curve of what is negated.
    """
    negated = op.Erf(Product(x, scale=-math.sqrt(0.5)))
    return Either(
        _gated(op, x, op.Erf(Product(x, scale=math.sqrt(0.5)))), Product(x, op.Sub(1.0, negated), scale="scale")
    )


def gelu_by_tanh(op: OpBuilder, x: Pattern) -> Pattern:
    """`x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))`, times a scale."""
    root = math.sqrt(2 / math.pi)
    cubic = Product(op.Add(x, Product(x, x, x, scale=0.044715)), scale=root)
    factored = Product(x, op.Add(1.0, Product(x, x, scale=0.044715)), scale=root)
    return _gated(op, x, op.Tanh(Either(cubic, factored)))


def _gated(op: OpBuilder, x: Pattern, curve: Pattern) -> Pattern:
    """`x * (1 + curve)`, times a scale; or `x * (0.5 + 0.5 * curve)`, which has none."""
    halved = Product(x, op.Add(0.5, Product(curve, scale=0.5)))
    return Either(Product(x, op.Add(1.0, curve), scale="scale"), halved)


def is_halved(m: Match) -> bool:
    """Whether a product is half of the curve's, as it is in `Gelu`."""
    return m.scale is None or close(m.scale, 0.5)


class FuseGelu(PatternRule):
    """Recognize `Gelu`, with `Erf` or in the approximation with `Tanh`, in whatever order its factors are multiplied.

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
    """What a product is that has another factor than 0.5, which may have gone into weights."""
    if is_halved(m):
        return gelu
    reader = m.root.result.read_by("Mul", "Div")
    if reader is not None and any(number(v) is not None for v in reader.inputs):
        raise Decline
    return rw.op("Mul", gelu, narrowed(np.array(2 * m.scale), np.dtype(np.float32), "factors"))


def completes_gelu(node: Node) -> bool:
    """Whether a product is the last of a written-out Gelu: one by 0.5 of what `Erf` or `Tanh` gates."""
    above = [maker for value in node.operands if (maker := value.made_by("Mul", "Div"))]
    if not any(_gates(value) for reader in (node, *above) for value in reader.operands):
        return False
    product = factors_of(node)
    return len(product.values) == 2 and close(product.scale, 0.5)


def _gates(value: Value) -> bool:
    """Whether 1 is added to an `Erf` or `Tanh`."""
    add = value.made_by("Add")
    pairs = (add.operands, add.operands[::-1]) if add is not None else ()
    return any(curve.made_by("Erf", "Tanh") and number(one) == 1.0 for curve, one in pairs)
