"""Decomposed rotary position embeddings, fused into the runtime's operator."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from onnx import TensorProto

from graphopt.match import Attr, Either, Match, OpBuilder, Pattern, Var
from graphopt.operators import Gather, Selection
from graphopt.rewrite import Decline, Dim, Level, Numerics, PatternRule, Rewriter, Value
from graphopt_passes.algorithm.waves import WaveRows, once
from graphopt_passes.algorithm.work import Weighed, count
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST

_RANK = 4

Heads = tuple[Dim, ...]
"""The shape of the rotated value, with all elements of a head along the last axis."""


class _Rotary(Weighed, PatternRule):
    """Fuse the rotation of pairs of elements by the angle of their position into `RotaryEmbedding`."""

    opsets = f"7-{NEWEST}"
    numerics = Numerics.ROUNDING
    kind: ClassVar[str]
    attrs: ClassVar[Mapping[str, Any]] = {}
    paired: ClassVar[bool] = False
    twice: ClassVar[bool] = True
    """Whether whole heads are rotated at once, by cosines and sines that contain each number twice."""

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        dims, first = self.part(m.first)
        _, second = self.part(m.second)
        x, width = first.x, dims[-1]
        if second.x is not x or not isinstance(width, int) or width % 2:
            raise Decline
        if not all(part.takes(at) for part, at in zip((first, second), self.places(width), strict=True)):
            raise Decline
        self.check(m, x)
        if self.twice and m.x is not x:
            raise Decline
        if x.dtype != TensorProto.FLOAT or len(dims) != _RANK:
            raise Decline("{} is not float32 of rank {}, as the kernel requires", x.name, _RANK)
        if 0 in dims:
            raise Decline("{} is empty", x.name)
        return self._write(m, x, dims, width, rw)

    def _write(self, m: Match, x: Value, dims: Heads, width: int, rw: Rewriter) -> Value:
        """Write the operator; it reads heads that follow the positions as one joined axis."""
        rows = WaveRows.of(x.name, dims, m.cosine, m.sine, width if self.twice else width // 2)
        size, apart, ends = count(dims), rows.axis != _RANK - 2, self.ends(width)
        heads = (x.size(2),) if apart else (0,)
        moves = (apart or x.rank != _RANK) + (apart or len(ends) > 1)
        shared = rows.kernels / max(len(m.cosine.users), 1)
        self.weigh(rw, {"kernel": 7, "element": 5.5 * size}, {"kernel": 1 + moves + shared, self.kind: size})
        waves = [m.cosine, m.sine]
        if self.twice:
            waves = [once(wave, paired=self.paired, rw=rw) for wave in waves]
        operands = [rows.numbers(m.cosine, rw), *(rows.cache(wave, width // 2, rw) for wave in waves)]
        if apart or x.rank != _RANK:
            x = rw.op("Reshape", x, shape=(0, 0, heads[0] * width) if apart else (0, 0, 0, width))
        turned = rw.op("RotaryEmbedding", x, *operands, domain=DOMAIN, **self.attrs)
        return rw.op("Reshape", turned, shape=(0, 0, *heads, *ends)) if apart or len(ends) > 1 else turned

    def ends(self, width: int) -> tuple[int, ...]:
        """The shape of a head in the result."""
        return (width,)

    def part(self, value: Value) -> tuple[Heads, Selection]:
        """The shape of the value that the elements are selected from, and the selection."""
        part = Selection.of(value)
        if part.axis != len(part.x.dims()) - 1:
            raise Decline
        return part.x.dims(), part

    @abstractmethod
    def places(self, width: int) -> tuple[range, range]:
        """The positions of the first and second elements of all pairs."""

    @abstractmethod
    def check(self, m: Match, x: Value) -> None:
        """Decline unless the elements are joined to heads again."""


def _at_once(op: OpBuilder, turned: Pattern, cosine: Pattern) -> Pattern:
    """`x * cos + turned * sin`."""
    return op.Add(op.Mul(Var("x"), cosine, _shared=True), op.Mul(turned, Var("sine"), _shared=True))


def _one_by_one(op: OpBuilder, first: Pattern, second: Pattern) -> tuple[Pattern, Pattern]:
    """`first * cos - second * sin` and `second * cos + first * sin`."""
    cosine, sine = Var("cosine"), Var("sine")
    less = op.Sub(op.Mul(first, cosine), op.Mul(second, sine))
    return less, op.Add(op.Mul(second, cosine), op.Mul(first, sine))


class _Halves(_Rotary):
    """Pairs of an element of a head's first half and one of its second half."""

    kind = "rotate"

    def places(self, width: int) -> tuple[range, range]:
        return range(width // 2), range(width // 2, width)

    def check(self, m: Match, x: Value) -> None:
        if m.first.axis(m.axis) != len(x.dims()) - 1:
            raise Decline


class ConvertHalvesToRotaryEmbedding(_Halves):
    """Fuse rotary embeddings that pair the first half of each head with the second into `RotaryEmbedding`.

    `x * cos + concat(-x[h:], x[:h]) * sin`, as in LLaMA, with cosines and sines that contain each number twice. Heads
    precede or follow the positions, and each batch may have its own positions.
    """

    def pattern(self, op: OpBuilder, first: Pattern, second: Pattern, cosine: Pattern) -> Pattern:
        negative = op.Neg(second, _shared=True)
        return _at_once(op, op.Concat(negative, first, axis=Attr("axis"), _shared=True), cosine)


class ConvertTurnedHalvesToRotaryEmbedding(_Halves):
    """Fuse rotary embeddings that rotate the halves of each head separately into `RotaryEmbedding`.

    `concat(a * cos - b * sin, b * cos + a * sin)` of the halves a and b of a head; otherwise as
    `convert_halves_to_rotary_embedding`.
    """

    twice = False

    def pattern(self, op: OpBuilder, first: Pattern, second: Pattern) -> Pattern:
        return op.Concat(*_one_by_one(op, first, second), axis=Attr("axis"))


class _Pairs(_Rotary):
    """Pairs of adjacent elements."""

    kind = "rotate pairs"
    attrs: ClassVar[Mapping[str, Any]] = {"interleaved": 1}
    paired = True

    def part(self, value: Value) -> tuple[Heads, Selection]:
        """Every second element, or one of two along an axis that `Gather` removes."""
        node = value.producer
        if node is not None and node.op == "Gather" and node.operand(1).rank == 0:
            gather = Gather.of(node)
            return _one_of_two(Selection(gather.x, gather.axis, gather.from_front()[None]))
        if node is not None and node.op in ("Squeeze", "Reshape"):
            if node.operand(0).dims() != (*value.dims(), 1):
                raise Decline
            return _one_of_two(Selection.of(node.operand(0)))
        return super().part(value)

    def places(self, width: int) -> tuple[range, range]:
        return range(0, width, 2), range(1, width, 2)

    def check(self, m: Match, x: Value) -> None:
        """Decline unless the elements are stacked along a new axis."""
        joined, rank = m.stacked.result, m.first.rank
        apart = any(node.result.dims()[:-1] != node.operand(0).dims() for node in (m.lefts, m.rights))
        if apart or joined.rank != rank + 1 or joined.axis(m.axis) != rank:
            raise Decline


def _stacked(op: OpBuilder, left: Pattern, right: Pattern, *, shared: bool = False) -> Pattern:
    longer = op.AnyOf("Reshape", "Unsqueeze")
    lefts = longer(left, ..., _shared=shared, _bind="lefts")
    rights = longer(right, ..., _shared=shared, _bind="rights")
    return op.Concat(lefts, rights, axis=Attr("axis"), _shared=shared, _bind="stacked")


def _one_of_two(taken: Selection) -> tuple[Heads, Selection]:
    """A selection from pairs along the last axis, as a selection from heads."""
    dims, half = taken.x.dims(), taken.x.size(-2)
    if taken.axis != len(dims) - 1 or dims[-1] != 2 or len(taken.positions) != 1:
        raise Decline
    elements = range(int(taken.positions[0]), 2 * half, 2)
    return (*dims[:-2], 2 * half), Selection(taken.x, len(dims) - 2, elements)


class ConvertPairsToRotaryEmbedding(_Pairs):
    """Fuse rotary embeddings of adjacent elements into `RotaryEmbedding`.

    `x * cos + flatten(stack(-x[1::2], x[::2])) * sin`, as in GPT-J, with cosines and sines that repeat each number
    twice in a row; otherwise as `convert_halves_to_rotary_embedding`.
    """

    def pattern(self, op: OpBuilder, first: Pattern, second: Pattern, cosine: Pattern) -> Pattern:
        stacked = _stacked(op, op.Neg(second, _shared=True), first, shared=True)
        return _at_once(op, op.Reshape(stacked, ..., _shared=True, _bind="flat"), cosine)

    def check(self, m: Match, x: Value) -> None:
        """Decline unless the axis of pairs is merged into the last axis."""
        super().check(m, x)
        if not x.has_shape_of(m.flat.result):
            raise Decline


class ConvertTurnedPairsToRotaryEmbedding(_Pairs):
    """Fuse rotary embeddings that rotate the even and odd elements of each head separately into `RotaryEmbedding`.

    `stack(a * cos - b * sin, b * cos + a * sin)`, as in LLaMA's original code; otherwise as
    `convert_halves_to_rotary_embedding`.
    """

    twice = False

    def pattern(self, op: OpBuilder, first: Pattern, second: Pattern) -> Pattern:
        return _stacked(op, *_one_by_one(op, first, second))

    def ends(self, width: int) -> tuple[int, ...]:
        return width // 2, 2


class FuseRestIntoRotaryEmbedding(PatternRule):
    """Fuse `Split` and `Concat` of the elements of heads that are not rotated into `RotaryEmbedding`.

    GPT-NeoX, GPT-J and Phi rotate only the first elements of each head; the operator copies the others.
    """

    level = Level.EXTENDED

    def pattern(self, op: OpBuilder, part: Pattern, rest: Pattern) -> Pattern:
        """Heads precede the positions, or are joined to one axis after them."""
        rotary, waves = op.domain(DOMAIN).RotaryEmbedding, (Var("positions"), Var("cosine"), Var("sine"))
        aside = rotary(op.Reshape(part, ..., _bind="flat"), *waves, _other_attrs=True, _bind="rotary")
        turned = Either(rotary(part, *waves, _other_attrs=True, _bind="rotary"), op.Reshape(aside, ..., _bind="turned"))
        return op.Concat(turned, rest, axis=Attr("axis"))

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        first, last = Selection.of(m.part), Selection.of(m.rest)
        x, dims = first.x, first.x.dims()
        if last.x is not x or len(dims) != _RANK or {first.axis, last.axis, x.axis(m.axis)} != {_RANK - 1}:
            raise Decline
        width, taken = x.size(-1), len(first.positions)
        if not taken or not first.takes(range(taken)) or not last.takes(range(taken, width)):
            raise Decline(
                "{} and {} are not the leading and the remaining elements of {}", m.part.name, m.rest.name, x.name
            )
        if not m.rotary.attrs.keys() <= {"interleaved"}:
            raise Decline("{} already has attributes other than interleaved", m.rotary.result.name)
        heads = x.size(1 if m.flat is None else 2)
        if not heads:
            raise Decline("the number of heads of {} is not known", x.name)
        attrs = {**m.rotary.attrs, "num_heads": heads, "rotary_embedding_dim": taken}
        if m.flat is None:
            return rw.op("RotaryEmbedding", x, m.positions, m.cosine, m.sine, domain=DOMAIN, **attrs)
        if m.flat.result.dims() != (*dims[:2], heads * taken) or not m.part.has_shape_of(m.turned.result):
            raise Decline("the heads of {} are not contiguous", m.part.name)
        if m.cosine.size(-1) * 2 != taken:
            raise Decline("{} does not have half the head width {}", m.cosine.name, taken)
        rows = rw.op("Reshape", x, shape=(0, 0, heads * width))
        rows = rw.op("RotaryEmbedding", rows, m.positions, m.cosine, m.sine, domain=DOMAIN, **attrs)
        return rw.op("Reshape", rows, shape=(0, 0, heads, width))
