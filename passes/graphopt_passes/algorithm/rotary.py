"""Rotary embeddings of positions that are written out, by the runtime's operator."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.operators import Reshape, Slice, Split
from graphopt.operators.slice import Cut
from graphopt.rewrite import Decline, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, size_of
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST

_RANK = 4
_DEEPEST = 8


class _Rotary(Weighed, OpRule):
    """Recognize `x * cos + rotated * sin`, where elements of `x` are rotated in pairs, as `RotaryEmbedding`.

    The cosines and sines are those of positions, the same for all heads and all of the batch.
    """

    ops = ("Add",)
    opsets = f"7-{NEWEST}"
    numerics = Numerics.ROUNDING
    kind: ClassVar[str]
    attrs: ClassVar[Mapping[str, Any]] = {}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Find which of both products is of rotated elements."""
        products = [value.source("Mul", reader=node) for value in (node.operand(0), node.operand(1))]
        for straight, turned in (products, products[::-1]):
            for at in range(2):
                rotated = turned.operand(at)
                x = self.unrotated(rotated, turned)
                if x is None:
                    continue
                waves = [_other(straight, x), turned.operand(1 - at)]
                if waves[0] is not None:
                    return rw.replace(node, [self._write(x, waves, rw)])
        raise Decline

    def _write(self, x: Value, waves: Sequence[Value | None], rw: Rewriter) -> Value:
        dims = x.dims()
        if x.dtype != TensorProto.FLOAT or len(dims) != _RANK:
            raise Decline("{} is not of float32 with {} axes, for which the kernel is", x.name, _RANK)
        width, size = x.size(_RANK - 1), size_of(x)
        self.weigh(rw, {"kernel": 7, "element": 5.5 * size}, {"kernel": 1, self.kind: size})
        caches = [self._cache(wave, x, width // 2, rw) for wave in waves if wave is not None]
        first = np.zeros(1, np.int64)
        return rw.op("RotaryEmbedding", x, first, *caches, domain=DOMAIN, **self.attrs)

    def _cache(self, wave: Value, x: Value, half: int, rw: Rewriter) -> Value:
        """A number for each position and each pair of elements."""
        dims, positions = wave.dims(), x.dims()[-2]
        if len(dims) < 2 or dims[-1] != 2 * half or any(dim != 1 for dim in dims[:-2]):
            raise Decline("{} differs between heads or batches", wave.name)
        if positions is None or dims[-2] != positions:
            raise Decline("{} is not known to have a row for each position of {}", wave.name, x.name)
        rows = positions if isinstance(positions, int) else None
        return Reshape.to(self.once(wave, half, rw), (rows, half)).write(rw)

    @abstractmethod
    def unrotated(self, value: Value, reader: Node) -> Value | None:
        """What has elements rotated by a quarter in a value; None where it is something else."""

    @abstractmethod
    def once(self, wave: Value, half: int, rw: Rewriter) -> Value:
        """The numbers of a wave, which has each of them twice, once; declines where that is not known."""


def _other(product: Node, x: Value) -> Value | None:
    for at in range(2):
        if product.operand(at) is x:
            return product.operand(1 - at)
    return None


def _piece(value: Value) -> tuple[Value, range] | None:
    """What a value takes of another one's last axis, and where."""
    node = value.producer
    if node is None or node.op not in ("Slice", "Split"):
        return None
    x = node.operand(0)
    last = len(x.dims()) - 1
    if node.op == "Split":
        split = Split.of(node)
        start = split.starts[value.index]
        return (x, range(start, start + split.sizes[value.index])) if split.axis == last else None
    cut = Slice.of(node)
    return (x, cut.along(last).positions(x.size(last))) if set(cut.cuts) == {last} else None


def _turned(first: Value, second: Value, reader: Node) -> tuple[Value, range, range] | None:
    """What a negated piece and another one are taken from, and both their places there."""
    negated = first.producer
    if negated is None or negated.op != "Neg" or negated.graph is not reader.graph:
        return None
    one, two = _piece(negated.operand(0)), _piece(second)
    if one is None or two is None or one[0] is not two[0]:
        return None
    return one[0], one[1], two[1]


class ConvertHalvesToRotaryEmbedding(_Rotary):
    """Recognize rotary embeddings whose pairs are an element of the first half and one of the second half.

    `x * cos + concat(-x[h:], x[:h]) * sin`, as in LLaMA, with cosines and sines that have all numbers twice.
    """

    kind = "rotate"

    def unrotated(self, value: Value, reader: Node) -> Value | None:
        """The halves changed places, and the second one is negated."""
        node = value.producer
        if node is None or node.op != "Concat" or len(node.inputs) != 2 or node.graph is not reader.graph:
            return None
        found = _turned(node.operand(0), node.operand(1), node)
        if found is None or value.axis(node.attr("axis")) != len(value.dims()) - 1:
            return None
        x, one, two = found
        width = x.size(len(x.dims()) - 1)
        halves = (range(width // 2, width), range(width // 2))
        return x if width % 2 == 0 and (one, two) == halves else None

    def once(self, wave: Value, half: int, rw: Rewriter) -> Value:
        """The first half."""
        if not _is_twice(wave, half):
            raise Decline("the halves of {} are not known to be equal", wave.name)
        array = wave.const()
        if array is not None:
            return rw.constant(np.ascontiguousarray(array[..., :half]), like=wave)
        return Slice(wave, {len(wave.dims()) - 1: Cut(0, half)}).write(rw)


_ALONG = frozenset({"Cos", "Sin", "Cast", "Identity", "Neg"})
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
    if node.op in ("Reshape", "Unsqueeze", "Squeeze"):
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

    def unrotated(self, value: Value, reader: Node) -> Value | None:
        """The pairs are pulled apart, one of each negated, and joined the other way around."""
        flat = value.producer
        if flat is None or flat.op != "Reshape" or flat.graph is not reader.graph:
            return None
        joined = flat.operand(0).producer
        if joined is None or joined.op != "Concat" or len(joined.inputs) != 2 or joined.graph is not reader.graph:
            return None
        last = len(value.dims())
        if joined.result.rank != last + 1 or joined.result.axis(joined.attr("axis")) != last:
            return None
        single = [piece.producer for piece in (joined.operand(0), joined.operand(1))]
        if any(made is None or made.op not in ("Unsqueeze", "Reshape") for made in single):
            return None
        pieces = [made.operand(0) for made in single if made is not None]
        if any(joined.operand(at).dims()[:-1] != piece.dims() for at, piece in enumerate(pieces)):
            return None
        found = _turned(pieces[0], pieces[1], joined)
        if found is None:
            return None
        x, one, two = found
        width = x.size(len(x.dims()) - 1)
        fits = (one, two) == (range(1, width, 2), range(0, width, 2)) and width % 2 == 0
        return x if fits and x.has_shape_of(value) else None

    def once(self, wave: Value, half: int, rw: Rewriter) -> Value:
        """Every second number."""
        array = wave.array()
        if not np.array_equal(array[..., ::2], array[..., 1::2]):
            raise Decline("the neighbours in {} are not equal", wave.name)
        return rw.constant(np.ascontiguousarray(array[..., ::2]), like=wave)
