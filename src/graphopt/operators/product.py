"""Matrix products of rows with constant weights."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import Node, Value
from graphopt.records import dataclass

PRODUCTS = ("Gemm", "MatMul")


@dataclass(frozen=True, slots=True)
class LayerProduct:
    """A matrix product of rows with constant weights.

    Attributes:
        x: the rows.
        weight: the weights, [inputs, outputs].
        swapped: whether the weights are [outputs, inputs].
        bias: one number per output; None if there is none.
        nodes: the operators that compute it, in order.
    """

    x: Value
    weight: Value
    swapped: bool
    bias: Value | None
    nodes: tuple[Node, ...]

    @classmethod
    def of(cls, value: Value) -> LayerProduct:
        """Read the producer of a value; declines if it is no such product."""
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
        """The length of a row."""
        return int(self.weight.sizes()[1 if self.swapped else 0])

    @property
    def outputs(self) -> int:
        """The length of a row of the result."""
        return int(self.weight.sizes()[0 if self.swapped else 1])

    def over(self, image: Value, to: Any) -> Value:
        """Write the product as a 1x1 convolution of an image with a pixel per row.

        Its weights are a view of the matrix: the reorder into blocks then reads the matrix itself, in half the time.
        """
        array = self.weight.array()
        kernel = (array if self.swapped else array.T).reshape(self.outputs, self.inputs, 1, 1)
        result: Value = to.op("Conv", image, to.constant(kernel, like=self.weight), self.bias, kernel_shape=(1, 1))
        return result


def _sum(node: Node) -> tuple[Value, Node]:
    """The other operand of a sum with a product, and the product."""
    for at in (0, 1):
        product = node.operand(at).producer
        if product is not None and product.op in PRODUCTS and node.operand(at).one_use:
            return node.operand(1 - at), product
    raise Decline


def ends(node: Node) -> bool:
    """Whether this node is the last one of a product, not followed by the `Add` of a constant row."""
    return node.op == "Add" or not any(user.op == "Add" and _adds_row(user, node.result) for user in node.result.users)


def _adds_row(node: Node, value: Value) -> bool:
    """Whether an `Add` adds a constant row to a product."""
    try:
        return value.one_use and LayerProduct.of(node.result).nodes[0] is value.producer
    except Decline:
        return False
