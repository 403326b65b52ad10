"""A reshape between two `Transpose`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from graphopt.match import Match, OpBuilder, Pattern
from graphopt.operators import Reshape, Transpose
from graphopt.records import dataclass
from graphopt.rewrite import Decline, Dim, PatternRule, Rewriter, Value
from graphopt_passes.algorithm.rows import is_one_move
from graphopt_passes.fusion.reshapes import RESHAPES


class FuseTransposesAroundReshape(PatternRule):
    """Fuse two `Transpose` with a reshape between them into one `Transpose`, or into a reshape.

    The reshape splits and merges dimensions, which leaves pieces that move as a whole: tokens that become an image and
    then rows of channels again, heads that are merged before they become an image, windows of windows. There must be
    fewer operators afterwards, or reshapes next to others, and no permutation slower than the two.
    """

    opsets = "5-"

    def pattern(self, op: OpBuilder, x: Pattern) -> Pattern:
        between = op.AnyOf(*RESHAPES)(op.Transpose(x, ..., _bind="first"), ..., _bind="between")
        return op.Transpose(between, ...)

    def rewrite(self, m: Match, rw: Rewriter) -> Value:
        """Order the pieces as in the operand, then as in the result."""
        first, second, result = Transpose.of(m.first), Transpose.of(m.root), m.root.result
        pieces = _pieces(m.first.result.dims(), m.between.result.dims())
        before = sorted(pieces, key=lambda piece: first.perm[piece.before])
        after = sorted(pieces, key=lambda piece: second.inverse[piece.after])
        found = [_Moved.of(before, after, together) for together in _TOGETHER]
        best = min(found, key=lambda each: sum(each.reshapes(m.x, result)))
        around = best.reshapes(m.x, result)
        if all(around) and not _is_beside_reshapes(m):
            raise Decline("the rewrite would leave as many operators before {}", result.name)
        slow = [not is_one_move(view.x.dims(), view.perm) for view in (first, second)]
        if not any(slow) and not is_one_move(best.shape, best.perm):
            raise Decline("two fast permutations are faster than one with perm {}", list(best.perm))
        if best.moves_nothing:
            return Reshape.to(m.x, result.dims()).write(rw)
        return _written(best, m.x, result, around, rw)


def _written(best: _Moved, x: Value, result: Value, around: tuple[bool, bool], rw: Rewriter) -> Value:
    """The permutation, with axes of size 1 placed as in `x` or as in the result, and the reshapes that it needs."""
    shape = list(x.dims())
    if around[0]:
        shape = [*(size for size in result.dims() if size == 1 and not around[1]), *best.shape]
        x = Reshape.to(x, shape).write(rw)
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    long = [axis for axis, size in enumerate(shape) if size != 1]
    order = [long[axis] for axis in best.perm]
    if around[1]:
        moved = Transpose(x, (*ones, *order)).write(rw)
        return Reshape.to(moved, result.dims(), before=[shape[axis] for axis in (*ones, *order)]).write(rw)
    rest, units = iter(order), iter(ones)
    return Transpose(x, tuple([next(units if size == 1 else rest) for size in result.dims()])).write(rw)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A dimension, or a part of one, with its axes before and after the reshape."""

    size: Dim
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class _Moved:
    """One permutation of pieces.

    Attributes:
        shape: the sizes before it.
        perm: the permutation.
    """

    shape: list[Dim]
    perm: tuple[int, ...]

    @classmethod
    def of(cls, before: list[_Piece], after: list[_Piece], together: Callable[[_Piece, _Piece], bool]) -> _Moved:
        """The permutation that merges pieces which are neighbours in both orders and which `together` accepts."""
        runs: list[list[_Piece]] = []
        for piece in before:
            last = runs[-1][-1] if runs else None
            if (
                last
                and together(last, piece)
                and after.index(piece) == after.index(last) + 1
                and _is_fixed(last, piece)
            ):
                runs[-1].append(piece)
            else:
                runs.append([piece])
        order = sorted(range(len(runs)), key=lambda run: after.index(runs[run][0]))
        sizes = [run[0].size if len(run) == 1 else prod(p.size for p in run if isinstance(p.size, int)) for run in runs]
        return cls(sizes, tuple(order))

    @property
    def moves_nothing(self) -> bool:
        """Whether every piece stays where it is."""
        return self.perm == tuple(range(len(self.perm)))

    def reshapes(self, x: Value, result: Value) -> tuple[bool, bool]:
        """Whether it needs a reshape before and after it, because not only axes of size 1 differ."""
        if self.moves_nothing:
            return False, False
        before, after = list(x.dims()), list(result.dims())
        shaped = [size for size in before if size != 1] == self.shape
        moved = [size for size in after if size != 1] == [self.shape[axis] for axis in self.perm]
        return not shaped, not moved or (shaped and before.count(1) != after.count(1))


_Size: TypeAlias = tuple[Dim, int]
"""A size and the axis that has it."""

_TOGETHER: tuple[Callable[[_Piece, _Piece], bool], ...] = (
    lambda one, two: False,
    lambda one, two: one.before == two.before,
    lambda one, two: one.after == two.after,
)
"""Which neighbouring pieces may be merged: none, or those of one axis before or after the reshape."""


def _is_fixed(*pieces: _Piece) -> bool:
    return all(isinstance(piece.size, int) for piece in pieces)


def _is_beside_reshapes(m: Match) -> bool:
    """Whether the new reshapes fuse with others."""
    users = m.root.result.users
    return m.x.made_by(*RESHAPES) is not None and m.x.one_use and all(user.op in RESHAPES for user in users)


def _pieces(before: Sequence[Dim], after: Sequence[Dim]) -> list[_Piece]:
    """The largest pieces that neither shape splits, without those of size 1."""
    pieces: list[_Piece] = []
    left = [(size, axis) for axis, size in enumerate(before) if size != 1]
    right = [(size, axis) for axis, size in enumerate(after) if size != 1]
    if joined := _joined(left, right):
        return [_Piece(size, at, to) for (size, at), (_, to) in joined]
    if joined := _joined(right, left):
        return [_Piece(size, at, to) for (size, to), (_, at) in joined]
    while left and right:
        (one, at), (two, to) = left.pop(0), right.pop(0)
        size = one if one == two and one is not None else _common(one, two)
        pieces.append(_Piece(size, at, to))
        if isinstance(one, int) and isinstance(two, int) and one != two:
            left[:0] = [(one // two, at)] * (one > two)
            right[:0] = [(two // one, to)] * (two > one)
    if left or right:
        raise Decline("the shapes {} and {} cannot be split alike", tuple(before), tuple(after))
    return pieces


def _joined(parts: list[_Size], whole: list[_Size]) -> list[tuple[_Size, _Size]]:
    """Pair each part with the dimension it is a part of, where at most one dimension of `whole` is split or unknown.

    All other sizes are numbers, and equal on both sides, so that the unknown one follows from the element count.
    """
    count = len(parts) - len(whole) + 1
    at = next((at for at, (size, _) in enumerate(whole) if not isinstance(size, int)), -1)
    if count < 2 or at < 0:
        return []
    pairs = list(zip(parts, [*whole[:at], *[whole[at]] * count, *whole[at + 1 :]], strict=True))
    others = [*pairs[:at], *pairs[at + count :]]
    same = all(isinstance(one, int) and one > 0 and one == two for (one, _), (two, _) in others)
    return pairs if same else []


def _common(one: Dim, two: Dim) -> int:
    """The smaller of two sizes, which must divide the larger one."""
    if not isinstance(one, int) or not isinstance(two, int) or not one or not two or max(one, two) % min(one, two):
        raise Decline("neither of the sizes {} and {} divides the other", one, two)
    return min(one, two)
