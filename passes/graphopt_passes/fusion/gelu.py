"""The Gaussian error linear unit, written out."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.ir import Graph, Node, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.fusion.factors import Factors, close, factors, factors_of, number


class FuseGelu(OpRule):
    """Recognize `Gelu`, with `Erf` or in the approximation with `Tanh`, in whatever order its factors are multiplied.

    `0.5 * x * (1 + erf(x / sqrt(2)))` and `0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))`, for float32.
    """

    name = "fuse_gelu"
    ops = ("Mul", "Div")
    opsets = "20-"
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {"onnxsim": "fuse_gelu", "onnxruntime": "GeluFusionL1"}
    any_scale: ClassVar[bool] = False
    """Whether to take a product without the factor 0.5, too, which may have gone into weights; 2 is multiplied then."""

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Take the product apart."""
        if not any(v is not None and _gate(v) is not None for v in _near(node)):
            return None
        product = factors_of(node)
        if len(product.values) != 2:
            return None
        for x, gate in (product.values, product.values[::-1]):
            curve = _gate(gate)
            if curve is None:
                continue
            if not close(product.scale, 0.5) and not (self.any_scale and _is_whole(node)):
                return None
            problem = _problem(node, x, gate, curve, product)
            if problem is not None:
                return problem
            fused = self.fused(x, curve, rw)
            if fused is not None and not close(product.scale, 0.5):
                fused = rw.op("Mul", fused, np.array(2 * product.scale, np.float32))
            return fused if fused is None else rw.replace(node, [fused])
        return None

    def fused(self, x: Value, curve: Node, rw: Rewriter) -> Value | None:
        """The one operator, given the `Erf` or `Tanh`; None where that form is not this pass's business."""
        gelu: Value = rw.op("Gelu", x, approximate="tanh" if curve.op == "Tanh" else None)
        return gelu


def completes_gelu(node: Node) -> bool:
    """Whether a product is the last of a written-out Gelu: one by 0.5 of what `Erf` or `Tanh` gates."""
    if not any(value is not None and _gate(value) is not None for value in _near(node)):
        return False
    product = factors_of(node)
    return len(product.values) == 2 and close(product.scale, 0.5)


def _is_whole(node: Node) -> bool:
    """Whether no other factor that is a number is multiplied with what a node computes."""
    value = node.output(0)
    reader = next(iter(value.users)) if value is not None and value.one_use else None
    return reader is None or reader.op not in ("Mul", "Div") or all(number(v) is None for v in reader.inputs)


def _near(node: Node) -> list[Value | None]:
    """What a node reads, and what the products before it read."""
    found = list(node.inputs)
    for value in node.inputs:
        if value is not None and value.producer is not None and value.producer.op in ("Mul", "Div"):
            found.extend(value.producer.inputs)
    return found


def _gate(value: Value) -> Node | None:
    """The `Erf` or `Tanh` that 1 is added to."""
    node = value.producer
    if node is None or node.op != "Add":
        return None
    for one, other in (node.inputs, node.inputs[::-1]):
        if other is None or other.producer is None or other.producer.op not in ("Erf", "Tanh"):
            continue
        if number(one) == 1.0:
            return other.producer
    return None


def _problem(node: Node, x: Value, gate: Value, curve: Node, product: Factors) -> Mismatch | None:
    argument, bend = curve.input(0), curve.output(0)
    if argument is None or bend is None or gate.producer is None or gate.producer.graph is not node.graph:
        return Mismatch("{} is computed in an outer graph", gate.name)
    if not gate.one_use or not bend.one_use:
        return Mismatch("{} has other readers", gate.name)
    if x.dtype != TensorProto.FLOAT:
        return Mismatch("the element type of {} is not float32", x.name)
    ranks = [product.rank, *(v.rank or 0 for v in gate.producer.inputs if v is not None and v.is_const)]
    if max(ranks) and (x.rank is None or max(ranks) > x.rank):
        return Mismatch("the constants may add axes to {}", x.name)
    inner = factors(argument, node.graph)
    if inner.rank and (x.rank is None or inner.rank > x.rank):
        return Mismatch("the constants may add axes to {}", x.name)
    if curve.op == "Erf":
        fits = inner.is_of(x, 1, math.sqrt(0.5))
    else:
        fits = close(inner.scale, math.sqrt(2 / math.pi)) and _is_cubic(inner.values, x, node.graph)
    return None if fits else Mismatch("the argument of {} is not that of Gelu", curve.op)


def _is_cubic(values: list[Value], x: Value, graph: Graph) -> bool:
    """Whether the product is `x + 0.044715 * x ** 3`, or `x * (1 + 0.044715 * x ** 2)`."""
    rest = [value for value in values if value is not x]
    if len(rest) != 1 or len(values) > 2:
        return False
    node = rest[0].producer
    if node is None or node.op != "Add" or not rest[0].one_use or node.graph is not graph:
        return False
    whole = len(values) == 1
    for first, second in (node.inputs, node.inputs[::-1]):
        if first is None or second is None:
            continue
        starts = first is x if whole else number(first) == 1.0 and not first.rank
        term = factors(second, graph) if starts else None
        if term is not None and not term.rank and term.is_of(x, 3 if whole else 2, 0.044715):
            return True
    return False
