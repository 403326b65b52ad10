"""Common subexpressions."""

from __future__ import annotations

import struct
from collections.abc import Hashable
from typing import Any, NamedTuple

import onnx

from graphopt.analysis.purity import is_deterministic
from graphopt.ir import Graph, Model, Node, OpInfo, Tensor, Value
from graphopt.rewrite import Decline, GraphPass, Rewriter

_SWAPPABLE = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor"})
"""Operators that are commutative bit for bit. Max and Min are not, because of the sign of zero."""


class _Scope(NamedTuple):
    """The visited nodes of a graph.

    Attributes:
        known: nodes by operator and inputs; if several share these, by attributes too.
        alone: nodes that have no equal, by their first operand, of which they are the only reader. The operand gets
            other readers when an equal value is merged into it.
    """

    known: dict[Hashable, Node | dict[Hashable, Node]]
    alone: dict[Value, Node]

    def enter(self, place: Hashable, node: Node) -> None:
        """Register a node for later equal nodes to be merged into, unless an equal node is registered."""
        here = self.known.setdefault(place, node)
        if here is node:
            return
        if isinstance(here, Node):
            here = self.known[place] = {_attributes(here): here}
        here.setdefault(_attributes(node), node)

    def admit(self, node: Node) -> None:
        """Register the nodes that are no longer alone, since this node reads their first operand."""
        for value in node.inputs if self.alone else ():
            if value is not None and value in self.alone:
                late = self.alone.pop(value)
                self.enter(_place(late), late)


class EliminateCommonSubexpression(GraphPass):
    """Merge nodes with equal operator, inputs, attributes and used outputs.

    Omitted attributes equal their defaults, and operands of commutative operators may be in either order. A node of a
    body is replaced by an equal node that an enclosing graph computed before. Random operators, unknown operators and
    control flow stay.
    """

    peers = {
        "onnxoptimizer": "eliminate_common_subexpression",
        "onnxruntime": "CommonSubexpressionElimination",
        "onnxslim": "subexpression_elimination",
        "onnxscript": "CommonSubexpressionEliminationPass",
    }

    def run_model(self, model: Model, rw: Rewriter) -> None:
        for top in (model.graph, *model.functions):
            _visit(top, [], rw)


def _visit(graph: Graph, outer: list[_Scope], rw: Rewriter) -> None:
    """Visit a graph in order; nodes are merged into earlier ones, in bodies also of enclosing graphs."""
    scopes = [_Scope({}, {}), *outer]
    for node in graph.listed():
        if node.removed:
            continue
        if node.subgraphs:
            for body in node.subgraphs.values():
                _visit(body, scopes, rw)
        elif node.outputs:
            _merge(node, scopes, rw)


def _merge(node: Node, scopes: list[_Scope], rw: Rewriter) -> None:
    first = node.inputs[0] if node.inputs else None
    if first is not None and len(first.users) == 1:
        scopes[0].alone[first] = node
        return
    place = _place(node)
    for scope in scopes:
        scope.admit(node)
        if place not in scope.known:
            continue
        found = scope.known[place]
        if isinstance(found, Node):
            found = scope.known[place] = {_attributes(found): found}
        twin = found.get(_attributes(node))
        if twin is not None and not twin.removed:
            with rw.attempt(node):
                if not is_deterministic(node):
                    raise Decline("{} is not deterministic", node.op)
                rw.replace(node, twin.outputs)
            if node.removed:
                return
    scopes[0].enter(place, node)


def _place(node: Node) -> Hashable:
    """A cheap key without attributes: equal for equal nodes, and different for most others."""
    inputs: tuple[Value | None, ...] = (*node.inputs,)
    if node.op in _SWAPPABLE and len(inputs) == 2:
        inputs = tuple(sorted(inputs, key=id))
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    tensor = node.constant_tensor() if node.op == "Constant" else None
    if tensor is not None:
        return "Constant", tensor.dtype, tensor.dims
    outputs = node.outputs
    if None not in outputs:
        return node.op, inputs, len(outputs)
    return node.op, inputs, (*[value is not None for value in outputs],)


def _attributes(node: Node) -> Hashable:
    tensor = node.constant_tensor() if node.op == "Constant" else None
    if tensor is not None:
        return tensor.key()
    given = {name: _key(value) for name, value in node.attrs.items()}
    defaults = {} if node.op.startswith("call ") else _defaults(node.schema)
    return frozenset({**defaults, **given}.items())


_known_defaults: dict[int, tuple[OpInfo, dict[str, Hashable]]] = {}


def _defaults(schema: OpInfo | None) -> dict[str, Hashable]:
    if schema is None or not schema.defaults:
        return {}
    found = _known_defaults.get(id(schema))
    if found is None or found[0] is not schema:
        found = schema, {name: _key(value) for name, value in schema.defaults.items()}
        _known_defaults[id(schema)] = found
    return found[1]


def _key(value: Any) -> Hashable:
    """A key of an attribute's value: equal for values of the same type that are equal bit for bit."""
    if isinstance(value, float):
        return "f", struct.pack("<d", value)
    if isinstance(value, (tuple, list)):
        return tuple(map(_key, value))
    if isinstance(value, Tensor):
        return value.key()
    if isinstance(value, (onnx.AttributeProto, onnx.TypeProto)):
        return value.SerializeToString(deterministic=True)
    return type(value).__name__, value
