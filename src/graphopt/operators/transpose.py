"""`Transpose`: an omitted permutation reverses the axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from graphopt.errors import Decline
from graphopt.ir import Dim, Node, Value
from graphopt.operators.builder import NodeBuilder
from graphopt.operators.reshape import Reshape
from graphopt.records import dataclass

Perm = tuple[int, ...]
"""A permutation: axis `i` of the result is axis `perm[i]` of the operand."""


def channels_last(rank: int) -> Perm:
    """The permutation that moves the channels of images, rows or volumes after the spatial axes."""
    return (0, *range(2, rank), 1)


def channels_first(rank: int) -> Perm:
    """The inverse permutation, which moves channels before the spatial axes."""
    return (0, rank - 1, *range(1, rank - 1))


LAST, FIRST = channels_last(4), channels_first(4)
"""The two permutations of images."""


@lru_cache(maxsize=1024)
def inverse(perm: Perm) -> Perm:
    """The inverse of a permutation."""
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


@lru_cache(maxsize=1024)
def joined(first: Perm, second: Perm) -> Perm:
    """The composition of two permutations, `first` and then `second`.

    Raises:
        Decline: they are not of the same number of axes, as in a model that cannot run.
    """
    if len(first) != len(second):
        raise Decline("the permutations {} and {} differ in length", list(first), list(second))
    return tuple(first[axis] for axis in second)


@lru_cache(maxsize=1024)
def is_identity(perm: Perm) -> bool:
    """Whether a permutation is the identity."""
    return perm == tuple(range(len(perm)))


def keeps_order(perm: Perm, shape: Sequence[Dim] | None) -> bool:
    """Whether only axes known to have size 1 move, so that the row-major order of elements stays the same."""
    last = -1
    for axis in perm:
        if shape is None or shape[axis] != 1:
            if axis < last:
                return False
            last = axis
    return True


@lru_cache(maxsize=1024)
def _is_permutation(perm: tuple[int, ...]) -> bool:
    return sorted(perm) == list(range(len(perm)))


@dataclass(frozen=True, slots=True)
class Transpose:
    """Axes in another order: axis `i` of the result is axis `perm[i]` of `x`."""

    x: Value
    perm: Perm

    @classmethod
    def of(cls, node: Node) -> Transpose:
        """Read a `Transpose`.

        Raises:
            Decline: it is none, or states no permutation and the rank is not known, or the stated one is no permutation
                of the axes of its operand.
        """
        if node.op != "Transpose":
            raise Decline
        x, perm = node.operand(0), node.attr("perm")
        if perm is None:
            return cls(x, tuple(range(len(x.dims())))[::-1])
        shape = x.shape
        if not _is_permutation(perm) or (shape is not None and len(shape) != len(perm)):
            raise Decline("{} is not a permutation of the axes of {}", list(perm), x.name)
        return cls(x, perm)

    @classmethod
    def of_units(cls, node: Node) -> Transpose:
        """Read a `Reshape` that only moves axes of size 1 as a permutation.

        Raises:
            Decline: it is none, or not known to be one.
        """
        x = node.operand(0)
        before, after = x.dims(), node.result.dims()
        if node.op != "Reshape" or len(before) != len(after) or None in before:
            raise Decline
        long = [axis for axis, dim in enumerate(before) if dim != 1]
        if [before[axis] for axis in long] != [dim for dim in after if dim != 1]:
            raise Decline
        ones = iter(axis for axis, dim in enumerate(before) if dim == 1)
        rest = iter(long)
        return cls(x, tuple(next(ones if dim == 1 else rest) for dim in after))

    @classmethod
    def of_either(cls, node: Node) -> Transpose:
        """Read a `Transpose`, or a `Reshape` that only moves axes of size 1.

        Raises:
            Decline: it is neither, or not known to be.
        """
        return cls.of(node) if node.op == "Transpose" else cls.of_units(node)

    @property
    def moves_nothing(self) -> bool:
        """Whether the permutation is the identity."""
        return is_identity(self.perm)

    @property
    def inverse(self) -> Perm:
        """The inverse permutation."""
        return inverse(self.perm)

    def without_moving_units(self, shape: Sequence[Dim], to: NodeBuilder) -> Value:
        """Write a `Reshape` that moves axes of size 1 next to others, and a `Transpose` that moves them along.

        In the result, whose `shape` has known sizes or those of `x`, each axis of size 1 keeps its predecessor.

        Raises:
            Decline: no constant states the shape of the `Reshape`.
        """
        order = units_beside([axis for axis in self.inverse if shape[axis] != 1], shape)
        seen = Reshape.to(self.x, [shape[axis] for axis in order]).write(to)
        return Transpose(seen, tuple(map(order.index, range(len(shape))))).write(to)

    def then(self, second: Transpose) -> Transpose:
        """The composition with a second `Transpose` of the result; declines like `joined`."""
        return replace(self, perm=joined(self.perm, second.perm))

    def write(self, to: NodeBuilder) -> Value:
        """Write the operator, or return `x` if nothing moves."""
        if self.moves_nothing:
            return self.x
        return to.op("Transpose", self.x, perm=self.perm)


def units_beside(order: Sequence[int], shape: Sequence[Dim]) -> list[int]:
    """Complete an order of axes by those of size 1, each directly after its predecessor in `shape`."""
    found = list(order)
    for axis, dim in enumerate(shape):
        if dim == 1:
            found.insert(found.index(axis - 1) + 1 if axis else 0, axis)
    return found
