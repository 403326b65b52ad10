"""How an operator commutes with a permutation: what to change so that its results are permuted, not its operands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np

from graphopt.operators.transpose import Perm
from graphopt.records import dataclass
from graphopt.rewrite import Decline, Node, Rewriter, Value

_MOST_BYTES = 1 << 20
"""A larger constant is not duplicated in another axis order."""

Operand = Value | np.ndarray | None
Sources = Mapping[Value, Value]
"""Maps each permuted operand of an operator to the value before its permutation."""


@dataclass(frozen=True, slots=True)
class Permuted:
    """An operator on unpermuted operands, and the permutation that its results then need.

    Attributes:
        perm: for each result: axis `i` of the old result is axis `perm[i]` of the new one.
        settings: the attributes that differ, including lists that are operands in some opsets.
        operands: the operands that differ, by position; arrays become constants.
    """

    perm: Perm
    settings: Mapping[str, Any] = field(default_factory=dict)
    operands: Mapping[int, Operand] = field(default_factory=dict)

    def write(self, node: Node, rw: Rewriter) -> tuple[Value, ...]:
        """Write the operator on unpermuted operands, given the original `node`."""
        operands = [self.operands.get(index, value) for index, value in enumerate(node.inputs)]
        return rw.outputs(len(node.outputs), node.op_type, *operands, **{**node.attrs, **self.settings})


def _from(sources: Sources, value: Value, perm: Perm) -> Operand:
    """An operand in the axis order of the source."""
    return sources[value] if value in sources else _rearranged(value, perm)


def _rearranged(value: Value, perm: Perm) -> Operand:
    """An operand that is not permuted, in the axis order of the source: a constant, or one with sizes of 1 alone."""
    rank, shape = len(perm), value.shape
    if shape is not None and len(shape) <= rank and all(dim == 1 for dim in shape):
        return value
    array = value.const(_MOST_BYTES)
    if array is None or array.dtype == object:
        raise Decline("{} is neither transposed with the same permutation nor a small constant", value.name)
    if array.ndim > rank:
        raise Decline("{} would raise the rank", value.name)
    whole = array.reshape((1,) * (rank - array.ndim) + array.shape)
    return np.ascontiguousarray(whole.transpose(np.argsort(perm)))


def broadcasting(node: Node, sources: Sources, perm: Perm) -> Permuted:
    """Broadcasting operators whose operands are permuted alike or constant."""
    if not node.graph.broadcasts(node.op):
        raise Decline("{} does not broadcast both operands at this opset", node.op)
    if node.op == "PRelu" and node.operand(0) not in sources:
        raise Decline("only the slope is transposed")
    operands = {index: _from(sources, node.operand(index), perm) for index in range(len(node.inputs))}
    return Permuted(perm, operands=operands)


def concat(node: Node, sources: Sources, perm: Perm) -> Permuted:
    """`Concat` along the same axis, at its new position."""
    values = [node.operand(index) for index in range(len(node.inputs))]
    if any(value not in sources and value.rank != len(perm) for value in values):
        raise Decline("not all inputs are transposed with the same permutation")
    operands = {index: _from(sources, value, perm) for index, value in enumerate(values)}
    return Permuted(perm, {"axis": perm[axis_of(node, perm)]}, operands)


def product(node: Node, sources: Sources, perm: Perm) -> Permuted:
    """`MatMul` by one matrix, if the summed axis stays last, or of both operands permuted alike in their batch axes."""
    a, b, rank = node.operand(0), node.operand(1), len(perm)
    if a not in sources:
        raise Decline("only the right operand is transposed")
    if b.rank == 2 and b not in sources:
        if rank < 2 or perm[-1] != rank - 1:
            raise Decline("the contracted axis would move")
        return Permuted(perm, operands={0: sources[a]})
    if perm[-2:] != (rank - 2, rank - 1):
        raise Decline("the contracted axis or the row axis would move")
    if b not in sources and b.rank != rank:
        raise Decline("{} is not transposed with the same permutation", b.name)
    return Permuted(perm, operands={0: sources[a], 1: _from(sources, b, perm)})


def axis_of(node: Node, perm: Perm) -> int:
    """The `axis` attribute of an operator, counted from the front."""
    axis = node.attr("axis")
    if not isinstance(axis, int) or not -len(perm) <= axis < len(perm):
        raise Decline("the axis of {} does not exist", node.op)
    return axis % len(perm)
