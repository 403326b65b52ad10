"""`Squeeze` and `Unsqueeze`: axes as an attribute until opset 12, as an input from 13."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count, islice

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.operators.builder import NodeBuilder
from graphopt.records import dataclass


def from_front(axes: Iterable[int], rank: int | None, name: str) -> tuple[int, ...]:
    """Axes counted from the front, in order.

    Args:
        axes: the axes as written.
        rank: the rank that they belong to, None where it is not known.
        name: the value, for the reason.

    Raises:
        Decline: that takes a rank that is not known, or an axis does not exist or is there twice.
    """
    found = tuple(axes)
    if rank is None:
        if any(axis < 0 for axis in found):
            raise Decline("the rank of {} is not known", name)
    elif any(not -rank <= axis < rank for axis in found):
        raise Decline("{} does not have all of the axes {}", name, found)
    else:
        found = tuple(axis % rank for axis in found)
    if len(set(found)) < len(found):
        raise Decline("an axis of {} is given twice", name)
    return tuple(sorted(found))


def refuse_empty_axes(node: Node) -> None:
    """Decline where an operator states a list of axes that is empty."""
    axes = node.input(1)
    if node.attr("axes") == () or (axes is not None and axes.shape == (0,)):
        raise Decline("the list of axes is empty, which the standard and runtimes read differently")


def _beside(taken: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """Axes counted among all, that are given as counted among those that are not taken."""
    free = (axis for axis in count() if axis not in taken)
    places = list(islice(free, max(axes, default=-1) + 1))
    return tuple(places[axis] for axis in axes)


@dataclass(frozen=True, slots=True)
class Squeeze:
    """Axes of size 1 that go.

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
            Decline: it is none, its axes are not constant or an empty list, or not known without the shape.
        """
        if node.op != "Squeeze":
            raise Decline
        refuse_empty_axes(node)
        x, axes = node.operand(0), node.ints("axes")
        if axes is None:
            if x.shape is None or any(not isinstance(dim, int) for dim in x.shape):
                raise Decline("no axes are given: what has size 1 is squeezed")
            axes = tuple(axis for axis, dim in enumerate(x.shape) if dim == 1)
        return cls(x, from_front(axes, x.rank, x.name))

    def then(self, second: Squeeze) -> Squeeze:
        """This one and a second that reads it, as one."""
        return replace(self, axes=tuple(sorted(self.axes + _beside(self.axes, second.axes))))

    def write(self, to: NodeBuilder) -> Value:
        """The operator, in the form of the opset of the graph; without axes where nothing has size 1."""
        return to.op("Squeeze", self.x, axes=self.axes or None)


@dataclass(frozen=True, slots=True)
class Unsqueeze:
    """Axes of size 1 that come.

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
            Decline: it is none, or its axes are not constant or not known without the rank.
        """
        if node.op != "Unsqueeze":
            raise Decline
        x, axes = node.operand(0), node.ints("axes")
        if axes is None:
            raise Decline("no axes are given")
        return cls(x, from_front(axes, None if x.rank is None else x.rank + len(axes), x.name))

    def then(self, second: Unsqueeze) -> Unsqueeze:
        """This one and a second that reads it, as one."""
        return replace(self, axes=tuple(sorted(second.axes + _beside(second.axes, self.axes))))

    def write(self, to: NodeBuilder) -> Value:
        """The operator, in the form of the opset of the graph."""
        return to.op("Unsqueeze", self.x, axes=self.axes)


def unsqueezed(values: Sequence[Value], axis: int, to: NodeBuilder) -> list[Value]:
    """Values with a new axis each; the list of axes is one for all.

    Args:
        values: at least one.
        axis: the new axis.
        to: what builds the operators.
    """
    first = to.op("Unsqueeze", values[0], axes=(axis,))
    node = first.producer
    assert node is not None
    return [first, *(to.op("Unsqueeze", value, *node.inputs[1:], **node.attrs) for value in values[1:])]


def of_ones(x: Value, before: Sequence[object], after: Sequence[object]) -> Squeeze | Unsqueeze:
    """What makes one shape of another by axes of size 1 alone.

    Args:
        x: the value.
        before: its shape.
        after: the shape to come to.

    Raises:
        Decline: that takes both operators, neither, or something else.
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
        raise Decline("{} does not differ from {} by axes of size 1 alone", tuple(after), tuple(before))
    return view(x, tuple(axes))
