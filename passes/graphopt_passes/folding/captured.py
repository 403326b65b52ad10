"""Constants that bodies read of the graphs around them."""

from __future__ import annotations

from graphopt.ir import Graph, Model, Value
from graphopt.ir.flush import IR_WITH_FREE_INITIALIZERS
from graphopt.rewrite import Decline, GraphPass, Rewriter

_MOST_BYTES = 1 << 20


class MoveConstantsIntoBodies(GraphPass):
    """Store a constant that one body of `If`, `Loop` or `Scan` alone reads inside of it.

    ONNX Runtime plans the memory of a body once, but not of one that captures weights which it has packed ahead: a
    Keras network with four masked recurrent loops takes 436 us with its weights in their bodies, and 591 without.
    Shape inference reads no constants of the graphs around a body, either. Large ones stay, for only those of the main
    graph can be beside the model in a file of their own.
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
    """The graph that holds all readers of a value, and itself lies deepest."""
    home, *others = (_around(reader.graph) for reader in value.users)
    return next(graph for graph in home if all(graph in each for each in others))


def _around(graph: Graph | None) -> list[Graph]:
    """A graph and those that it lies in, the main graph last."""
    found = []
    while graph is not None:
        found.append(graph)
        graph = graph.parent
    return found
