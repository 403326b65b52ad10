"""Uniform operands: all elements are equal, whatever the size."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from graphopt.analysis.kernels import Array
from graphopt.analysis.purity import is_removable
from graphopt.analysis.shapes.uniform import UniformAnalysis
from graphopt.ir import FLOAT_TYPES, Graph, Model, Node
from graphopt.rewrite import Decline, GraphPass, Numerics, Rewriter
from graphopt_passes.elimination.neutral import NEUTRAL
from graphopt_passes.folding.store import store

_DECIDED = frozenset({"And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Or", "Xor"})
"""Operators whose result may be uniform although an operand is not."""

_BROADCASTS = _DECIDED | {"Add", "Div", "Mul", "Sub", "Where"}

_FILLED = frozenset({"ConstantOfShape", "Range"})
_CHOOSING = frozenset({"And", "Or", "Where", "Xor"})

_MOST_BYTES = 1 << 12
"""Most bytes of a result that is stored."""

_MOST_IN_ROW = 1 << 14
"""Most elements of a row that is stored."""


class FoldUniformOperands(GraphPass):
    """Simplify operators with uniform operands, whose elements are all equal, even if their size is dynamic.

    `And`, `Or`, `Xor`, `Add`, `Sub`, `Mul` and `Div` with their neutral element become the other operand, `Xor` with
    true becomes `Not`, `Where` with a uniform condition the selected operand, a comparison with a uniform result a
    constant. If another operand has the shape of the result, a uniform tensor becomes a scalar, and rows that `Gather`
    takes from a constant table at a uniform position become the row, like the token types of BERT. Uniform values are
    followed through `ConstantOfShape`, reshapes, comparisons of ranges and of a value with itself. Broadcasting must
    not enlarge the operand that is kept.
    """

    numerics = Numerics.ROUNDING
    opsets = "8-"  # from here on all operators broadcast alike, and `Expand` exists

    def run_model(self, model: Model, rw: Rewriter) -> None:
        graphs = [graph for graph in model.graphs() if self.knows_opset(graph.opset())]
        if not any(map(_may_have_uniform, graphs)):
            return
        known = UniformAnalysis(rw.shapes)
        for graph in self.entered(model, rw):
            if self.knows_opset(graph.opset()):
                self._graph(graph, known, rw)

    def _graph(self, graph: Graph, known: UniformAnalysis, rw: Rewriter) -> None:
        for node in graph.listed():
            if node.op not in _BROADCASTS or node.removed or not is_removable(node):
                continue
            operands = [known.of(value) for value in node.inputs]
            result = known.of(node.outputs[0]) if node.op in _DECIDED else None
            if result is None and {*map(id, operands)} == _NOTHING and not _rows(node, known):
                continue
            with rw.attempt(node):
                _rewrite(node, operands, result, known, rw)


_NOTHING = {id(None)}


def _may_have_uniform(graph: Graph) -> bool:
    """Whether an operand may be uniform without being constant; constants are left to other passes."""
    for node in graph.listed():
        op = node.op
        if op in _FILLED or (op == "Gather" and node.operand(0).is_const and node.operand(1).made_by("Expand")):
            return True
        if op in _BROADCASTS:
            first, *others = node.inputs
            if first in others or (op in _CHOOSING and any(v.is_const for v in node.operands)):
                return True
    return False


def _rewrite(
    node: Node, operands: list[Array | None], result: Array | None, known: UniformAnalysis, rw: Rewriter
) -> None:
    filled = _rows(node, known) | _filled(node, operands)
    if result is None and not filled:
        _kept(node, operands)  # declines at nearly all nodes, before shapes are analysed
    shape = known.shapes.dims(node.result)
    if result is not None:
        dims = [dim for dim in shape if isinstance(dim, int)]
        if len(dims) == len(shape) and math.prod(dims) * result.itemsize <= _MOST_BYTES:
            store(rw, node, [np.full(dims, result)])
            return
    fits = [known.shapes.shape(value) == shape for value in node.operands]
    try:
        kept, negated = _kept(node, operands)
        value = node.operand(kept)
        if not fits[kept]:
            raise Decline("broadcasting may enlarge {}", value.name)
        rw.replace(node, [rw.op("Not", value) if negated else value])
    except Decline:
        if not filled or not any(fit for index, fit in enumerate(fits) if index not in filled):
            raise
        rw.set_inputs(node, dict(filled), "one number, or row")


def _filled(node: Node, operands: list[Array | None]) -> dict[int, Array]:
    """The computed operands that are uniform, with the number that can replace each."""
    return {
        index: operand for index, (value, operand) in enumerate(zip(node.operands, operands, strict=True))
        if operand is not None and value.producer and not value.is_const and value.dtype != TensorProto.STRING
    }  # fmt: skip


def _rows(node: Node, known: UniformAnalysis) -> dict[int, Array]:
    """The operands that hold one row of a constant table at all positions, each with that row."""
    found = {}
    for index, value in enumerate(node.operands):
        gather = value.made_by("Gather")
        if gather is None or gather.attr("axis", 0) or not gather.operand(0).is_const or value.dtype not in FLOAT_TYPES:
            continue
        (length, *sizes), position = gather.operand(0).sizes(), known.of(gather.operand(1))
        if position is not None and -length <= position < length and math.prod(sizes) <= _MOST_IN_ROW:
            found[index] = np.array(gather.operand(0).array()[int(position)])
    return found


def _kept(node: Node, operands: list[Array | None]) -> tuple[int, bool]:
    """The index of the operand that the result equals if shapes agree, and whether it is negated."""
    if node.op == "Where" and operands[0] is not None:
        return (1 if bool(operands[0]) else 2), False
    unit, either_side = NEUTRAL.get(node.op, (None, False))
    for index in (1, 0) if either_side else (1,):
        operand = operands[index]
        if unit is None or operand is None:
            continue
        if node.op == "Xor" and bool(operand):
            return 1 - index, True
        if operand == unit:
            _check_sign(node, operand)
            return 1 - index, False
    raise Decline


def _check_sign(node: Node, zero: Array) -> None:
    """Decline if the sign of a zero may change: -0.0 is neutral in sums, +0.0 in differences."""
    # The type of the number is always known; the types of the operands may not be.
    signed = node.op in ("Add", "Sub") and zero.dtype.kind == "f"
    if signed and bool(np.signbit(zero)) is not (node.op == "Add"):
        raise Decline("a zero would change its sign")
