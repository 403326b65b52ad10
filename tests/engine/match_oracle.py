"""The semantics of patterns a second time, as plainly as possible: try everything, then check everything.

Shares with the matcher only the pattern tree and the view; defaults come from `onnx.defs`, uses are counted by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import onnx

from graphopt.ir import Graph, Model, Node, Value
from graphopt.match.tree import UNSET, Const, NodePattern, Opt, OutputPattern, Rest, Tree, Var

COMMUTATIVE = {"Add", "Mul", "Max", "Min", "Sum"}
Bound = dict[Any, Any]  # patterns to what they stand for; an `Opt` to whether it is there


def solutions(tree: Tree, root: Node) -> Iterator[Bound]:
    """Every way in which a pattern fits with its first root at a node."""
    further = list(dict.fromkeys(output.node for output in tree.outputs))[1:]
    for others in product(list(root.graph), repeat=len(further)):
        fits: list[Bound] = [{}]
        for pattern, node in zip([tree.root, *further], [root, *others], strict=True):
            fits = [more for bound in fits for more in _node(pattern, node, bound)]
        for bound in fits:
            if _is_legal(tree, bound, root.graph):
                yield bound


def _node(pattern: NodePattern, node: Node, bound: Bound) -> Iterator[Bound]:
    if pattern in bound:
        if bound[pattern] is node:
            yield bound
        return
    if node.op not in pattern.ops:
        return
    slots = list(pattern.inputs)
    orders = [slots]
    plain = len(slots) == 2 and all(isinstance(slot, (Var, Const, OutputPattern)) for slot in slots)
    if plain and node.op in COMMUTATIVE and not pattern.ordered:
        orders.append(slots[::-1])
    for order in orders:
        yield from _inputs(order, list(node.inputs), {**bound, pattern: node})


def _inputs(slots: list[Any], values: list[Value | None], bound: Bound) -> Iterator[Bound]:
    if not slots:
        if all(value is None for value in values):
            yield bound
        return
    slot, rest = slots[0], slots[1:]
    value, others = (values[0], values[1:]) if values else (None, [])
    if isinstance(slot, Rest):
        if len(values) >= slot.min and None not in values:
            yield {**bound, slot: tuple(values)}
    elif slot is None:
        if value is None:
            yield from _inputs(rest, others, bound)
    elif isinstance(slot, Opt):
        if value is None:
            yield from _inputs(rest, others, {**bound, slot: False})
        else:
            for more in _value(slot.pattern, value, {**bound, slot: True}):
                yield from _inputs(rest, others, more)
    elif value is not None:
        for more in _value(slot, value, bound):
            yield from _inputs(rest, others, more)


def _value(pattern: Any, value: Value, bound: Bound) -> Iterator[Bound]:
    if pattern in bound:
        if bound[pattern] is value:
            yield bound
    elif isinstance(pattern, OutputPattern):
        producer = value.producer
        if producer is not None and producer.outputs[pattern.index : pattern.index + 1] == [value]:
            yield from _node(pattern.node, producer, {**bound, pattern: value})
    else:
        yield {**bound, pattern: value}


def _is_legal(tree: Tree, bound: Bound, graph: Graph) -> bool:
    nodes = {pattern: node for pattern, node in bound.items() if isinstance(pattern, NodePattern)}
    return (
        len(set(nodes.values())) == len(nodes)
        and all(node.graph is graph for node in nodes.values())
        and all(_attributes_fit(pattern, node) for pattern, node in nodes.items())
        and all(_uses_fit(tree, pattern, node, bound) for pattern, node in nodes.items())
        and all(_leaf_fits(leaf, value) for leaf, value in bound.items())
    )


def _attributes_fit(pattern: NodePattern, node: Node) -> bool:
    try:
        schema = onnx.defs.get_schema(node.op_type, node.graph.opset(node.domain), node.domain)
        stated = {name: onnx.helper.get_attribute_value(a.default_value) for name, a in schema.attributes.items()
                  if a.default_value.type}  # fmt: skip
        known = set(schema.attributes)
    except onnx.defs.SchemaError:
        stated, known = {}, None
    for name, found in node.attrs.items():
        if name not in pattern.attrs and not pattern.other_attrs and (name not in stated or stated[name] != found):
            return False
    for name, attr in pattern.attrs.items():
        found = node.attrs.get(name, stated.get(name))
        if attr.equals is not UNSET and found != attr.equals and (found is not None or known is None or name in known):
            return False
        if attr.name is not None and attr.default is UNSET and attr.equals is UNSET and found is None:
            return False
    return True


def _uses_fit(tree: Tree, pattern: NodePattern, node: Node, bound: Bound) -> bool:
    if pattern.shared:
        return True
    is_root = any(output.node is pattern for output in tree.outputs)
    for index, value in enumerate(node.outputs):
        listed = index < len(pattern.outputs)
        if value is None or (is_root and listed):
            continue
        inside = sum(_reads(other, pattern, index, bound) for other in bound if isinstance(other, NodePattern))
        if _uses(node.graph.model, value) != inside:
            return False
    return True


def _reads(reader: NodePattern, pattern: NodePattern, index: int, bound: Bound) -> int:
    there = (slot for slot in reader.inputs if not isinstance(slot, Opt) or bound[slot])
    outputs = (slot.pattern if isinstance(slot, Opt) else slot for slot in there)
    return sum(isinstance(o, OutputPattern) and o.node is pattern and o.index == index for o in outputs)


def _uses(model: Model, value: Value) -> int:
    graphs = list(model.graphs())
    return sum(v is value for graph in graphs for node in graph for v in node.inputs) + sum(
        v is value for graph in graphs for v in graph.outputs
    )


def _leaf_fits(leaf: Any, value: Any) -> bool:
    if isinstance(leaf, Const):
        array = value.const()
        return array is not None and (leaf.value is None or (array.size == 1 and array.item() == leaf.value.item()))
    return True
