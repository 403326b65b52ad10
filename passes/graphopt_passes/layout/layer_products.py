"""Matrix products of rows with constant weights, and elementwise operators around them, as operators on images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Generic, TypeVar

import numpy as np
from onnx import TensorProto

from graphopt.records import dataclass
from graphopt.rewrite import Decline, Node, Rewriter, Value
from graphopt.system.machine import BLOCKS, host
from graphopt_passes.layout.activations import ELEMENTWISE

LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
"""The orders of axes that move channels behind an image's sides, and in front of them."""

PRODUCTS = ("Gemm", "MatMul")
T = TypeVar("T")

_TOGETHER = frozenset({"Add", "Div", "Max", "Min", "Mul", "Pow", "Sub"})
_BLOCKED = "com.microsoft.nchwc"

_FILLED = 16
"""Channels that fill their blocks on every machine."""

_MOST_BETWEEN = 16
"""Operators between two products that are looked at."""


@dataclass(frozen=True, slots=True)
class LayerProduct:
    """A matrix product of rows with constant weights.

    Attributes:
        x: the rows.
        weight: the weights, inputs by outputs.
        swapped: whether they lie the other way round.
        bias: a number for each output; None where nothing is added.
        nodes: the operators that compute it, the last one last.
    """

    x: Value
    weight: Value
    swapped: bool
    bias: Value | None
    nodes: tuple[Node, ...]

    @classmethod
    def of(cls, value: Value) -> LayerProduct:
        """Read what computes a value; declines where that is no such product."""
        node = value.producer
        if node is None or node.op not in (*PRODUCTS, "Add"):
            raise Decline
        bias: Value | None = None
        nodes: tuple[Node, ...] = (node,)
        if node.op == "Add":
            bias, node = _sum(node)
            nodes = (node, *nodes)
        x, weight = node.operand(0), node.operand(1)
        tensor = weight.constant_tensor
        if tensor is None or len(tensor.dims) != 2 or tensor.dtype != TensorProto.FLOAT or x.dtype != tensor.dtype:
            raise Decline
        if node.op == "Gemm":
            if node.attr("transA", 0) or node.attr("alpha", 1.0) != 1 or node.attr("beta", 1.0) != 1:
                raise Decline
            if node.input(2) is not None and bias is not None:
                raise Decline
            bias = node.input(2) or bias
        found = cls(x, weight, node.op == "Gemm" and bool(node.attr("transB", 0)), bias, nodes)
        if bias is not None and (bias.constant_tensor is None or bias.sizes() != (found.outputs,)):
            raise Decline
        return found

    @property
    def inputs(self) -> int:
        return int(self.weight.sizes()[1 if self.swapped else 0])

    @property
    def outputs(self) -> int:
        return int(self.weight.sizes()[0 if self.swapped else 1])

    def over(self, image: Value, rw: Rewriter) -> Value:
        """The same as a convolution over an image that has a pixel for each row."""
        array = self.weight.array()
        kernel = np.ascontiguousarray(array if self.swapped else array.T).reshape(self.outputs, self.inputs, 1, 1)
        return rw.op("Conv", image, rw.constant(kernel, like=self.weight), self.bias, kernel_shape=(1, 1))


def _sum(node: Node) -> tuple[Value, Node]:
    """What is added to a product, and the product."""
    for at in (0, 1):
        product = node.operand(at).producer
        if product is not None and product.op in PRODUCTS and node.operand(at).one_use:
            return node.operand(1 - at), product
    raise Decline


def ends(node: Node) -> bool:
    """Whether a product ends with this node, rather than with a sum that adds a constant row to it."""
    return node.op == "Add" or not any(user.op == "Add" and _adds_row(user, node.result) for user in node.result.users)


def _adds_row(node: Node, value: Value) -> bool:
    """Whether a sum adds a constant row to a product."""
    try:
        return value.one_use and LayerProduct.of(node.result).nodes[0] is value.producer
    except Decline:
        return False


@dataclass(frozen=True, slots=True)
class Between(Generic[T]):
    """Elementwise operators in front of a value, and what they begin with.

    Attributes:
        nodes: the operators, in order.
        first: the values that they begin with, and what is known of each.
    """

    nodes: tuple[Node, ...]
    first: Mapping[Value, T]

    @classmethod
    def of(cls, value: Value, reader: Node, begins: Callable[[Value], T]) -> Between[T]:
        """Walk up from what a node reads; declines where something is read elsewhere as well.

        Args:
            value: what is read.
            reader: the node that reads it.
            begins: what is known of a value that operators may begin with; it declines where they may not.
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
        """What is in place of each value, once there are images in place of the first ones."""
        found = dict(made)
        for each in self.nodes:
            if each.op == "Reshape":
                found[each.result] = found[each.operand(0)]
                continue
            inputs = [found.get(value, value) if value is not None else None for value in each.inputs]
            found[each.result] = rw.op(each.op_type, *inputs, domain=each.domain, **each.attrs)
        return found


def _collect(value: Value, nodes: dict[Node, None], first: dict[Value, T], begins: Callable[[Value], T]) -> None:
    """Walk up from a value to those that operators begin with; operators are kept in order."""
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
    """The operands of an elementwise operator that are no numbers; declines where it is none."""
    if regroups_rows(node):
        yield node.operand(0)
        return
    if node.op not in ELEMENTWISE | _TOGETHER:
        raise Decline
    found = [value for value in node.inputs if value is not None and not _is_number(value)]
    if not found or any(value.is_const for value in found):
        raise Decline
    if any(value.dims() != node.result.dims() for value in found):
        raise Decline("the operands of {} differ in shape", node.result.name)
    yield from found


def regroups_rows(node: Node) -> bool:
    """Whether a node is a `Reshape` that leaves the last axis as it is."""
    if node.op != "Reshape":
        return False
    old, new = node.operand(0).dims(), node.result.dims()
    return bool(old and new) and old[-1] == new[-1] and isinstance(old[-1], int) and old[-1] > 0


def _is_number(value: Value) -> bool:
    tensor = value.constant_tensor
    return tensor is not None and prod(tensor.dims) == 1 and len(tensor.dims) <= 1


def check_blocked(node: Node, products: list[LayerProduct], rw: Rewriter) -> None:
    """Decline where products cannot be convolutions in blocks."""
    if any(
        not channels or channels % _FILLED for product in products for channels in (product.inputs, product.outputs)
    ):
        raise Decline("the channels do not fill their blocks")
    if (rw.options.target or host()).block not in BLOCKS or rw.model.opset(_BLOCKED) or node.graph.in_function:
        raise Decline("it cannot be blocked here")
    for product in products:
        if not product.weight.one_use:
            raise Decline("{} has other readers", product.weight.name)
