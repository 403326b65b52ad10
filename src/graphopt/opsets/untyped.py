"""Unknown types inside model-local functions: the set of types that may occur there."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from onnx import defs

from graphopt.errors import Decline
from graphopt.ir import Graph, Model, Node, Value
from graphopt.ir.types import type_name
from graphopt.opsets.changes import Change, formal
from graphopt.opsets.types import text
from graphopt.rewrite.inline import inner_graphs


def types_met(model: Model) -> frozenset[str]:
    """The types that values inside functions may have: those of all values, and those that operators there produce.

    Args:
        model: the model, after type inference.
    """
    known = {text(value.type) for graph in model.graphs() for value in _values(graph)}
    return frozenset({name for name in known if name} | {name for node in _inside(model) for name in _made(node)})


def _values(graph: Graph) -> Iterator[Value]:
    yield from graph.inputs
    yield from graph.initializers
    for node in graph:
        yield from (value for value in node.outputs if value is not None)


def _inside(model: Model) -> Iterator[Node]:
    for function in model.functions:
        for graph in (function, *inner_graphs(function)):
            yield from graph


def _made(node: Node) -> Iterator[str]:
    """The types of a node's results that do not depend on its operands."""
    stated = (node.attr(name) for name in ("to", "dtype", "output_dtype"))
    yield from (f"tensor({type_name(dtype)})" for dtype in stated if isinstance(dtype, int) and dtype)
    if node.op_type == "QuantizeLinear":
        yield "tensor(uint8)"  # the default without a zero point
    try:
        schema = defs.get_schema(node.op_type, node.graph.opset(node.domain), node.domain)
    except defs.SchemaError:
        return
    for parameter in schema.outputs:
        if len(parameter.types) == 1:
            yield from parameter.types


def check_unknown(node: Node, change: Change, step: int, met: Collection[str]) -> None:
    """Check that no operand of unknown type can have a type that the other version lacks.

    Args:
        node: the node.
        change: the change of its operator.
        step: 1 upwards, -1 downwards.
        met: the types that may occur, see `types_met`.

    Raises:
        Decline: the type of an operand is not known, and may be one that only this version has.
    """
    own, other = (change.before, change.after) if step > 0 else (change.after, change.before)
    if own is None or other is None:
        return
    for index, value in enumerate(node.inputs):
        here, there = formal(own.inputs, index), formal(other.inputs, index)
        if value is None or value.type is not None or here is None or there is None:
            continue
        lost = sorted((set(here.types) - set(there.types)) & set(met))
        if lost:
            raise Decline("inside of a function it is not known whether {} is a {}", value.name, lost[0])
