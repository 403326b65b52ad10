"""Output shapes of ONNX Runtime's own operators, which the standard's inference does not know."""

from __future__ import annotations

from onnx import TensorProto

from graphopt.analysis.kernels import Unsupported
from graphopt.analysis.shapes.elementwise import like_first, normalized
from graphopt.analysis.shapes.engine import Rule, Shape, ShapeAnalysis
from graphopt.ir import Node
from graphopt.ir.schema import RUNTIMES_OWN

_ROWS = 3


def _rows(analysis: ShapeAnalysis, node: Node) -> Shape:
    x = analysis.need(node, 0)
    if len(x) != _ROWS:
        raise Unsupported("other than rows of a batch")
    return x


def _attention(analysis: ShapeAnalysis, node: Node) -> list[Shape | None]:
    """Rows as long as those of the values, a third of the weights' columns unless stated."""
    batch, rows, _ = _rows(analysis, node)
    sizes, weights = node.attr("qkv_hidden_sizes"), analysis.need(node, 1)
    if sizes:
        return [(batch, rows, sizes[-1])]
    joined = weights[-1]
    if len(weights) != 2 or not isinstance(joined, int) or joined % 3:
        raise Unsupported("the size of the weights")
    return [(batch, rows, joined // 3)]


def _multi_head_attention(analysis: ShapeAnalysis, node: Node) -> list[Shape | None]:
    """The rows of the query, with the length of the values' rows."""
    batch, rows, _ = _rows(analysis, node)
    if len(node.inputs) < _ROWS or node.input(2) is None:
        raise Unsupported("packed operands")
    values = analysis.need(node, 2)
    if len(values) == _ROWS:
        return [(batch, rows, values[2])]
    if len(values) == _ROWS + 1:
        return [(batch, rows, values[1] * values[3])]
    raise Unsupported("values of that rank")


def _grouped_attention(analysis: ShapeAnalysis, node: Node) -> list[Shape | None]:
    """The rows of the query, which also contain the heads of keys and values if these are omitted."""
    batch, rows, joined = _rows(analysis, node)
    if node.input(1) is not None:
        return [(batch, rows, joined)]
    queries, others = node.attr("num_heads", 0), node.attr("kv_num_heads", 0)
    heads = queries + 2 * others
    if not isinstance(joined, int) or heads < 1 or joined % heads:
        raise Unsupported("the size of the heads")
    return [(batch, rows, joined // heads * queries)]


def _embedded(analysis: ShapeAnalysis, node: Node) -> list[Shape | None]:
    """A row per word, and the sums before normalization; the mask index has two forms."""
    words, table = analysis.need(node, 0), analysis.need(node, 2)
    rows = (*words, *table[1:])
    return [rows, None, rows]


def _gathered_blocks(analysis: ShapeAnalysis, node: Node) -> Shape:
    """Slices of a table of integers; if these are packed into bytes, there are more elements than bytes."""
    table, taken = analysis.need(node, 0), analysis.need(node, 1)
    axis, packed = node.attr("gather_axis", 0), node.operand(0).dtype == TensorProto.UINT8
    if not -len(table) <= axis < len(table):
        raise Unsupported(f"axis {axis}")
    axis %= len(table)
    last = table[-1] * (8 // node.attr("bits", 4)) if packed else table[-1]
    unpacked = (*table[:-1], last)
    return (*unpacked[:axis], *taken, *unpacked[axis + 1 :])


def _product_of_bits(analysis: ShapeAnalysis, node: Node) -> Shape:
    """A product with weights of few bits, whose number of outputs is an attribute."""
    outputs = node.attr("N")
    if not isinstance(outputs, int):
        raise Unsupported("outputs that are not stated")
    return (*analysis.need(node, 0)[:-1], outputs)


RULES: dict[str, Rule] = {
    RUNTIMES_OWN: normalized,
    "com.microsoft::Attention": _attention,
    "com.microsoft::DecoderMaskedMultiHeadAttention": _multi_head_attention,
    "com.microsoft::EmbedLayerNormalization": _embedded,
    "com.microsoft::GatherBlockQuantized": _gathered_blocks,
    "com.microsoft::GroupQueryAttention": _grouped_attention,
    "com.microsoft::MatMulBnb4": _product_of_bits,
    "com.microsoft::MatMulNBits": _product_of_bits,
    "com.microsoft::MoE": like_first,
    "com.microsoft::MultiHeadAttention": _multi_head_attention,
    "com.microsoft::QAttention": _attention,
    "com.microsoft::QMoE": like_first,
    "com.microsoft::RotaryEmbedding": like_first,
    "com.microsoft::SparseAttention": _grouped_attention,
}
