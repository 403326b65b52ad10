"""Unused outputs of `If`, `Loop` and `Scan`, and loop-invariant states."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import compress
from typing import Any

from graphopt.analysis.purity import is_removable
from graphopt.ir import Graph, Node, Value, captured_values
from graphopt.operators.carried import Carried
from graphopt.rewrite import Decline, OpRule, Outcome, Rewriter
from graphopt.rewrite.inline import Operand, Trim, replace_by, trimmed


class EliminateUnusedSubgraphOutputs(OpRule):
    """Remove unused outputs of `If`, `Loop` and `Scan`, and the nodes of their bodies that only these need.

    A state is removed if its final value is unused, and nothing else in the body depends on it.
    """

    ops = ("If", "Loop", "Scan")
    opsets = "9-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Remove unused outputs; a node without any used output is left to `eliminate_deadend`."""
        used = [value is not None and value.uses > 0 for value in node.outputs]
        if not any(used):
            raise Decline
        results = _trim_branches(node, used, rw) if node.op == "If" else _trim_body(node, used, rw)
        return replace_by(rw, node, results)


class EliminateLoopInvariantState(OpRule):
    """Remove a state of `Loop` or `Scan` that no iteration changes: the body captures its initial value.

    The final value is the initial one. If it is constant, it is then known to be so inside the body.
    """

    ops = ("Loop", "Scan")
    opsets = "9-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        carried = Carried.of(node)
        gone = {k for k in range(carried.states) if carried.is_passed_on(k)}
        if not gone:
            raise Decline
        given = {carried.before(k): carried.start(k) for k in gone}
        if not is_removable(node) and not any(value.uses for value in node.results if value.index not in gone):
            raise Decline("nothing else of the {} is used, and it may have side effects", node.op)
        trim, operands = _trim(carried, gone)
        count = sum(k not in gone for k in range(len(node.outputs)))
        made = iter(trimmed(rw, node, {"body": trim}, inputs=operands, outputs=count, given=given))
        results = [carried.start(k) if k in gone else next(made) for k in range(len(node.outputs))]
        return replace_by(rw, node, results)


def _trim_branches(node: Node, used: list[bool], rw: Rewriter) -> list[Operand]:
    branches = node.subgraphs
    if all(used) or len(branches) != 2 or any(len(branch.outputs) != len(used) for branch in branches.values()):
        raise Decline
    gone = [index for index, is_used in enumerate(used) if not is_used]
    trims = {key: Trim((), gone, _unneeded(each, list(compress(each.outputs, used)))) for key, each in branches.items()}
    return _dealt(trimmed(rw, node, trims, inputs=node.inputs, outputs=sum(used)), used)


def _trim_body(node: Node, used: list[bool], rw: Rewriter) -> list[Operand]:
    carried = Carried.of(node)
    total = len(carried.after)
    keep = _wanted(carried, [*used, *[False] * (total - len(used))])
    if all(keep):
        raise Decline
    gone = [k for k in range(total) if not keep[k]]
    trim, operands = _trim(carried, gone, _unneeded(carried.body, _roots(carried, keep)))
    results = keep[carried.states :]
    lists = {name: node.attrs[name] for name in ("scan_output_axes", "scan_output_directions") if name in node.attrs}
    if any(len(listed) != len(results) for listed in lists.values()):
        raise Decline
    attrs: dict[str, Any] = {name: tuple(compress(listed, results)) or None for name, listed in lists.items()}
    made = trimmed(rw, node, {"body": trim}, inputs=operands, outputs=sum(keep), **attrs)
    return _dealt(made, keep)[: len(node.outputs)]


def _trim(carried: Carried, gone: Collection[int], nodes: Collection[Node] = ()) -> tuple[Trim, list[Operand]]:
    """The change that removes the states and results `gone` of a body, and the remaining operands."""
    inputs = {carried.first_in + k for k in gone if k < carried.states}
    operands = [value for index, value in enumerate(carried.node.inputs) if index not in inputs]
    return Trim(inputs, [carried.first_out + k for k in gone], nodes), operands


def _wanted(carried: Carried, used: Sequence[bool]) -> list[bool]:
    """The states and results that are needed.

    They are needed by outputs that are `used`, the condition, a needed state or result, or a node with side effects.
    """
    wanted = list(used)
    while True:
        read = _needed(carried.body, _roots(carried, wanted))[1]
        more = [k for k in range(carried.states) if not wanted[k] and carried.before(k) in read]
        if not more:
            return wanted
        for k in more:
            wanted[k] = True


def _roots(carried: Carried, wanted: Sequence[bool]) -> list[Value]:
    """The outputs of a body that stay: the condition, and the needed states and results."""
    return [*carried.body.outputs[: carried.first_out], *compress(carried.after, wanted)]


def _dealt(made: list[Operand], kept: Sequence[bool]) -> list[Operand]:
    """The kept outputs at their original indices, None at the others."""
    rest = iter(made)
    return [next(rest) if is_kept else None for is_kept in kept]


def _unneeded(graph: Graph, roots: list[Value]) -> list[Node]:
    needed = _needed(graph, roots)[0]
    return [node for node in graph if node not in needed]


def _needed(graph: Graph, roots: list[Value]) -> tuple[set[Node], set[Value]]:
    """The nodes of a graph that values or nodes with side effects depend on, and all values that these nodes read."""
    nodes: set[Node] = set()
    values: set[Value] = set(roots)
    stack = [v.producer for v in roots if v.producer is not None and v.graph is graph]
    stack += [node for node in graph if not is_removable(node)]
    while stack:
        node = stack.pop()
        if node in nodes:
            continue
        nodes.add(node)
        for value in (*node.operands, *captured_values(node)):
            values.add(value)
            if value.producer is not None and value.graph is graph:
                stack.append(value.producer)
    return nodes, values
