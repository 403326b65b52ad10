"""Matrix products of rows with constant weights, and elementwise operators around them, as operators on images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from graphopt.operators.product import LayerProduct
from graphopt.records import dataclass
from graphopt.rewrite import Decline, Node, Rewriter, Value
from graphopt.system.machine import BLOCKS
from graphopt_passes.layout.activations import ELEMENTWISE
from graphopt_passes.layout.blocks import DOMAIN
from graphopt_passes.layout.known import is_number

T = TypeVar("T")

_BETWEEN = ELEMENTWISE | {"Add", "Div", "Max", "Min", "Mul", "Pow", "Sub"}

_FILLED = 16
"""A multiple of this number of channels fills its blocks on every machine."""

_MOST_BETWEEN = 16
"""The most operators between two products that are examined."""


@dataclass(frozen=True, slots=True)
class Between(Generic[T]):
    """Elementwise operators before a value, and the values that they start from.

    Attributes:
        nodes: the operators, in order.
        first: the values that they start from, each with the result of `begins`.
    """

    nodes: tuple[Node, ...]
    first: Mapping[Value, T]

    @classmethod
    def of(cls, value: Value, reader: Node, begins: Callable[[Value], T]) -> Between[T]:
        """Walk up from an operand of a node; declines if a value on the way has other readers.

        Args:
            value: the operand.
            reader: the node that reads it.
            begins: describes a value that the operators may start from; declines for other values.
        """
        nodes: dict[Node, None] = {}
        first: dict[Value, T] = {}
        _collect(value, nodes, first, begins)
        inside = {*nodes, reader}
        for each in (*first, *(node.result for node in nodes)):
            if each.output_count or any(user not in inside for user in each.users):
                raise Decline("{} has other readers", each.name)
        return cls(tuple(nodes), first)

    def over(self, made: Mapping[Value, Value], rw: Rewriter) -> dict[Value, Value]:
        """The replacement of each value, given images in place of the first ones."""
        found = dict(made)
        for each in self.nodes:
            if each.op == "Reshape":
                found[each.result] = found[each.operand(0)]
                continue
            inputs = [found.get(value, value) if value is not None else None for value in each.inputs]
            found[each.result] = rw.again(each, *inputs)
        return found


def _collect(value: Value, nodes: dict[Node, None], first: dict[Value, T], begins: Callable[[Value], T]) -> None:
    """Walk up from a value to those that the operators start from; operators are kept in order."""
    if value in first or value.producer in nodes:
        return
    try:
        first[value] = begins(value)
    except Decline:
        node = value.producer
        if node is None or len(node.outputs) != 1 or len(nodes) + len(first) > _MOST_BETWEEN:
            raise
        for operand in _images(node):
            _collect(operand, nodes, first, begins)
        nodes[node] = None


def _images(node: Node) -> Iterator[Value]:
    """The operands of an elementwise operator that are no numbers; declines for other operators."""
    if regroups_rows(node):
        yield node.operand(0)
        return
    if node.op not in _BETWEEN:
        raise Decline
    found = [value for value in node.inputs if value is not None and not (value.is_const and is_number(value, 1))]
    if not found or any(value.is_const for value in found):
        raise Decline
    if any(value.dims() != node.result.dims() for value in found):
        raise Decline("the operands of {} differ in shape", node.result.name)
    yield from found


def regroups_rows(node: Node) -> bool:
    """Whether a node is a `Reshape` that keeps the last axis."""
    if node.op != "Reshape":
        return False
    old, new = node.operand(0).dims(), node.result.dims()
    return bool(old and new) and old[-1] == new[-1] and isinstance(old[-1], int) and old[-1] > 0


def check_blocked(node: Node, products: list[LayerProduct], rw: Rewriter) -> None:
    """Decline if products cannot be convolutions in blocks."""
    if any(
        not channels or channels % _FILLED for product in products for channels in (product.inputs, product.outputs)
    ):
        raise Decline("the channels do not fill whole blocks")
    if rw.target.block not in BLOCKS or rw.model.opset(DOMAIN) or node.graph.in_function:
        raise Decline("it cannot be blocked here")
    for product in products:
        product.weight.check_one_use()
