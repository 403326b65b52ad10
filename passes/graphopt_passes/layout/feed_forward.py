"""Feed-forward blocks of transformers, written as 1x1 convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
from onnx import TensorProto

from graphopt.rewrite import Decline, Level, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt.system.machine import BLOCKS, Target, host
from graphopt_passes.layout import timing
from graphopt_passes.layout.activations import ELEMENTWISE

_BLOCKED = "com.microsoft.nchwc"
_PRODUCTS = ("Gemm", "MatMul")
_TOGETHER = frozenset({"Add", "Div", "Max", "Min", "Mul", "Pow", "Sub"})
_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)

_GAINING = {"zen5": (2 << 20, 1024)}
_GAINING_ELSEWHERE = (4 << 20, 128)
"""The least bytes of weights and the most rows of a block that gains, on cores that were measured and on others.

With more rows products run at the core's peak either way.
"""

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
        if node is None or node.op not in (*_PRODUCTS, "Add"):
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
        if product is not None and product.op in _PRODUCTS and node.operand(at).one_use:
            return node.operand(1 - at), product
    raise Decline


class ConvertFeedForwardToConv(OpRule):
    """Compute two products of rows with what lies between them as 1x1 convolutions over an image of these rows.

    The runtime's product of few rows with large weights runs at half its peak or less; its blocked convolution does
    not. Between the two, elementwise operators with numbers, or gates (products of the same rows that are multiplied),
    stay in blocks. Blocks of 512 and 2048 channels take 0.66 of the time at 16 rows, 0.93 at 256 (Zen 5).

    `Options(extra={"convert_feed_forward_to_conv": {"force": True}})` converts blocks of any size.
    """

    ops = (*_PRODUCTS, "Add")
    needs = (_PRODUCTS,)
    level = Level.LAYOUT
    numerics = Numerics.ROUNDING
    opsets = "7-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        last = LayerProduct.of(node.result)
        if node.op != "Add" and any(user.op == "Add" and _adds_row(user, node.result) for user in node.result.users):
            raise Decline  # that sum is the end of the product
        between, first = _block(last)
        x = first[0].x
        target, force = rw.options.target or host(), bool(rw.options.extra.get(self.name, {}).get("force"))
        rows = _check(node, [*first, last], target, rw, force=force)
        image = rw.op("Transpose", rw.op("Reshape", x, shape=(1, 1, rows, first[0].inputs)), perm=_FIRST)
        made = {product.nodes[-1].result: product.over(image, rw) for product in first}
        for each in between:
            inputs = [made.get(value, value) if value is not None else None for value in each.inputs]
            made[each.result] = rw.op(each.op_type, *inputs, domain=each.domain, **each.attrs)
        result = rw.op("Transpose", last.over(made[last.x], rw), perm=_LAST)
        return rw.replace(node, [rw.op("Reshape", result, shape=tuple(node.result.sizes()))])


def _adds_row(node: Node, value: Value) -> bool:
    """Whether a sum adds a constant row to a product."""
    try:
        return value.one_use and LayerProduct.of(node.result).nodes[0] is value.producer
    except Decline:
        return False


def _block(last: LayerProduct) -> tuple[list[Node], list[LayerProduct]]:
    """Operators before a product that are read there alone, and the products that they begin with."""
    between: dict[Node, None] = {}
    first: dict[Value, LayerProduct] = {}
    _collect(last.x, between, first)
    inside = {*between, last.nodes[0]}
    for value in (*first, *(node.result for node in between)):
        if value.output_count or any(user not in inside for user in value.users):
            raise Decline("{} has other readers", value.name)
    if len({product.x for product in first.values()}) != 1:
        raise Decline("the products in front of {} are of different rows", last.x.name)
    return list(between), list(first.values())


def _collect(value: Value, between: dict[Node, None], first: dict[Value, LayerProduct]) -> None:
    """Walk up from a value to the products; operators are kept in order."""
    if value in first or value.producer in between:
        return
    try:
        first[value] = LayerProduct.of(value)
    except Decline:
        node = value.producer
        if node is None or len(node.outputs) != 1 or len(between) + len(first) > _MOST_BETWEEN:
            raise
        for operand in _images(node):
            _collect(operand, between, first)
        between[node] = None


def _images(node: Node) -> Iterator[Value]:
    """The operands of an elementwise operator that are no numbers; declines where it is none."""
    if node.op not in ELEMENTWISE | _TOGETHER:
        raise Decline
    found = [value for value in node.inputs if value is not None and not _is_number(value)]
    if not found or any(value.is_const for value in found):
        raise Decline
    yield from found


def _is_number(value: Value) -> bool:
    tensor = value.constant_tensor
    return tensor is not None and prod(tensor.dims) == 1 and len(tensor.dims) <= 1


def _check(node: Node, products: list[LayerProduct], target: Target, rw: Rewriter, *, force: bool) -> int:
    """How many rows there are; declines where the block cannot be written, or is not worth it."""
    x = products[0].x
    dims = x.dims()
    if len(dims) < 2 or not all(isinstance(dim, int) and dim > 0 for dim in dims):
        raise Decline("the number of rows of {} is not known", x.name)
    rows = prod(dim for dim in dims[:-1] if isinstance(dim, int))
    if any(channels % _FILLED for product in products for channels in (product.inputs, product.outputs)):
        raise Decline("the channels do not fill their blocks")
    if target.block not in BLOCKS or rw.model.opset(_BLOCKED) or node.graph.in_function:
        raise Decline("it cannot be blocked here")
    for product in products:
        if not product.weight.one_use:
            raise Decline("{} has other readers", product.weight.name)
    if force:
        return rows
    weights = sum(4 * product.inputs * product.outputs for product in products)
    least, most = _GAINING.get(target.core, _GAINING_ELSEWHERE)
    if target.name != "avx512":
        raise Decline("nothing is known of the kernels of {}", target.name)
    if weights < least:
        raise Decline("its weights have {} bytes, less than {}", weights, least)
    if rows > most:
        raise Decline("{} has {} rows, more than {}", x.name, rows, most)
    for product in products:
        plain, blocked = timing.convolution(product.inputs, product.outputs, (1, 1), (1, rows), target)
        if blocked >= plain:
            raise Decline("a convolution takes {:.0f} us in blocks, {:.0f} us in NCHW", blocked, plain)
    return rows
