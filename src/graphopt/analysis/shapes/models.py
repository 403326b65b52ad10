"""Output shapes of high-level operators: recurrent layers, attention, grid sampling, losses."""

from __future__ import annotations

from graphopt.analysis.kernels import Unsupported
from graphopt.analysis.shapes.dim import Size, at_least
from graphopt.analysis.shapes.engine import Rule, Shape, ShapeAnalysis
from graphopt.ir import Node


def _recurrent(analysis: ShapeAnalysis, node: Node) -> list[Shape | None]:
    x = analysis.need(node, 0)
    if len(x) != 3:
        raise Unsupported(f"rank {len(x)}")
    hidden = node.attr("hidden_size")
    if hidden is None:
        hidden = analysis.need(node, 2)[-1]
    directions = 2 if node.attr("direction", "forward") == "bidirectional" else 1
    if node.attr("layout", 0):
        last: Shape = (x[0], directions, hidden)
        return [(x[0], x[1], directions, hidden), last, last]
    last = (directions, x[1], hidden)
    return [(x[0], directions, x[1], hidden), last, last]


def _attention(analysis: ShapeAnalysis, node: Node) -> list[Shape | None]:
    query, value = analysis.need(node, 0), analysis.need(node, 2)
    if len(query) == len(value) == 4:
        return [(query[0], query[1], query[2], value[3])]
    heads, groups = node.attr("q_num_heads"), node.attr("kv_num_heads")
    width = value[-1]
    if len(query) != 3 or len(value) != 3 or not heads or not groups or not isinstance(width, int) or width % groups:
        raise Unsupported("how wide a head is")
    return [(query[0], query[1], heads * (width // groups))]


def _grid_sample(analysis: ShapeAnalysis, node: Node) -> Shape:
    x, grid = analysis.need(node, 0), analysis.need(node, 1)
    if len(x) != len(grid) or len(x) < 3:
        raise Unsupported("the grid does not fit")
    return (x[0], x[1], *grid[1:-1])


def _roi_align(analysis: ShapeAnalysis, node: Node) -> Shape:
    x, places = analysis.need(node, 0), analysis.need(node, 1)
    return places[0], x[1], node.attr("output_height", 1), node.attr("output_width", 1)


def _max_roi_pool(analysis: ShapeAnalysis, node: Node) -> Shape:
    x, places = analysis.need(node, 0), analysis.need(node, 1)
    return (places[0], x[1], *node.attr("pooled_shape"))


def _determinant(analysis: ShapeAnalysis, node: Node) -> Shape:
    return analysis.need(node, 0)[:-2]


def _window(analysis: ShapeAnalysis, node: Node) -> Shape:
    sizes = analysis.sizes(node.input(0))
    if not sizes or not at_least(sizes[0], 0):
        raise Unsupported("the size is not known")
    return (sizes[0],)


def _loss(analysis: ShapeAnalysis, node: Node) -> list[Shape | None]:
    scores, labels = analysis.need(node, 0), analysis.need(node, 1)
    return [labels if node.attr("reduction", "mean") == "none" else (), scores]


def _boxes(analysis: ShapeAnalysis, node: Node) -> Shape:
    found: Size = analysis.fresh()
    return found, 3


def _samples(analysis: ShapeAnalysis, node: Node) -> Shape:
    return analysis.need(node, 0)[0], node.attr("sample_size", 1)


def _first(analysis: ShapeAnalysis, node: Node) -> Shape:
    return analysis.need(node, 0)


def _both(analysis: ShapeAnalysis, node: Node) -> Shape:
    return analysis.broadcast([analysis.need(node, 0), analysis.need(node, 1)])


def _scalar(analysis: ShapeAnalysis, node: Node) -> Shape:
    return ()


RULES: dict[str, Rule] = {
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), _window),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), _loss),
    **dict.fromkeys(("RegexFullMatch", "RotaryEmbedding"), _first),
    **dict.fromkeys(("OptionalHasElement", "SequenceLength"), _scalar),
    "Attention": _attention,
    "Det": _determinant,
    "GridSample": _grid_sample,
    "MaxRoiPool": _max_roi_pool,
    "Multinomial": _samples,
    "NonMaxSuppression": _boxes,
    "RoiAlign": _roi_align,
    "StringConcat": _both,
}
