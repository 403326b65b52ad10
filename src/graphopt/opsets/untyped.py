"""Unknown types inside model-local functions: the set of types that may occur there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from onnx import AttributeProto, defs

from graphopt.errors import Decline
from graphopt.ir import Graph, Model, Node, Tensor, Value
from graphopt.ir.attributes import decode_attribute
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
    inside = list(_inside(model))
    found = {name for name in known if name}.union(*map(_made, inside))
    return frozenset(found.union(_passed(model)) if any(map(_refers, inside)) else found)


def _passed(model: Model) -> Iterator[str]:
    """The types that attributes of calls, or their defaults, may state for nodes that refer to them."""
    for node in model.nodes():
        if "call " in node.op:
            yield from _named(node.attrs.values())
    for function in model.proto.functions:
        yield from _named(map(decode_attribute, function.attribute_proto))


def _values(graph: Graph) -> Iterator[Value]:
    yield from graph.inputs
    yield from graph.initializers
    for node in graph:
        yield from (value for value in node.outputs if value is not None)


def _inside(model: Model) -> Iterator[Node]:
    for function in model.functions:
        for graph in (function, *inner_graphs(function)):
            yield from graph


_STATING = ("to", "dtype", "output_dtype", "output_datatype", "value")
"""Attributes that state the type of a result, by its number or by a tensor."""


def _stated(node: Node) -> list[Any]:
    return [node.attrs[name] for name in _STATING if name in node.attrs]


def _refers(node: Node) -> bool:
    """Whether a call states the type of a result."""
    return any(isinstance(each, AttributeProto) for each in _stated(node))


def _named(stated: Iterable[Any]) -> Iterator[str]:
    """The names of types that are stated by their numbers, or by tensors."""
    for each in stated:
        dtype = each.dtype if isinstance(each, Tensor) else each
        if isinstance(dtype, int) and dtype:
            yield f"tensor({type_name(dtype)})"


def _made(node: Node) -> Iterator[str]:
    """The types of a node's results that do not depend on its operands."""
    yield from _named(_stated(node))
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
    """Check that no operand or result of unknown type can have a type that the other version lacks.

    Args:
        node: the node.
        change: the change of its operator.
        step: 1 upwards, -1 downwards.
        met: the types that may occur, see `types_met`.

    Raises:
        Decline: the type of an operand or result is not known, and may be one that only this version has.
    """
    own, other = (change.before, change.after) if step > 0 else (change.after, change.before)
    if own is None or other is None:
        return
    made = met if _refers(node) else [*_made(node)]
    sides = ((node.inputs, own.inputs, other.inputs, met), (node.outputs, own.outputs, other.outputs, made))
    for values, before, after, possible in sides:
        for index, value in enumerate(values):
            here, there = formal(before, index), formal(after, index)
            if value is None or value.type is not None or here is None or there is None:
                continue
            lost = sorted((set(here.types) - set(there.types)).intersection(possible))
            if lost:
                raise Decline("inside of a function it is not known whether {} is a {}", value.name, lost[0])
