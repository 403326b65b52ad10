"""Constants of enclosing graphs that subgraphs capture."""

from __future__ import annotations

from graphopt.ir import Graph, Model, Value
from graphopt.ir.flush import IR_WITH_FREE_INITIALIZERS
from graphopt.rewrite import Decline, GraphPass, Rewriter

_MOST_BYTES = 1 << 20


class MoveConstantsIntoBodies(GraphPass):
    """Move a constant that only one body of `If`, `Loop` or `Scan` reads into that body.

    ONNX Runtime plans a body's memory once, except if the body captures prepacked weights: a Keras network with four
    masked recurrent loops takes 436 us with the weights in their bodies, and 591 us without. Shape inference does not
    read captured constants either. Large constants stay, since only initializers of the main graph can be stored as
    external data.
    """

    ops = ("If", "Loop", "Scan")
    late = True

    def run_model(self, model: Model, rw: Rewriter) -> None:
        if model.ir_version < IR_WITH_FREE_INITIALIZERS:
            return
        for graph in self.entered(model, rw, outer_first=True):
            if graph.owners and not graph.in_function:
                for value in [each for each in graph.values.values() if each.tensor and each.users]:
                    _move(value, rw)


def _move(value: Value, rw: Rewriter) -> None:
    home = _innermost(value)
    if home is value.graph or value.is_anchored:
        return
    with rw.attempt(next(iter(value.users))):
        if value.tensor is not None and value.tensor.nbytes > _MOST_BYTES:
            raise Decline("{} is large", value.name)
        rw.move_constant(value, home)


def _innermost(value: Value) -> Graph:
    """The innermost graph that contains all readers of a value."""
    home, *others = (_around(reader.graph) for reader in value.users)
    return next(graph for graph in home if all(graph in each for each in others))


def _around(graph: Graph | None) -> list[Graph]:
    """A graph and its enclosing graphs, the main graph last."""
    found = []
    while graph is not None:
        found.append(graph)
        graph = graph.parent
    return found
