"""Output shapes of ONNX Runtime's own operators that the standard's inference knows nothing of."""

from __future__ import annotations

from graphopt.analysis.kernels import Unsupported
from graphopt.analysis.shapes.engine import Rule, Shape, ShapeAnalysis
from graphopt.ir import Node

_ROWS = 3


def _rows(analysis: ShapeAnalysis, node: Node) -> Shape:
    x = analysis.need(node, 0)
    if len(x) != _ROWS:
        raise Unsupported("other than rows of a batch")
    return x


def _attention(analysis: ShapeAnalysis, node: Node) -> list[Shape | None]:
    """Rows of as many numbers as there are in the values, which are a third of the weights unless it is said."""
    batch, rows, _ = _rows(analysis, node)
    sizes, weights = node.attr("qkv_hidden_sizes"), analysis.need(node, 1)
    if sizes:
        return [(batch, rows, sizes[-1])]
    joined = weights[-1]
    if len(weights) != 2 or not isinstance(joined, int) or joined % 3:
        raise Unsupported("the size of the weights")
    return [(batch, rows, joined // 3)]


def _multi_head_attention(analysis: ShapeAnalysis, node: Node) -> list[Shape | None]:
    """Rows of the query, of as many numbers as there are in the values."""
    batch, rows, _ = _rows(analysis, node)
    if len(node.inputs) < _ROWS or node.input(2) is None:
        raise Unsupported("packed operands")
    values = analysis.need(node, 2)
    if len(values) == _ROWS:
        return [(batch, rows, values[2])]
    if len(values) == _ROWS + 1:
        return [(batch, rows, values[1] * values[3])]
    raise Unsupported("values of that rank")


def _rotary(analysis: ShapeAnalysis, node: Node) -> Shape:
    return analysis.need(node, 0)


def _product_of_bits(analysis: ShapeAnalysis, node: Node) -> Shape:
    """A product with weights of few bits, whose outputs are an attribute."""
    outputs = node.attr("N")
    if not isinstance(outputs, int):
        raise Unsupported("outputs that are not stated")
    return (*analysis.need(node, 0)[:-1], outputs)


RULES: dict[str, Rule] = {
    "com.microsoft::Attention": _attention,
    "com.microsoft::MatMulNBits": _product_of_bits,
    "com.microsoft::MultiHeadAttention": _multi_head_attention,
    "com.microsoft::RotaryEmbedding": _rotary,
}
