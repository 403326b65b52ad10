"""Unused nodes, initializers and functions."""

from __future__ import annotations

from graphopt.analysis.calls import called_function
from graphopt.analysis.purity import is_removable
from graphopt.rewrite import Decline, Graph, GraphPass, Model, Rewriter
from graphopt.rewrite.waiting import FUNCTIONS


class EliminateDeadend(GraphPass):
    """Remove nodes whose outputs are unused, and all nodes that only these need.

    Nodes that may have side effects stay: unknown operators, and control flow that contains one. So do the nodes of a
    graph without outputs, since no runtime loads an empty graph.
    """

    peers = {
        "onnxoptimizer": "eliminate_deadend",
        "onnxslim": "dead_node_elimination",
        "onnxscript": "RemoveUnusedNodesPass",
    }

    def run(self, graph: Graph, rw: Rewriter) -> None:
        """Visit nodes in reverse order, so that one sweep is enough."""
        for node in reversed(graph.listed()):
            if node.removed:
                continue
            for value in node.outputs:
                if value is not None and (value.users or value.output_count):
                    break
            else:
                with rw.attempt(node):
                    if not is_removable(node):
                        raise Decline("{} may have side effects", node.op)
                    if not graph.outputs:
                        raise Decline("the graph has no outputs")
                    rw.erase(node)


class EliminateUnusedInitializer(GraphPass):
    """Remove unused initializers.

    Overridable initializers stay, as part of the interface, as do those named by quantization annotations or training
    information.
    """

    peers = {"onnxoptimizer": "eliminate_unused_initializer", "onnxscript": "RemoveUnusedNodesPass"}

    def run(self, graph: Graph, rw: Rewriter) -> None:
        for value in [v for v in graph.values.values() if v.tensor is not None and not v.users and not v.is_anchored]:
            with rw.attempt(None):
                rw.drop_constant(value)


class EliminateUnusedFunction(GraphPass):
    """Remove model-local functions that neither a graph nor another used function calls.

    The functions of a model with an empty graph stay: it is a library.
    """

    needs = ((FUNCTIONS,),)
    peers = {"onnxscript": "RemoveUnusedFunctionsPass"}

    def run_model(self, model: Model, rw: Rewriter) -> None:
        if not model.functions or model.proto.training_info or _is_library(model):
            return
        unused = {function.name: function for function in model.functions}
        stack = [model.graph]
        while stack:
            graph = stack.pop()
            for node in graph:
                stack.extend(node.subgraphs.values())
                called = unused.pop(called_function(node), None)
                if called is not None:
                    stack.append(called)
        for function in unused.values():
            with rw.attempt(None):
                rw.drop_function(function)


def _is_library(model: Model) -> bool:
    """Whether a model has an empty graph, and exists for its functions."""
    return not len(model.graph) and not model.graph.outputs
