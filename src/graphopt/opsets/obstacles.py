"""Obstacles to a conversion as a whole: unknown versions, and graphs that are not converted."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from graphopt.ir import Graph, Model
from graphopt.opsets.changes import changes, newest
from graphopt.rewrite.inline import inner_graphs


def obstacle(model: Model, domain: str, target: int) -> str:
    """Why no conversion to a version of a domain can be right, for any nodes; "" if it may be.

    Args:
        model: the model.
        domain: one of `DOMAINS`.
        target: the version.
    """
    for graph in (model.graph, *model.functions):
        where = f"function {graph.name}" if graph.is_function else "the model"
        version, last = graph.opset(domain), newest(domain)
        if version > last:
            return f"{where} has opset {version}, onnx knows them to {last}"
        if version < 0 or (not version and _is_used(graph, domain)):
            return f"{where} does not say which opset its operators are of"
    if _trains_otherwise(model, domain, target):
        return "the training information has operators that change on the way, and is not converted"
    return ""


def _is_used(top: Graph, domain: str) -> bool:
    graphs = (top, *inner_graphs(top))
    return any(node.domain == domain and not node.op.startswith("call ") for graph in graphs for node in graph)


def _trains_otherwise(model: Model, domain: str, target: int) -> bool:
    """Whether the conversion changes operators in the training information, whose graphs have the model's opset."""
    graphs = [graph for info in model.proto.training_info for graph in (info.initialization, info.algorithm)]
    used = {node.op_type for graph in graphs for node in _nodes(graph) if node.domain in _NAMES.get(domain, (domain,))}
    low, high = sorted((model.opset(domain), target))
    return bool(used) and any(not used.isdisjoint(changes(domain, version)) for version in range(low + 1, high + 1))


_NAMES = {"": ("", "ai.onnx")}


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)
