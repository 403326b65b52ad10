"""`Reshape` and `Flatten` to a constant shape: an attribute up to opset 4, an input from 5, `allowzero` from 14."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from graphopt.errors import Decline
from graphopt.ir import Dim, Node, Value
from graphopt.ir.types import element_count
from graphopt.operators.builder import NodeBuilder
from graphopt.records import dataclass


@dataclass(frozen=True, slots=True)
class Reshape:
    """The same elements in another shape.

    Attributes:
        x: the value.
        target: the shape operand: a size, -1 for an inferred size, or 0 to copy the size of that axis of `x`.
        allowzero: whether 0 means an empty axis instead.
    """

    x: Value
    target: tuple[int, ...]
    allowzero: bool = False

    @classmethod
    def of(cls, node: Node) -> Reshape:
        """Read a `Reshape`, or a `Flatten` whose shape a constant can state.

        Raises:
            Decline: it is neither, its shape is not constant, or depends on unknown sizes.
        """
        x = node.operand(0)
        if node.op == "Flatten":
            return cls._of_flatten(node, x)
        if node.op != "Reshape":
            raise Decline
        target = node.ints("shape")
        if target is None:
            raise Decline("no shape is given")
        return cls(x, target, bool(node.attr("allowzero", 0)))

    @classmethod
    def to(cls, x: Value, shape: Sequence[Dim], *, before: Sequence[Dim] | None = None) -> Reshape:
        """The reshape of a value to a shape: 0 copies an equal symbolic size, one -1 is inferred.

        Args:
            x: the value.
            shape: the size of each axis.
            before: the shape of `x`, if that is a pending value of unknown type.

        Raises:
            Decline: no constant states the shape for all sizes of the symbols, or a dimension has size 0.
        """
        before = before or x.shape or ()
        target: list[int] = []
        for axis, dim in enumerate(shape):
            if isinstance(dim, int):
                target.append(dim)
            else:
                target.append(0 if dim is not None and axis < len(before) and before[axis] == dim else -1)
        if 0 in shape or target.count(-1) > 1 or (-1 in target and 0 in target):
            raise Decline("the shape {} cannot be written as a constant list", tuple(shape))
        return cls(x, tuple(target))

    @classmethod
    def _of_flatten(cls, node: Node, x: Value) -> Reshape:
        dims, axis = x.dims(), node.attr("axis", 1)
        axis += len(dims) if axis < 0 else 0
        halves = (dims[:axis], dims[axis:])
        fixed = [all(isinstance(dim, int) for dim in half) for half in halves]
        if not any(fixed) or 0 in dims:
            raise Decline("more than one dimension of {} is not known", node.result.name)
        sizes = [element_count(half) for half in halves]
        return cls(x, tuple([size if known else -1 for size, known in zip(sizes, fixed, strict=True)]))

    def shape(self) -> tuple[Dim, ...]:
        """The shape of the result, with None for unknown sizes.

        Raises:
            Decline: a size is copied, and the rank of `x` is not known.
        """
        sizes: list[Dim] = []
        for axis, size in enumerate(self.target):
            if size == 0 and not self.allowzero:
                sizes.append(self.x.dims()[self.x.axis(axis)])
            else:
                sizes.append(None if size == -1 else size)
        before = self.x.shape
        known = element_count(sizes)
        if -1 in self.target and before is not None and sizes.count(None) == 1 and known:
            whole = [dim for dim in before if isinstance(dim, int)]
            if len(whole) == len(before):
                left_over = math.prod(whole) // known
                sizes[self.target.index(-1)] = left_over
        return tuple(sizes)

    def reading(self, x: Value) -> Reshape:
        """The same reshape of another value with the same elements.

        Args:
            x: a value with the elements of this `x` in the same order.

        Raises:
            Decline: a copied size is neither fixed nor equal in both.
        """
        target = list(self.target)
        for axis in [axis for axis, size in enumerate(target) if size == 0 and not self.allowzero]:
            dim = self.x.dims()[self.x.axis(axis)]
            if dim is not None and x.shape is not None and dim in x.shape[axis : axis + 1]:
                continue
            if not isinstance(dim, int) or dim == 0:
                raise Decline("dimension {} is copied from {}, where it is not known", axis, self.x.name)
            target[axis] = dim
        return replace(self, x=x, target=tuple(target))

    def write(self, to: NodeBuilder) -> Value:
        """Write the operator in the form of the graph's opset."""
        return to.op("Reshape", self.x, shape=self.target, allowzero=1 if self.allowzero else None)
