"""Whether two graphs are equal up to names, and which nodes of a graph run in every inference."""

from __future__ import annotations

import warnings
from typing import Any

import onnx

from graphopt.audit.difference import stated
from graphopt.ir import FLOAT_TYPES, Graph, Model, Node, Tensor, Value
from graphopt.system.extras import require


def isomorphic(first: Model, second: Model) -> bool:
    """Whether two models have the same nodes with the same wiring, regardless of names and the elements of weights."""
    a, b = drawing(first), drawing(second)
    if (len(a), a.number_of_edges()) != (len(b), b.number_of_edges()):
        return False
    if _fingerprint(a) != _fingerprint(b):
        return False
    return _same_wiring(first, second)


def _same_wiring(first: Model, second: Model) -> bool:
    """Walk both graphs from their outputs in parallel: inputs are ordered, so the matching needs no guesses.

    A search for isomorphisms would have to guess, and takes hours on repeated blocks.
    """
    partner: dict[Value | Node, Value | Node] = {}
    taken: set[Value | Node] = set()
    stack = list(zip(first.graph.outputs, second.graph.outputs, strict=True))
    while stack:
        a, b = stack.pop()
        if a in partner or b in taken:
            if partner.get(a) is not b:
                return False
            continue
        partner[a] = b
        taken.add(b)
        one, other = a.producer, b.producer
        if one is None or other is None:
            if one is not other or a.is_input != b.is_input or _constant(a) != _constant(b):
                return False
            continue
        if _label(one) != _label(other) or len(one.inputs) != len(other.inputs) or a.index != b.index:
            return False
        if one in partner or other in taken:
            if partner.get(one) is not other:
                return False
            continue
        partner[one] = other
        taken.add(other)
        for read, counterpart in zip(one.inputs, other.inputs, strict=True):
            if read is not None and counterpart is not None:
                stack.append((read, counterpart))
            elif read is not counterpart:
                return False
    return all(partner.get(a, b) is b for a, b in zip(first.graph.inputs, second.graph.inputs, strict=True))


def _fingerprint(graph: Any) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # networkx warns that its hashes changed between versions
        return str(require("networkx").weisfeiler_lehman_graph_hash(graph, node_attr="label", iterations=4))


def drawing(model: Model) -> Any:
    """The main graph: nodes and values joined through their positions, with labels of everything that counts."""
    graph = require("networkx").DiGraph()
    for index, value in enumerate(model.graph.inputs):
        graph.add_node(value, label=f"input {index}")
    for node in model.graph:
        graph.add_node(node, label=_label(node))
        for index, read in enumerate(node.inputs):
            if read is not None:
                _connect(graph, read, node, f"in {index}")
        for index, made in enumerate(node.outputs):
            if made is not None and (made.users or made.output_count):
                _connect(graph, node, made, f"out {index}")
    for index, value in enumerate(model.graph.outputs):
        _connect(graph, value, ("output", index), f"result {index}")
    for each in graph:
        if isinstance(each, Value) and "label" not in graph.nodes[each]:
            graph.nodes[each]["label"] = _constant(each)
        elif isinstance(each, tuple) and "label" not in graph.nodes[each]:
            graph.nodes[each]["label"] = "output"
    return graph


def _connect(graph: Any, source: Any, target: Any, label: str) -> None:
    place = (source, target, label)
    graph.add_node(place, label=label)
    graph.add_edge(source, place)
    graph.add_edge(place, target)


def _label(node: Node) -> str:
    attributes = sorted((name, _text(value)) for name, value in stated(node).items())
    return f"{node.op} {attributes}"


def _text(value: Any) -> str:
    if isinstance(value, Tensor):
        return _digest(value)
    if isinstance(value, Graph):
        return "body " + " ".join(_label(node) for node in value)
    if isinstance(value, onnx.AttributeProto):
        return value.SerializeToString(deterministic=True).hex()
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _constant(value: Value) -> str:
    return _digest(value.tensor) if value.tensor is not None else "value"


def _digest(tensor: Tensor) -> str:
    if tensor.dtype in FLOAT_TYPES:
        return f"{tensor.dtype} {tensor.dims}"
    return repr(tensor.key())


def live_nodes(model: Model) -> int:
    """Nodes of all graphs that run in every inference: those with an operand that is not constant."""
    constant: set[Value] = set()
    count = 0
    for graph in model.graphs():
        for node in graph:
            inputs = [v for v in node.inputs if v is not None]
            if (
                not node.subgraphs
                and all(v.is_const or v in constant for v in inputs)
                and (inputs or node.op == "Constant")
            ):
                constant.update(v for v in node.outputs if v is not None)
            else:
                count += 1
    return count
