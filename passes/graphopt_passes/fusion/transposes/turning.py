"""The rewrite of the regions around `Transpose` nodes, where fewer bytes are transposed afterwards."""

from __future__ import annotations

from collections import deque

from graphopt.operators.transpose import Perm, Transpose, inverse, is_identity
from graphopt.rewrite import Decline, Graph, Node, Rewriter, Value
from graphopt_passes.fusion.transposes.plan import choose
from graphopt_passes.fusion.transposes.region import MOST_NODES, Region, grow, permutes
from graphopt_passes.fusion.transposes.table import moving_inputs, permuted

_ATTEMPTS = 4
"""The most regions that are examined, per initial seed."""

_WORK, _NEAR = 4, 32
"""After regions with `_WORK` times the nodes of the graph, further regions have about `_NEAR` operators at most."""


def turn(graph: Graph, seeds: deque[Node], rw: Rewriter, rule: str) -> None:
    """Examine the region around each seed, a `Transpose` or `Reshape` in no region yet, then around new `Transpose`."""
    nodes, attempts, seen = len(graph), _ATTEMPTS * len(seeds), 0
    done: set[Node] = set()
    while seeds and attempts:
        seed = seeds.popleft()
        if seed.removed or seed in done:
            continue
        attempts -= 1
        try:
            region = grow(seed, MOST_NODES if seen < _WORK * nodes else _NEAR)
        except Decline:
            continue
        done |= region.links
        seen += len(region.home)
        changed, saved = choose(region)
        if changed and saved > 0:
            seeds.extendleft(_change(region, changed, rw, rule))
            continue
        for node, reason in region.declined.items():
            if reason.args:
                rw.decline(*reason.args, node=node)
        if region.home:
            rw.decline("moving it would not reduce the transposed data", node=seed)


def _change(region: Region, changed: set[Node], rw: Rewriter, rule: str) -> list[Node]:
    """Change the axis order of some operators. Returns the resulting `Transpose` nodes."""
    made: list[Value] = []
    for node in sorted(changed, key=lambda n: n.order):
        with rw.attempt(node):
            _turn(node, region, made, rw)
    nodes = [node for node in region.links if node.op == "Transpose"]
    nodes += [user for value in made for user in value.users if user.op == "Transpose"]
    nodes += [user for node in nodes for value in node.results for user in value.users]
    return _joined([node for node in dict.fromkeys(nodes) if node.graph is region.graph], rw, rule)


def _joined(nodes: list[Node], rw: Rewriter, rule: str) -> list[Node]:
    """Fuse `Transpose` nodes that read one another. Returns the resulting `Transpose` nodes."""
    left: list[Node] = []
    for node in sorted((n for n in nodes if n.op == "Transpose" and not n.removed), key=lambda n: n.order):
        if node.removed or rw.log.full:
            continue
        readers = list(node.result.users)
        rw.begin(rule, node)
        try:
            first = node.operand(0).source("Transpose", reader=node)
            rw.pass_on(node, Transpose.of(first).then(Transpose.of(node)).write(rw))
        except Decline:
            continue
        read = {v for reader in readers for v in reader.operands}
        left += [v.producer for v in read if v.producer is not None and v.producer.op == "Transpose"]
    return list(dict.fromkeys(left))


def _turn(node: Node, region: Region, results: list[Value], rw: Rewriter) -> None:
    """Apply an operator to the other form of its operands, and permute its results."""
    moved = region.moves[node]
    sources = {v: _other_form(v, moved, node, region, rw) for v in moving_inputs(node, len(moved))}
    found = permuted(node, sources, inverse(moved))
    parts = found.write(node, rw)
    results += parts
    if is_identity(found.perm):
        rw.replace(node, parts)
        return
    pairs = zip(parts, node.outputs, strict=True)
    rw.replace(node, [rw.op("Transpose", part, perm=found.perm) if old and old.uses else None for part, old in pairs])


def _other_form(value: Value, moved: Perm, node: Node, region: Region, rw: Rewriter) -> Value:
    """The permuted form of a value; an existing one where there is one."""
    producer = value.producer
    if producer is not None and producer.graph is node.graph:
        if permutes(producer, inverse(moved)):
            return producer.operand(0)
        if producer.op == "Reshape" and producer in region.links:
            return producer.operand(0)
    for user in value.users:
        if permutes(user, moved) and user.graph is node.graph and user.order < node.order:
            return user.result
    return rw.op("Transpose", value, perm=moved)
