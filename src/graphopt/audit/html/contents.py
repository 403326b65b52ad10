"""A model as data for the viewer: its graphs with positions, and details of nodes, values and weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import onnx

from graphopt.audit.columns import size
from graphopt.audit.difference import place_of
from graphopt.audit.html.layout import positions
from graphopt.audit.scopes import Scope
from graphopt.ir import Graph, Model, Node, Tensor, TensorType, Value, captured_values
from graphopt.ir.types import type_name

MOST_READ = 1 << 30
"""Bytes of weights that are read; further ones are shown only by shape and type."""

_MOST_SAMPLED, _SHOWN, _BARS = 1 << 16, 16, 24
_MOST_TEXT = 400
_NODE, _INPUT, _OUTPUT = 0, 1, 2


class ModelContents:
    """The contents of a model, with numbered nodes.

    Nodes are numbered through all graphs, those of one graph consecutively, so that a number identifies a node.

    Attributes:
        drawn: the nodes, in the order of their numbers; None for graph inputs and outputs, which are drawn like nodes.
        numbers: the number of each node.
    """

    def __init__(self, model: Model) -> None:
        self.drawn: list[Node | None] = []
        self.numbers: dict[Node, int] = {}
        self._graphs: list[dict[str, Any]] = []
        self._places: dict[Graph, int] = {}
        self._nodes: list[list[Any]] = []
        self._values: dict[Value, int] = {}
        self._stated: list[list[Any]] = []
        self._weights: list[dict[str, Any]] = []
        self._read = 0
        graphs = list(model.graphs())
        self._places = {graph: number for number, graph in enumerate(graphs)}
        for graph in graphs:
            self._graphs.append(self._graph(graph))
        self._entitle_bodies()
        for function in model.functions:
            self._graphs[self._places[function]].update(title=function.name, function=True)
        calls = {graph["title"]: number for number, graph in enumerate(self._graphs) if graph.get("function")}
        for node, number in self.numbers.items():
            overload = f":{node.overload}" if node.overload else ""
            called = calls.get(f"{node.domain}::{node.op_type}{overload}")
            if called is not None:
                self._nodes[number][7].append(called)

    def data(self) -> dict[str, Any]:
        """The model as plain data."""
        return {"graphs": self._graphs, "nodes": self._nodes, "values": self._stated, "weights": self._weights}

    def outputs(self) -> dict[tuple[Scope, str], int]:
        """The number of the node that computes each value; if several in one scope do, that in the outermost graph.

        A constant is not drawn: its first reader stands for it.
        """
        found: dict[tuple[Scope, str], int] = {}
        for node, number in self.numbers.items():
            for value in node.outputs:
                if value is not None:
                    found.setdefault((node.graph.scope, value.name), number)
        for node, number in self.numbers.items():
            for value in node.inputs:
                if value is not None:
                    found.setdefault((node.graph.scope, value.name), number)
        return found

    def ends(self) -> dict[tuple[str, int, str], int]:
        """The number of each drawn graph input and output, by graph, kind and name."""
        found = {}
        for own, graph in zip(self._places, self._graphs, strict=True):
            place = place_of(own)
            for number in range(graph["first"], graph["first"] + graph["count"]):
                node = self._nodes[number]
                if node[8] != _NODE:
                    found[place, node[8], node[3]] = number
        return found

    def _entitle_bodies(self) -> None:
        """Title each subgraph by its node, and by the node's output if unnamed nodes are alike."""
        alike = Counter((node.op_type, node.name) for node in self.numbers if node.subgraphs)
        for node, number in self.numbers.items():
            for name, body in node.subgraphs.items():
                value = next((each.name for each in node.outputs if each is not None), "")
                called = node.name or (value if alike[node.op_type, ""] > 1 else "")
                title = " › ".join([f"{node.op_type} {called}".strip(), name])
                self._graphs[self._places[body]].update(owner=number, title=title)

    def _graph(self, graph: Graph) -> dict[str, Any]:
        first = len(self._nodes)
        nodes = [node for node in graph if node.op != "Constant"]
        given = [value for value in graph.inputs if value.tensor is None]
        records = [(_NODE, node) for node in nodes]
        ends = [*((_INPUT, value) for value in given), *((_OUTPUT, value) for value in graph.outputs)]
        for number, node in enumerate(nodes):
            self.numbers[node] = first + number
        self.drawn += [*nodes, *(None for _ in ends)]
        edges = list(self._edges(nodes, given, graph, first))
        places = _placed(len(nodes), len(given), len(ends) - len(given), edges, first)
        for (_, node), (x, y) in zip(records, places, strict=False):
            self._nodes.append([round(x), round(y), *self._node(node), _NODE])
        for (kind, value), (x, y) in zip(ends, places[len(nodes) :], strict=True):
            number = self._value(value)
            read, made = ([], [number]) if kind == _INPUT else ([number], [])
            title = "input" if kind == _INPUT else "output"
            self._nodes.append([round(x), round(y), title, value.name, read, made, [], [], kind])
        return {"title": graph.name or "graph", "first": first, "count": len(nodes) + len(ends), "edges": edges}

    def _edges(self, nodes: list[Node], given: list[Value], graph: Graph, first: int) -> Iterator[tuple[int, int]]:
        makers = {value: first + number for number, node in enumerate(nodes) for value in node.outputs if value}
        makers |= {value: first + len(nodes) + number for number, value in enumerate(given)}
        seen: set[tuple[int, int]] = set()
        for reader, values in self._readers(nodes, graph, first + len(nodes) + len(given)):
            for value in values:
                edge = (makers.get(value, -1), reader) if value is not None else (-1, -1)
                if edge[0] >= 0 and edge not in seen:
                    seen.add(edge)
                    yield edge

    def _readers(
        self, nodes: list[Node], graph: Graph, first_output: int
    ) -> Iterator[tuple[int, Iterable[Value | None]]]:
        for node in nodes:
            yield self.numbers[node], (*node.inputs, *captured_values(node))
        for number, value in enumerate(graph.outputs):
            yield first_output + number, (value,)

    def _node(self, node: Node) -> list[Any]:
        reads = [self._value(value) if value is not None else -1 for value in node.inputs]
        makes = [self._value(value) if value is not None else -1 for value in node.outputs]
        attributes = [
            [name, _attribute(value)] for name, value in sorted(node.attrs.items()) if name not in node.subgraphs
        ]
        bodies = [self._places[body] for body in node.subgraphs.values()]
        op = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        return [op, node.name, reads, makes, attributes, bodies]

    def _value(self, value: Value) -> int:
        number = self._values.get(value)
        if number is None:
            tensor = value.tensor
            if tensor is None and value.producer is not None and value.producer.op == "Constant":
                tensor = value.producer.constant_tensor()
            weight = -1
            if tensor is not None:
                weight = len(self._weights)
                self._weights.append(self._weight(tensor))
            number = self._values[value] = len(self._stated)
            self._stated.append([value.name, _stated(value, tensor), weight])
        return number

    def _weight(self, tensor: Tensor) -> dict[str, Any]:
        found: dict[str, Any] = {"size": size(tensor.nbytes), "count": tensor.numel}
        self._read += tensor.nbytes
        if self._read > MOST_READ:
            return {**found, "note": "not read: the model is large"}
        try:
            array = tensor.array()
        except Exception as error:  # an unreadable weight must not hide the others
            return {**found, "note": str(error)[:_MOST_TEXT]}
        return {**found, **_statistics(array)}


def _placed(
    nodes: int, inputs: int, outputs: int, edges: list[tuple[int, int]], first: int
) -> list[tuple[float, float]]:
    """Positions of nodes, inputs and outputs; the layout requires inputs before nodes."""

    def ordered(number: int) -> int:
        local = number - first
        return local + inputs if local < nodes else local - nodes if local < nodes + inputs else local

    places = positions(nodes + inputs + outputs, [(ordered(a), ordered(b)) for a, b in edges])
    return [places[ordered(first + number)] for number in range(nodes + inputs + outputs)]


def _stated(value: Value, tensor: Tensor | None) -> str:
    if tensor is not None:
        return f"{type_name(tensor.dtype)}[{','.join(map(str, tensor.dims))}]"
    stated = value.type
    if not isinstance(stated, TensorType):
        return "" if stated is None else str(stated.WhichOneof("value"))
    shape = "?" if stated.shape is None else ",".join("?" if dim is None else str(dim) for dim in stated.shape)
    return f"{type_name(stated.dtype)}[{shape}]"


def _attribute(value: Any) -> str:
    if isinstance(value, Tensor):
        numbers = ", ".join(map(str, value.array().reshape(-1)[:_SHOWN].tolist())) if value.is_known else ""
        return f"{type_name(value.dtype)}[{','.join(map(str, value.dims))}] {numbers}"[:_MOST_TEXT]
    if isinstance(value, onnx.AttributeProto):
        return f"of the function: {value.ref_attr_name}" if value.ref_attr_name else str(value)[:_MOST_TEXT]
    if isinstance(value, tuple):
        return f"[{', '.join(map(_attribute, value[: 4 * _SHOWN]))}{', …' if len(value) > 4 * _SHOWN else ''}]"
    return f"{value:.7g}" if isinstance(value, float) else str(value)[:_MOST_TEXT]


def _statistics(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """The first elements, and for numbers their distribution, sampled if there are many."""
    flat = array.reshape(-1)
    first = flat[:_SHOWN]
    if array.dtype.kind in "OSUbc" or not flat.size:
        return {"first": [str(each) for each in first.tolist()]}
    whole = array.dtype.kind in "iu"  # for integers, such as tokens and sizes, every digit counts
    sample = flat[:: -(-flat.size // _MOST_SAMPLED)].astype(np.float64)
    shown = map(str, first.tolist()) if whole else (f"{each:.5g}" for each in first.astype(np.float64).tolist())
    found: dict[str, Any] = {"first": list(shown)}
    finite = sample[np.isfinite(sample)]
    if flat.size <= _SHOWN or not finite.size:
        return found
    low, high = float(finite.min()), float(finite.max())
    ends = [str(each) if whole else f"{each:.5g}" for each in ((flat.min(), flat.max()) if whole else (low, high))]
    found["range"] = [*ends, f"{finite.mean():.5g}", f"{finite.std():.5g}"]
    found["zeros"] = _share(int(np.count_nonzero(finite == 0)), finite.size)
    if sample.size < flat.size:
        found["sampled"] = int(sample.size)
    if finite.size < sample.size:
        found["strange"] = int(sample.size - finite.size)
    if high > low and np.isfinite(high - low):
        found["bars"] = np.histogram(finite, _BARS, (low, high))[0].tolist()
    return found


def _share(part: int, whole: int) -> str:
    """A percentage; 0 % and 100 % only if exact."""
    text = f"{part / whole:.1%}"
    if text == "0.0%" and part:
        return "below 0.1%"
    return "above 99.9%" if text == "100.0%" and part < whole else text
