"""Rotary embeddings of positions that are written out, by the runtime's operator."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.match import Attr, Match, OpBuilder, Pattern, Var
from graphopt.operators import Cut, Reshape, Selection, Slice
from graphopt.rewrite import Decline, Numerics, PatternRule, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, size_of
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST

_RANK = 4
_DEEPEST = 8


class _Rotary(Weighed, PatternRule):
    """Recognize `x * cos + turned * sin`, where pairs of elements of `x` are turned by a quarter, as `RotaryEmbedding`.

    The cosines and sines are those of positions, the same for all heads and all of the batch.
    """

    opsets = f"7-{NEWEST}"
    numerics = Numerics.ROUNDING
    kind: ClassVar[str]
    attrs: ClassVar[Mapping[str, Any]] = {}

    def pattern(self, op: OpBuilder) -> Pattern:
        straight = op.Mul(Var("x"), Var("cosine"), _shared=True)
        return op.Add(straight, op.Mul(self.turned(op), Var("sine"), _shared=True))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        x, dims = m.x, m.x.dims()
        pieces = Selection.of(m.second), Selection.of(m.first)
        if any(piece.x is not x or piece.axis != len(dims) - 1 for piece in pieces):
            raise Decline
        width = x.size(len(dims) - 1)
        if width % 2 or not all(piece.takes(at) for piece, at in zip(pieces, self.places(width), strict=True)):
            raise Decline
        self.check(m)
        if x.dtype != TensorProto.FLOAT or len(dims) != _RANK:
            raise Decline("{} is not of float32 with {} axes, for which the kernel is", x.name, _RANK)
        size = size_of(x)
        self.weigh(rw, {"kernel": 7, "element": 5.5 * size}, {"kernel": 1, self.kind: size})
        caches = [self._cache(wave, x, width // 2, rw) for wave in (m.cosine, m.sine)]
        return rw.op("RotaryEmbedding", x, np.zeros(1, np.int64), *caches, domain=DOMAIN, **self.attrs)

    def _cache(self, wave: Value, x: Value, half: int, rw: Rewriter) -> Value:
        """A number for each position and each pair of elements."""
        dims, positions = wave.dims(), x.dims()[-2]
        if any(dim != 1 for dim in dims[:-2]):
            raise Decline("{} differs between heads or batches", wave.name)
        if positions is None or dims[-2:] != (positions, 2 * half):
            row = "{} is not known to have a row of {} numbers for each position of {}"
            raise Decline(row, wave.name, 2 * half, x.name)
        rows = positions if isinstance(positions, int) else None
        return Reshape.to(self.once(wave, half, rw), (rows, half)).write(rw)

    @abstractmethod
    def turned(self, op: OpBuilder) -> Pattern:
        """The `second` elements of all pairs, negated, and the `first` ones."""

    @abstractmethod
    def places(self, width: int) -> tuple[range, range]:
        """Where the second and the first elements of all pairs are."""

    @abstractmethod
    def check(self, m: Match) -> None:
        """Decline unless they are joined along the last axis."""

    @abstractmethod
    def once(self, wave: Value, half: int, rw: Rewriter) -> Value:
        """The numbers of a wave, which has each of them twice, once; declines where that is not known."""


class ConvertHalvesToRotaryEmbedding(_Rotary):
    """Recognize rotary embeddings whose pairs are an element of the first half and one of the second half.

    `x * cos + concat(-x[h:], x[:h]) * sin`, as in LLaMA, with cosines and sines that have all numbers twice.
    """

    kind = "rotate"

    def turned(self, op: OpBuilder) -> Pattern:
        second = op.Neg(Var("second"), _shared=True)
        return op.Concat(second, Var("first"), axis=Attr("axis"), _shared=True)

    def places(self, width: int) -> tuple[range, range]:
        return range(width // 2, width), range(width // 2)

    def check(self, m: Match) -> None:
        if m.x.axis(m.axis) != m.x.rank - 1:
            raise Decline

    def once(self, wave: Value, half: int, rw: Rewriter) -> Value:
        if not _is_twice(wave, half):
            raise Decline("the halves of {} are not known to be equal", wave.name)
        array = wave.const()
        if array is not None:
            return rw.constant(np.ascontiguousarray(array[..., :half]), like=wave)
        return Slice(wave, {len(wave.dims()) - 1: Cut(0, half)}).write(rw)


_ALONG = frozenset({"Cos", "Sin", "Cast", "Identity", "Neg", "Reshape", "Squeeze", "Unsqueeze"})
_BY_NUMBERS = frozenset({"Mul", "Div", "Add"})


def _is_twice(value: Value, half: int, depth: int = 0) -> bool:
    """Whether both halves of a value's last axis are known to be the same."""
    array = value.const()
    if array is not None:
        return bool(array.ndim) and array.shape[-1] == 2 * half and np.array_equal(array[..., :half], array[..., half:])
    node = value.producer
    if node is None or depth == _DEEPEST or not value.dims() or value.dims()[-1] != 2 * half:
        return False
    if node.op == "Concat":
        last = value.axis(node.attr("axis")) == len(value.dims()) - 1
        return last and len(node.inputs) == 2 and node.inputs[0] is node.inputs[1]
    if node.op in _ALONG:
        return _is_twice(node.operand(0), half, depth + 1)
    if node.op == "Gather":
        x = node.operand(0)
        return x.axis(node.attr("axis", 0)) < len(x.dims()) - 1 and _is_twice(x, half, depth + 1)
    if node.op in _BY_NUMBERS:
        operands = (node.operand(0), node.operand(1))
        return all(each.dims()[-1:] in ((), (1,)) or _is_twice(each, half, depth + 1) for each in operands)
    return False


class ConvertPairsToRotaryEmbedding(_Rotary):
    """Recognize rotary embeddings whose pairs are neighbours, with constant cosines and sines.

    `x * cos + flatten(stack(-x[1::2], x[::2])) * sin`, as in GPT-J.
    """

    kind = "rotate pairs"
    attrs: ClassVar[Mapping[str, Any]] = {"interleaved": 1}

    def turned(self, op: OpBuilder) -> Pattern:
        stacked = op.AnyOf("Reshape", "Unsqueeze")
        second = stacked(op.Neg(Var("second"), _shared=True), ..., _shared=True, _bind="seconds")
        first = stacked(Var("first"), ..., _shared=True, _bind="firsts")
        return op.Reshape(op.Concat(second, first, axis=Attr("axis"), _shared=True), ..., _shared=True, _bind="flat")

    def places(self, width: int) -> tuple[range, range]:
        return range(1, width, 2), range(0, width, 2)

    def check(self, m: Match) -> None:
        """They are stacked along an axis of their own, which is joined with the last one."""
        joined, rank = m.flat.operand(0), m.x.rank
        apart = any(node.result.dims()[:-1] != node.operand(0).dims() for node in (m.seconds, m.firsts))
        if apart or joined.rank != rank + 1 or joined.axis(m.axis) != rank or not m.x.has_shape_of(m.flat.result):
            raise Decline

    def once(self, wave: Value, half: int, rw: Rewriter) -> Value:
        array = wave.array()
        if not np.array_equal(array[..., ::2], array[..., 1::2]):
            raise Decline("the neighbours in {} are not equal", wave.name)
        return rw.constant(np.ascontiguousarray(array[..., ::2]), like=wave)
