"""Constants that are broadcast to a batch."""

from __future__ import annotations

import numpy as np

from graphopt.analysis import is_deterministic
from graphopt.ir.types import element_count, is_told
from graphopt.operators import Transpose
from graphopt.operators.softmax import SOFTMAXES, Softmax
from graphopt.records import dataclass
from graphopt.rewrite import Decline, Dim, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.elementwise import EXPANDED, TOGETHER, UNARY
from graphopt_passes.fusion.reshapes import RESHAPES

_SOURCES = ("ConstantOfShape", "Expand", "Tile")
_NORMALIZATIONS = (*sorted(SOFTMAXES), "LayerNormalization")
_OF_MATRIX, _MOST_NODES = 2, 200
"""The rank of a matrix; most nodes that are examined to see whether a value depends on constants only."""


@dataclass(frozen=True, slots=True)
class _Repeated:
    """A constant `value` that the operator `source` repeats along one axis, counted from the front."""

    value: Value
    source: Node
    axis: int

    @property
    def count(self) -> Dim:
        """Number of repetitions."""
        return self.value.dims()[self.axis]

    @property
    def behind(self) -> int:
        """The axis counted from the end, 1 for the last one."""
        return len(self.value.dims()) - self.axis

    @classmethod
    def of(cls, value: Value, reader: Node) -> _Repeated:
        """Read a value; declines if it is no repeated constant, or the number of repetitions has no symbol."""
        source = value.source(*_SOURCES, reader=reader)
        dims, filled = value.dims(), source.op == "ConstantOfShape"
        if not filled and not _is_constant(source.operand(0)):
            raise Decline
        start = tuple(size if isinstance(size, int) else 1 for size in dims) if filled else source.operand(0).dims()
        start = (*(1,) * (len(dims) - len(start)), *start)
        axes = [axis for axis, size in enumerate(dims) if size != start[axis]]
        others = [size for axis, size in enumerate(dims) if axis not in axes]
        if len(axes) != 1 or start[axes[0]] != 1 or not is_told(dims[axes[0]]):
            raise Decline("{} is not repeated along one axis", value.name)
        if not all(isinstance(size, int) and size > 0 for size in others):
            raise Decline("the sizes of {} are not known", value.name)
        return cls(value, source, axes[0])

    def once(self, rw: Rewriter) -> Value:
        """The constant, unsqueezed to the rank of the repeated value."""
        dims, x = self.value.dims(), self.source.operand(0)
        if self.source.op == "ConstantOfShape":
            sizes = [1 if axis == self.axis else size for axis, size in enumerate(dims)]
            return rw.again(self.source, rw.constant(np.array(sizes, np.int64)))
        missing = len(dims) - len(x.dims())
        return rw.op("Unsqueeze", x, axes=tuple(range(missing))) if missing else x

    def again(self, made: Value, result: Value, axis: int, rw: Rewriter) -> Value:
        """Another value `made`, repeated as often along `axis`."""
        shape, old, dims = self.source.operands[-1], self.value.dims(), result.dims()
        if axis != self.axis or len(dims) != len(old) or (self.source.op != "Tile" and dims != old):
            place = np.array([self.axis - (len(old) - shape.size(0))], np.int64)
            count = rw.op("Gather", shape, rw.constant(place), axis=0)
            ones = [rw.constant(np.ones(length, np.int64)) for length in (axis, len(dims) - axis - 1) if length]
            shape = rw.op("Concat", *ones[: axis > 0], count, *ones[axis > 0 :], axis=0) if ones else count
        repeated = rw.op("Expand", made, shape)
        repeated.type = result.type  # inference may not know the contents of the shape operand
        return repeated


def _is_constant(value: Value) -> bool:
    """Whether a value depends on constants only."""
    seen, stack = {value}, [value]
    while stack:
        at = stack.pop()
        maker = at.producer
        if at.is_const:
            continue
        if maker is None or maker.subgraphs or not is_deterministic(maker) or len(seen) > _MOST_NODES:
            return False
        new = [each for each in maker.operands if each not in seen]
        seen.update(new)
        stack += new
    return True


class MoveRepetitionBehindOperator(OpRule):
    """Move the repetition of a constant along a batch behind the operator that reads it, so that the operator folds.

    Queries of detection and segmentation networks are expanded to the batch, though their first layers are the same for
    all images up to the first operator that reads image features. It applies to operators that do not mix the batch
    axis: elementwise ones, `Softmax` and `LayerNormalization` along other axes, `MatMul`, `Concat`, `Transpose` and
    reshapes. A product with a different matrix per image reads the constant unrepeated.
    """

    # No pattern: the operators have different numbers of operands.
    ops = (*UNARY, *TOGETHER, "PRelu", *RESHAPES, *_NORMALIZATIONS, "Concat", "MatMul", "Transpose")
    sources = _SOURCES
    opsets = "8-"
    numerics = Numerics.ROUNDING

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        repeated = {value: _Repeated.of(value, node) for value in node.operands if value.made_by(*_SOURCES)}
        if not repeated or len(node.outputs) != 1:
            raise Decline
        first, *others = repeated.values()
        if any(other.count != first.count for other in others):
            raise Decline("{} and {} are not repeated equally often", first.value.name, others[0].value.name)
        if node.op == "MatMul" and not others and _is_multiplied_apart(node, first):
            return rw.set_input(node, node.inputs.index(first.value), first.once(rw))
        read = node.operands[:1] if node.op in RESHAPES else node.operands
        if not all(value in repeated or _is_constant(value) for value in read):
            raise Decline("{} has operands that are neither repeated nor constant", node.result.name)
        axis, dims = _axis(node, list(repeated.values())), node.result.dims()
        if dims[axis] != first.count or node.result.dtype not in EXPANDED:
            raise Decline(
                "{} is not repeated along one axis, or Expand may not support its element type", node.result.name
            )
        inputs = [value and (repeated[value].once(rw) if value in repeated else value) for value in node.inputs]
        if node.op in RESHAPES:
            sizes = [1 if at == axis else size for at, size in enumerate(dims)]
            made = rw.op("Reshape", inputs[0], rw.constant(np.array(sizes, np.int64)))
        else:
            made = rw.again(node, *inputs)
        return rw.replace(node, [first.again(made, node.result, axis, rw)])


def _axis(node: Node, repeated: list[_Repeated]) -> int:
    """The axis of the result along which it repeats; declines if the operator mixes it with others."""
    first, x = repeated[0], node.operand(0)
    if node.op == "Transpose":
        return Transpose.of(node).perm.index(first.axis)
    if node.op in RESHAPES and first.value is x:
        return _axis_of_view(first, node.result)
    if node.op in RESHAPES:
        fits = False
    elif node.op == "Concat":
        fits = len(repeated) == len(set(node.operands)) and first.axis != x.axis(node.attr("axis"))
    elif node.op in _NORMALIZATIONS:
        axes = Softmax.of(node).axes if node.op in SOFTMAXES else range(x.axis(node.attr("axis", -1)), len(x.dims()))
        fits = [each.value for each in repeated] == [x] and first.axis not in axes
    elif node.op == "MatMul":
        left, right = node.operands
        matrices = min(len(left.dims()), len(right.dims())) >= _OF_MATRIX  # the axis of a vector is contracted
        if matrices and first.behind == _OF_MATRIX and first.value is left and len(repeated) == 1 and left is not right:
            return len(node.result.dims()) - _OF_MATRIX  # rows are multiplied independently
        fits = matrices and first.behind > _OF_MATRIX and _is_alone(node, repeated)
    else:
        fits = _is_alone(node, repeated)
    if not fits or len({each.behind for each in repeated}) > 1:
        raise Decline("{} has other data along the repeated axis", node.result.name)
    return len(node.result.dims()) - first.behind


def _is_alone(node: Node, repeated: list[_Repeated]) -> bool:
    """Whether no other broadcast operand has a size above 1 along the repeated axis."""
    behind, values = repeated[0].behind, [each.value for each in repeated]
    return all(value in values or (*[1] * behind, *value.dims())[-behind] == 1 for value in node.operands)


def _is_multiplied_apart(node: Node, repeated: _Repeated) -> bool:
    """Whether the other operand of a product has a different matrix per image."""
    left, right = node.operands
    dims, behind = (right if left is repeated.value else left).dims(), repeated.behind
    return left is not right and len(dims) >= behind > _OF_MATRIX and dims[-behind] == repeated.count


def _axis_of_view(repeated: _Repeated, view: Value) -> int:
    """The axis of a reshaped value with as many elements before it and after it as the repeated axis has."""
    old, axis, dims = repeated.value.dims(), repeated.axis, view.dims()
    wanted = [element_count(part) for part in (old[:axis], old[axis + 1 :])]
    for at, size in enumerate(dims):
        if size == repeated.count and [element_count(part, 0) for part in (dims[:at], dims[at + 1 :])] == wanted:
            return at
    raise Decline("{} merges the repeated axis with others", view.name)
