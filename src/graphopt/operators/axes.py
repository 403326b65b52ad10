"""`Squeeze` and `Unsqueeze`: axes as an attribute up to opset 12, as an input from 13."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count, islice

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.ir.types import MOST_AXES
from graphopt.operators.builder import NodeBuilder
from graphopt.records import dataclass


def from_front(axes: Iterable[int], rank: int | None, name: str) -> tuple[int, ...]:
    """Normalize axes: count them from the front, and sort them.

    Args:
        axes: the axes, possibly negative.
        rank: the rank, None if it is not known.
        name: the name of the value, for the reason.

    Raises:
        Decline: the rank is required and not known, or an axis does not exist or is repeated.
    """
    found = tuple(axes)
    if rank is None:
        if any(not 0 <= axis < MOST_AXES for axis in found):
            raise Decline("the rank of {} is not known", name)
    elif any(not -rank <= axis < rank for axis in found):
        raise Decline("{} does not have all of the axes {}", name, found)
    else:
        found = tuple(axis % rank for axis in found)
    if len(set(found)) < len(found):
        raise Decline("an axis of {} is given twice", name)
    return tuple(sorted(found))


def refuse_empty_axes(node: Node) -> None:
    """Decline if an operator has an empty list of axes."""
    axes = node.input(1)
    if node.attr("axes") == () or (axes is not None and axes.shape == (0,)):
        raise Decline("the list of axes is empty, which the standard and runtimes read differently")


def _beside(taken: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """Map axes counted without the `taken` ones to axes counted among all."""
    free = (axis for axis in count() if axis not in taken)
    places = list(islice(free, max(axes, default=-1) + 1))
    return tuple(places[axis] for axis in axes)


@dataclass(frozen=True, slots=True)
class Squeeze:
    """The removal of axes of size 1.

    Attributes:
        x: the value.
        axes: the axes, from the front of `x`, in order.
    """

    x: Value
    axes: tuple[int, ...]

    @classmethod
    def of(cls, node: Node) -> Squeeze:
        """Read a `Squeeze`.

        Raises:
            Decline: it is none, its axes are not constant or an empty list, or depend on an unknown shape.
        """
        if node.op != "Squeeze":
            raise Decline
        refuse_empty_axes(node)
        x, axes = node.operand(0), node.ints("axes")
        if axes is None:
            if x.shape is None or any(not isinstance(dim, int) for dim in x.shape):
                raise Decline("no axes are given, and the axes of size 1 are not known")
            axes = tuple(axis for axis, dim in enumerate(x.shape) if dim == 1)
        return cls(x, from_front(axes, x.rank, x.name))

    def then(self, second: Squeeze) -> Squeeze:
        """The composition with a second `Squeeze` of the result."""
        return replace(self, axes=tuple(sorted(self.axes + _beside(self.axes, second.axes))))

    def write(self, to: NodeBuilder) -> Value:
        """Write the operator in the form of the graph's opset; an empty list of axes is omitted: no axis has size 1."""
        return to.op("Squeeze", self.x, axes=self.axes or None)


@dataclass(frozen=True, slots=True)
class Unsqueeze:
    """The insertion of axes of size 1.

    Attributes:
        x: the value.
        axes: the axes, from the front of the result, in order.
    """

    x: Value
    axes: tuple[int, ...]

    @classmethod
    def of(cls, node: Node) -> Unsqueeze:
        """Read an `Unsqueeze`.

        Raises:
            Decline: it is none, or its axes are not constant, or depend on an unknown rank.
        """
        if node.op != "Unsqueeze":
            raise Decline
        x, axes = node.operand(0), node.ints("axes")
        if axes is None:
            raise Decline("no axes are given")
        return cls(x, from_front(axes, None if x.rank is None else x.rank + len(axes), x.name))

    def then(self, second: Unsqueeze) -> Unsqueeze:
        """The composition with a second `Unsqueeze` of the result."""
        return replace(self, axes=tuple(sorted(second.axes + _beside(second.axes, self.axes))))

    def write(self, to: NodeBuilder) -> Value:
        """Write the operator in the form of the graph's opset."""
        return to.op("Unsqueeze", self.x, axes=self.axes)


def unsqueezed(values: Sequence[Value], axis: int, to: NodeBuilder) -> list[Value]:
    """Unsqueeze several values along the same axis, with a shared constant for it.

    Args:
        values: at least one value.
        axis: the new axis.
        to: builds the operators.
    """
    first = to.op("Unsqueeze", values[0], axes=(axis,))
    node = first.producer
    assert node is not None
    return [first, *(to.op("Unsqueeze", value, *node.inputs[1:], **node.attrs) for value in values[1:])]


def of_ones(x: Value, before: Sequence[object], after: Sequence[object]) -> Squeeze | Unsqueeze:
    """The `Squeeze` or `Unsqueeze` that changes one shape to another.

    Args:
        x: the value.
        before: its shape.
        after: the shape of the result.

    Raises:
        Decline: it would take both operators, neither, or another one.
    """
    view: type[Squeeze | Unsqueeze] = Unsqueeze if len(after) > len(before) else Squeeze
    longer, shorter = (after, before) if view is Unsqueeze else (before, after)
    axes: list[int] = []
    at = 0
    for axis, dim in enumerate(longer):
        if at < len(shorter) and dim == shorter[at]:
            at += 1
        else:
            axes.append(axis)
    if not axes or at < len(shorter) or any(longer[axis] != 1 for axis in axes):
        raise Decline("the shapes {} and {} differ by more than axes of size 1", tuple(after), tuple(before))
    return view(x, tuple(axes))
