"""Inlining of model-local functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx

from graphopt.analysis.calls import ENDLESS, CallSizes, called_function
from graphopt.ir.attributes import GRAPH_KINDS, decode_attribute
from graphopt.ir.schema import op_schema
from graphopt.rewrite import Decline, Event, Graph, GraphPass, Level, Model, Node, Rewriter, Value
from graphopt.rewrite.inline import adopt, check_effects, inner_graphs, replace_by
from graphopt.rewrite.legality import gone
from graphopt.rewrite.waiting import FUNCTIONS

_GROWTH = 100
"""Largest growth of a model in nodes: nested calls multiply."""

_DEEPEST = 28
"""Deepest nesting of graphs: each takes three of the hundred levels that protobuf parses."""

_SHARED = 64
"""Least bytes of a constant that all copies of a body share; a reference to a smaller one costs as much."""

_CALL = "call "

_RUNTIME = "com.microsoft"
"""Prefix of domains whose operators vary between versions of the runtime."""


class InlineFunctions(GraphPass):
    """Replace calls of model-local functions with the bodies of the functions.

    Attributes get the values of the call or their defaults, inputs and outputs may be omitted, and functions that the
    body calls are inlined too. A call is kept if the function uses another version of an operator than the model
    imports, unless that is newer and only allows more; if nested calls would make the model explode; and if the runtime
    has, or may have, an operator of that name, which it would prefer.
    """

    level = Level.EXTENDED
    needs = ((FUNCTIONS,),)
    peers = {"onnxscript": "InlinePass"}

    def run_model(self, model: Model, rw: Rewriter) -> None:
        sizes = CallSizes(model)
        left = _GROWTH * (sum(1 for _ in model.nodes()) + 1)
        calls, weights = _calls(model.graph), Weights()
        while calls:
            node = calls.pop()
            function = sizes.functions.get(called_function(node))
            if function is None:
                continue
            size = sizes.of(function)
            with rw.attempt(node):
                if size >= ENDLESS:
                    raise Decline("{} calls itself", function.name)
                if size > left:
                    raise Decline("inlining {} would make {} nodes", function.name, size)
                self._inline(node, function, rw, weights)
                left -= sum(len(inside) for inside in (function, *inner_graphs(function)))
                calls.extend(_copies(node.graph, rw.log.events[-1]))

    def _inline(self, node: Node, function: Graph, rw: Rewriter, weights: Weights) -> None:
        graph = node.graph
        if _may_be_known(node):
            raise Decline("{} may be an operator that the runtime implements", function.name.removeprefix("::"))
        _check_versions(function, graph)
        check_effects(node, function)
        _check_depth(function, graph)
        attributes = _attributes(node, function)
        if any(isinstance(each, onnx.AttributeProto) and each.type in GRAPH_KINDS for each in attributes.values()):
            raise Decline("an attribute of the call, or its default, is a graph")
        if len(node.inputs) > len(function.inputs) or len(node.outputs) > len(function.outputs):
            raise Decline("the call has more inputs or outputs than the function {}", function.name)
        given: dict[Value, Value | None] = {value: node.input(i) for i, value in enumerate(function.inputs)}
        shared = weights.of(function, rw)
        results = adopt(rw, function, {**given, **shared}, attributes)
        for inside in (function, *inner_graphs(function)):
            for inner in inside:
                if not graph.opset(inner.domain) and function.opset(inner.domain):
                    rw.import_domain(inner.domain, function.opset(inner.domain))
        replace_by(rw, node, results)
        weights.remember(shared)


class Weights:
    """Constants of functions, stored once for all copies of a body, even for calls inside branches."""

    def __init__(self) -> None:
        self._known: dict[Value, Value] = {}

    def of(self, function: Graph, rw: Rewriter) -> dict[Value, Value]:
        """Map each constant of a function that is worth sharing to an initializer of the main graph."""
        found: dict[Value, Value] = {}
        for value in _constants(function):
            tensor, known = value.constant_tensor, self._known.get(value)
            if tensor is not None and tensor.nbytes >= _SHARED:
                if known is None or gone(known):
                    known = rw.constant(tensor, like=value, graph=rw.model.graph)
                found[value] = known
        return found

    def remember(self, shared: dict[Value, Value]) -> None:
        """Record the constants that were added to the model."""
        self._known.update({inner: value for inner, value in shared.items() if value.name})


def _constants(function: Graph) -> Iterator[Value]:
    """The constants of a function and all its subgraphs."""
    for graph in (function, *inner_graphs(function)):
        yield from (value for value in graph.initializers if not value.is_input)
        yield from (value for node in graph if node.op == "Constant" for value in node.outputs if value is not None)


def _may_be_known(node: Node) -> bool:
    """Whether a runtime may have an operator of the function's name, which it would prefer."""
    domain = node.domain
    return domain.startswith(_RUNTIME) or op_schema(node.op_type, domain, node.graph.opset(domain)) is not None


def _check_depth(function: Graph, graph: Graph) -> None:
    """Decline if graphs would be nested too deeply for a file."""
    depth = max(map(_depth, inner_graphs(function)), default=0) + _depth(graph)
    if depth > _DEEPEST:
        raise Decline("{} graphs would be nested", depth)


def _depth(graph: Graph) -> int:
    return 0 if graph.owner is None else 1 + _depth(graph.owner.graph)


def _calls(graph: Graph) -> list[Node]:
    """The calls in a graph and all its subgraphs, in reverse order, to be pushed on a stack."""
    every = (graph, *inner_graphs(graph))
    return [node for inside in every for node in inside if node.op.startswith(_CALL)][::-1]


def _copies(graph: Graph, event: Event) -> list[Node]:
    """The calls that a replacement inserted, including subgraphs, in reverse order."""
    values = (graph.values.get(name) for note in event.added for name in note.outputs)
    found = []
    for top in dict.fromkeys(value.producer for value in values if value and value.producer):
        found += [top] if top.op.startswith(_CALL) else []
        found += [node for inner in top.subgraphs.values() for node in _calls(inner)[::-1]]
    return found[::-1]


def _attributes(node: Node, function: Graph) -> dict[str, Any]:
    """The function's attributes with the values of the call or defaults; without either, an attribute is absent."""
    proto = function.proto
    assert isinstance(proto, onnx.FunctionProto)
    return {**{a.name: decode_attribute(a) for a in proto.attribute_proto}, **node.attrs}


def _check_versions(function: Graph, graph: Graph) -> None:
    """Decline if an operator of the body has another meaning in the graph."""
    for inside in (function, *inner_graphs(function)):
        for node in inside:
            there, here = function.opset(node.domain), graph.opset(node.domain)
            if there == here or not here:
                continue
            before, after = (op_schema(node.op_type, node.domain, version) for version in (there, here))
            if called_function(node) and before is after is None:
                continue
            same = before is not None and after is not None and before.since_version == after.since_version
            if not (same or _stays(node, here)):
                raise Decline(
                    "{} uses {} of opset {}, the model has opset {}", function.name, node.op_type, there, here
                )


def _stays(node: Node, version: int) -> bool:
    """Whether a newer version of an operator only extends the one that the function uses."""
    from graphopt.opsets.meanings import stays  # imports all steps of version conversion, which few models need here

    return stays(node, version)
