"""Values of equal names in several subgraphs, such as both branches of an `If`, which inference confuses."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from graphopt.ir import Model

_FOLLOWED = frozenset({
    "Add", "Cast", "Concat", "Constant", "Div", "Gather", "Identity", "Mul", "Reshape", "Shape", "Size", "Slice",
    "Squeeze", "Sub", "Unsqueeze",
})  # fmt: skip
"""Operators whose contents the standard's inference follows."""


def names_meet(model: Model) -> bool:
    """Whether two graphs, such as the branches of an `If`, compute values of equal names with followed contents.

    The standard's data propagation confuses their contents.
    """
    if not model.graph.owners:
        return False
    seen, followed = set[str](), set[str]()
    for graph in model.graphs():
        if graph.in_function:
            continue
        made, told = set[str](), set[str]()
        for node in graph.listed():
            names = [value.name for value in node.outputs if value is not None]
            made.update(names)
            if node.op in _FOLLOWED:
                told.update(names)
        if not (followed.isdisjoint(made) and seen.isdisjoint(told)):
            return True
        seen |= made
        followed |= told
    return False


class NamesApart:
    """Unique names for the values that the subgraphs of a model compute, and their inverse mapping.

    They are numbers with more digits than any name of the model has characters, so that they are new.
    """

    def __init__(self, graph: onnx.GraphProto) -> None:
        """Rename each result of a subgraph's nodes, and all its uses in the subgraph and those nested in it."""
        self._before: dict[str, str] = {}
        self._digits = 1 + max(map(len, _names_of(graph)), default=0)
        self._nodes(graph, {})

    def undo(self, graph: onnx.GraphProto) -> None:
        """Restore the original names in a graph and its subgraphs."""
        _rename(graph, self._before)
        for body in bodies_of(graph):
            self.undo(body)

    def _nodes(self, graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
        for body in bodies_of(graph):
            own = {name: self._new(name) for node in body.node for name in node.output if name}
            given = {*(each.name for each in body.input), *(each.name for each in body.initializer)}
            inner = {name: new for name, new in names.items() if name not in given} | own
            _rename(body, inner)
            self._nodes(body, inner)

    def _new(self, name: str) -> str:
        new = f"{len(self._before):0{self._digits}}"
        self._before[new] = name
        return new


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for node in graph.node:
        for listed in (node.input, node.output):
            listed[:] = [names.get(name, name) for name in listed]
    for info in (*graph.value_info, *graph.output):
        info.name = names.get(info.name, info.name)


def bodies_of(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    """The subgraphs of a graph's nodes."""
    return [each.g for node in graph.node for each in node.attribute if each.type == onnx.AttributeProto.GRAPH]


def _names_of(graph: onnx.GraphProto) -> set[str]:
    names = {*(each.name for each in graph.input), *(each.name for each in graph.initializer)}
    names.update(name for node in graph.node for name in (*node.input, *node.output))
    return names.union(*map(_names_of, bodies_of(graph)))
