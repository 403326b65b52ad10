"""Which operators can be done on permuted inputs, and which of their inputs are permuted then."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch
from graphopt_passes.fusion.transposes import along, axes
from graphopt_passes.fusion.transposes.permuted import (
    BROADCASTING,
    UNARY,
    Perm,
    Permuted,
    Sources,
    broadcasting,
    unary,
)

FORMS: Mapping[str, Callable[[Node, Sources, Perm], Permuted | Mismatch]] = {
    **dict.fromkeys(UNARY, unary),
    **dict.fromkeys(BROADCASTING, broadcasting),
    **dict.fromkeys(axes.REDUCTIONS, axes.reduction),
    **dict.fromkeys(("Softmax", "LogSoftmax"), axes.softmax),
    **dict.fromkeys(("Split", "TopK", "Hardmax"), along.one_axis),
    **dict.fromkeys(along.ARG_REDUCTIONS, along.arg_reduction),
    **dict.fromkeys(along.NORMALIZATIONS, along.normalization),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), along.quantization),
    "Concat": axes.concat,
    "CumSum": along.running_sum,
    "Expand": along.expand,
    "Gather": along.gather,
    "MatMul": along.product,
    "Pad": axes.pad,
    "Resize": along.resize,
    "Slice": axes.sliced,
    "Squeeze": axes.squeeze,
    "Tile": along.tile,
    "Unsqueeze": axes.unsqueeze,
}
"""What can be done before a permutation as well as after it."""

_SEVERAL = frozenset((*BROADCASTING, "Concat", "MatMul"))


def permuted(node: Node, sources: Sources, perm: Perm) -> Permuted | Mismatch:
    """The operator on what its inputs are permuted from.

    Args:
        node: an operator of `FORMS`.
        sources: those of its inputs that are permuted, and from what; all that is not constant must be among them.
        perm: the permutation; axis `i` of the input is axis `perm[i]` of the source.
    """
    return FORMS[node.op](node, sources, perm)


def moving_inputs(node: Node, rank: int) -> list[Value]:
    """The inputs of an operator of `FORMS` that have to be permuted alike for a permutation of `rank` axes.

    Args:
        node: the operator.
        rank: how many axes are permuted.
    """
    if node.op not in _SEVERAL:
        return [value for value in node.inputs[:1] if value is not None]
    found = [value for value in node.inputs if value is not None and value.rank == rank and not value.is_const]
    if node.op == "MatMul" and rank > 2:
        return found
    return [value for value in found if node.op == "Concat" or any(dim != 1 for dim in value.shape or ())]
