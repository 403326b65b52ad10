"""The operators that commute with a permutation, and how: one table entry each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.ir.forms import BROADCASTING
from graphopt.operators.reduce import POSITIONS, REDUCTIONS
from graphopt.operators.transpose import Perm
from graphopt_passes.elementwise import UNARY
from graphopt_passes.fusion.transposes import axes
from graphopt_passes.fusion.transposes.permuted import Permuted, Sources, broadcasting, concat, product

_REDUCTIONS = REDUCTIONS - {"ReduceMax", "ReduceMin"}
"""Without `ReduceMax` and `ReduceMin`: in the presence of NaN their result in runtimes depends on the order."""

_ONE_OPERAND: Mapping[str, Callable[[Node, Perm], Permuted]] = {
    **dict.fromkeys(UNARY, axes.unchanged),
    **dict.fromkeys((*_REDUCTIONS, *POSITIONS), axes.reduction),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax", "TopK"), axes.one_axis),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), axes.normalization),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), axes.quantization),
    **dict.fromkeys(("Expand", "Tile"), axes.repeated),
    "CumSum": axes.running_sum, "Gather": axes.gather, "Pad": axes.pad, "Resize": axes.resize, "Slice": axes.cuts,
    "Split": axes.parts, "Squeeze": axes.squeeze, "Unsqueeze": axes.unsqueeze,
}  # fmt: skip
"""Operators of which only the first operand is permuted."""

_SEVERAL_OPERANDS: Mapping[str, Callable[[Node, Sources, Perm], Permuted]] = {
    **dict.fromkeys((*BROADCASTING, "PRelu"), broadcasting),
    "Concat": concat,
    "MatMul": product,
}
"""Operators of several operands, permuted alike."""

OPERATORS = frozenset((*_ONE_OPERAND, *_SEVERAL_OPERANDS))
"""Operators that can be done before a permutation as well as after it."""


def permuted(node: Node, sources: Sources, perm: Perm) -> Permuted:
    """Apply an operator to its operands before their permutation.

    Args:
        node: one of `OPERATORS`.
        sources: its permuted operands, each with its source; all operands that are not constant must be among them.
        perm: the permutation; axis `i` of the operand is axis `perm[i]` of the source.
    """
    if node.op in _SEVERAL_OPERANDS:
        return _SEVERAL_OPERANDS[node.op](node, sources, perm)
    x = node.operand(0)
    if x not in sources or any(value in sources for value in node.inputs[1:]):
        raise Decline("the transposed value is not its first operand only")
    change = _ONE_OPERAND[node.op](node, perm)
    return replace(change, operands={**change.operands, 0: sources[x]})


def moving_inputs(node: Node, rank: int) -> list[Value]:
    """The operands of one of `OPERATORS` that must be permuted alike by a permutation of `rank` axes."""
    op = node.op
    if op in _ONE_OPERAND:
        return [node.operand(0)]
    freely = op == "Concat" or (op == "MatMul" and rank > 2)
    found = []
    for value in node.operands:
        if value.rank != rank or value.is_const:
            continue
        if freely or not {*value.dims()} <= _ONE:
            found.append(value)
    return found


_ONE = frozenset({1})
