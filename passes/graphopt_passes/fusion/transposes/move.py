"""Transposes where they cost the least."""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from graphopt.errors import Decline
from graphopt.ir import Graph, Node, Value
from graphopt.rewrite import GraphPass, Mismatch, Numerics, Outcome, Rewriter
from graphopt_passes.fusion.consecutive import FuseConsecutiveTransposes
from graphopt_passes.fusion.transposes.forms import moving_inputs, permuted
from graphopt_passes.fusion.transposes.permuted import Perm
from graphopt_passes.fusion.transposes.plan import choose
from graphopt_passes.fusion.transposes.region import MOST_NODES, Region, grow, inverse, is_identity, perm_of

_ATTEMPTS = 4
"""How many regions are looked at for each `Transpose` that there was."""

_WORK, _NEAR = 4, 32
"""When this many times the nodes of the graph were looked at, a region is only what is near: so many operators."""


class MoveTransposes(GraphPass):
    """Do `Transpose` nodes before or after the operators around them, where the least is left to transpose.

    All that can work on permuted inputs is looked at together, around each `Transpose`, towards the inputs and the
    outputs: elementwise and broadcasting operators, `Concat`, `Split`, `Slice`, `Pad`, `Gather`, `Tile`, `Expand`,
    `Squeeze`, `Unsqueeze`, `Resize`, `CumSum`, `TopK`, reductions, positions of extremes, softmax, quantization, and
    matrix products and normalizations whose axes stay in place. A minimum cut finds for which of them to change the
    order of axes, so that the fewest bytes are transposed. None will work along an axis whose elements lie apart where
    they lay together.
    """

    name = "move_transposes"
    opsets = "7-"
    late = True  # it looks far around, and others leave it less to look at
    numerics = Numerics.ROUNDING  # reductions add up in another order
    peers: ClassVar[dict[str, str]] = {
        "onnxruntime": "TransposeOptimizer",
        "onnxslim": "EliminationTransposeViewTranspose",
    }

    def run(self, graph: Graph, rw: Rewriter) -> None:
        """Look at the region around each `Transpose` that is in none yet, then around what became a `Reshape`."""
        seeds = deque(node for op in ("Transpose", "Reshape") for node in graph if node.op == op)
        nodes, attempts, seen = sum(1 for _ in graph), _ATTEMPTS * len(seeds), 0
        done: set[Node] = set()
        while seeds and attempts and not rw.log.full:
            seed = seeds.popleft()
            if seed.removed or seed in done:
                continue
            attempts -= 1
            region = grow(seed, MOST_NODES if seen < _WORK * nodes else _NEAR)
            if region is None:
                continue
            done |= region.links
            seen += len(region.home)
            changed, saved = choose(region)
            if changed and saved > 0:
                seeds.extendleft(_change(region, changed, rw, self.name))
            elif rw.log.listen:
                _explain(region, seed, rw)


def _explain(region: Region, seed: Node, rw: Rewriter) -> None:
    """Note what stays as it is, and why."""
    for node, reason in region.declined.items():
        rw.decline("{}", reason, node=node)
    if region.home:
        rw.decline("moving it would not leave less to transpose", node=seed)


def _change(region: Region, changed: set[Node], rw: Rewriter, rule: str) -> list[Node]:
    """Change the order of axes of some operators. Returns the `Transpose` nodes that come of it."""
    made: list[Value] = []
    for node in sorted(changed, key=lambda n: n.order):
        rw.begin(rule, node)
        with rw.attempt(node):
            outcome = _turn(node, region, made, rw)
            if isinstance(outcome, Mismatch):
                rw.decline("{}", outcome, node=node)
    nodes = [node for node in region.links if node.op == "Transpose"]
    nodes += [user for value in made for user in value.users if user.op == "Transpose"]
    nodes += [user for node in nodes for value in node.outputs if value is not None for user in value.users]
    return _joined([node for node in dict.fromkeys(nodes) if node.graph is region.graph], rw, rule)


def _joined(nodes: list[Node], rw: Rewriter, rule: str) -> list[Node]:
    """Join those that read one another. Returns the `Transpose` nodes that this gives."""
    left: list[Node] = []
    for node in sorted((n for n in nodes if n.op == "Transpose" and not n.removed), key=lambda n: n.order):
        if node.removed:
            continue
        value, readers = node.outputs[0], list(node.outputs[0].users) if node.outputs[0] is not None else []
        rw.begin(rule, node)
        try:
            FuseConsecutiveTransposes().rewrite(node, rw)
        except Decline:
            continue
        assert value is not None
        read = {v for reader in readers for v in reader.inputs if v is not None}
        left += [v.producer for v in read if v.producer is not None and v.producer.op == "Transpose"]
    return list(dict.fromkeys(left))


def _turn(node: Node, region: Region, results: list[Value], rw: Rewriter) -> Outcome:
    """Let an operator work on the other form of its inputs, and permute what it gives."""
    moved = region.moves[node]
    sources = {v: _other_form(v, moved, node, region, rw) for v in moving_inputs(node, len(moved))}
    found = permuted(node, sources, inverse(moved))
    if isinstance(found, Mismatch):
        return found
    made = rw.op(node.op_type, *found.inputs, outputs=len(node.outputs), **found.attrs)
    parts = made if isinstance(made, tuple) else (made,)
    results += parts
    if is_identity(found.perm):
        return rw.replace(node, parts)
    taken = [v is not None and bool(v.users or v.output_count) for v in node.outputs]
    return rw.replace(
        node,
        [rw.op("Transpose", part, perm=found.perm) if used else None for part, used in zip(parts, taken, strict=True)],
    )


def _other_form(value: Value, moved: Perm, node: Node, region: Region, rw: Rewriter) -> Value:
    """A value permuted, in the form that is there already if there is one."""
    producer = value.producer
    if producer is not None and producer.graph is node.graph and producer.inputs:
        source = producer.inputs[0]
        undoes = producer.op == "Transpose" and perm_of(producer) == inverse(moved)
        if source is not None and (undoes or (producer.op == "Reshape" and producer in region.links)):
            return source
    for user in value.users:
        there = user.op == "Transpose" and user.graph is node.graph and user.order < node.order
        if there and perm_of(user) == moved and user.outputs[0] is not None:
            return user.outputs[0]
    made: Value = rw.op("Transpose", value, perm=moved)
    return made
