"""Pixels repeated by `Expand` or `Tile` between reshapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from onnx import TensorProto as T

from graphopt.operators import Transpose
from graphopt.operators.resize import repeated
from graphopt.rewrite import Decline, Dim, Node, OpRule, Outcome, Rewriter, Value
from graphopt_passes.algorithm.work import Weighed, count
from graphopt_passes.fusion.reshapes import RESHAPES

_COPIES = ("Expand", "Mul", "Tile")
_MOVES = (*_COPIES, "Transpose", *RESHAPES)
_MOST_MOVES = 12
_LARGEST = 1 << 22
"""Longest axis for which float32 never rounds the quotient of a coordinate up to the next pixel."""


class _Part(NamedTuple):
    """A factor of an axis: `origin` is an axis of the image, or None for copies of the factor before it."""

    origin: int | None
    size: Dim


_Axis = list[_Part]
"""The factors of an axis in row-major order, without those of size 1."""


class ConvertRepeatedPixelsToResize(Weighed, OpRule):
    """Replace `Expand` or `Tile` between reshapes that repeat rows and columns of images with one `Resize`.

    Keras exports `UpSampling2D` like this, and PyTorch and einops repeats along new axes; another pass may have turned
    the repetition of columns into a product with ones. On one thread an `Expand` of 32 images of 32x32 pixels to 64x64
    takes 436 us, the `Resize` 12 us; it can also run in blocked layout.
    """

    # No pattern: the number of operators is not fixed.
    ops = ("Reshape",)
    sources = (*_COPIES, "Transpose")
    opsets = "11-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        moves, x = [node], node.operand(0)
        while x.made_by(*_MOVES) and len(moves) < _MOST_MOVES:
            moves.append(x.sole_source(*_MOVES, reader=moves[-1]))
            x = moves[-1].operand(0)
            if x.rank == 4 and sum(move.op in _COPIES for move in moves):
                scales, perm = _enlarged(x, moves)
                if min(scales[2:]) > 1:
                    return self._write(x, moves, scales, perm, rw)
        raise Decline

    def _write(self, x: Value, moves: list[Node], scales: list[int], perm: list[int], rw: Rewriter) -> Outcome:
        dims = moves[0].result.dims()
        if x.dtype != T.FLOAT or scales[:2] != [1, 1]:
            raise Decline("{} is not a float32 image of which only rows and columns are repeated", x.name)
        if any(isinstance(dim, int) and dim > _LARGEST for dim in dims):
            raise Decline("{} has an axis that is too long for float32 coordinates", moves[0].result.name)
        now, size = Counter[str]({"kernel": len(moves)}), count(dims)
        for move in moves:
            last = move.operand(0).dims()[-1:] == (1,) and move.result.dims()[-1:] != (1,)
            kind = f"{move.op.lower()} last" if last and move.op != "Mul" else "element"
            now[kind] += count(move.result.dims()) if move.op in _COPIES else 0
            now["short row"] += count(move.operand(0).dims()) if last and move.op == "Mul" else 0
        kind, turned = "resize doubled" if scales[2:] == [2, 2] else "resize nearest", perm != sorted(perm)
        again = turned and not any(move.op == "Transpose" for move in moves)
        self.weigh(rw, now, {"kernel": 1 + turned, kind: size, "move": size * again})
        return rw.replace(moves[0], [Transpose(repeated(x, scales, rw), tuple(perm)).write(rw)])


def _enlarged(x: Value, moves: Sequence[Node]) -> tuple[list[int], list[int]]:
    """The repetition factor of each axis, and the permutation after it; declines if the operators do more."""
    axes: list[_Axis] = [[_Part(axis, size)] * (size != 1) for axis, size in enumerate(x.dims())]
    for move in reversed(moves):
        axes = _behind(axes, move)
    units = iter(axis for axis, size in enumerate(x.dims()) if size == 1)
    scales, perm = [1] * 4, []
    for first, *copies in (axis or [_Part(next(units, None), 1)] for axis in axes):
        if first.origin is None or any(part.origin is not None for part in copies):
            raise Decline("{} is not repeated element by element", x.name)
        perm.append(first.origin)
        scales[first.origin] = prod(part.size for part in copies if isinstance(part.size, int))
    if sorted(perm) != [0, 1, 2, 3]:
        raise Decline("{} does not have four axes after its elements are repeated", x.name)
    return scales, perm


def _behind(axes: list[_Axis], move: Node) -> list[_Axis]:
    """The axes after an operator."""
    if move.op == "Transpose":
        return [axes[axis] for axis in Transpose.of(move).perm]
    dims, old = move.result.dims(), move.operand(0).dims()
    if move.op in RESHAPES:
        return _regrouped([part for axis in axes for part in axis], dims, move)
    if len(old) != len(dims) or (move.op == "Mul" and not (move.operand(1).array() == 1).all()):
        raise Decline("{} gets more axes, or is multiplied by a number other than 1", move.operand(0).name)
    ratios = [1 if size is not None and size == before else size for size, before in zip(dims, old, strict=True)]
    times = move.operand(1).ints() if move.op == "Tile" else ratios
    if any(number != 1 and (axis or not isinstance(number, int)) for axis, number in zip(axes, times, strict=True)):
        raise Decline("{} is repeated along an axis that does not have size 1", move.operand(0).name)
    return [axis or [_Part(None, number)] * (number != 1) for axis, number in zip(axes, times, strict=True)]


def _regrouped(parts: list[_Part], dims: Sequence[Dim], move: Node) -> list[_Axis]:
    """Regroup the factors of all axes into axes of new sizes; declines if a factor would have to be split.

    If one factor and one axis are of unknown size, they are equal, since the number of elements is.
    """
    names = [part.size for part in parts if not isinstance(part.size, int)]
    if len(names) == 1 and sum(not isinstance(dim, int) for dim in dims) == 1 and 0 not in dims:
        dims = [dim if isinstance(dim, int) else names[0] for dim in dims]
    axes: list[_Axis] = []
    for dim in dims:
        axis: _Axis = []
        while parts and _size(axis) != dim:
            axis.append(parts.pop(0))
        if _size(axis) != dim:
            raise Decline("the axes of {} do not match those of {}", move.result.name, move.operand(0).name)
        axes.append(axis)
    if parts:
        raise Decline("the axes of {} do not match those of {}", move.result.name, move.operand(0).name)
    return axes


def _size(axis: _Axis) -> Dim:
    """The size of an axis; -1 for a product with an unknown factor."""
    sizes = [part.size for part in axis]
    known = [size for size in sizes if isinstance(size, int)]
    return sizes[0] if len(sizes) == 1 else prod(known) if len(known) == len(sizes) else -1
