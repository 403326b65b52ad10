"""Transposes where they cost the least."""

from __future__ import annotations

from typing import ClassVar

from graphopt.ir import Graph, Node, Value
from graphopt.rewrite import GraphPass, Mismatch, Numerics, Outcome, Rewriter
from graphopt_passes.fusion.transpose import join_transposes
from graphopt_passes.fusion.transposes.forms import moving_inputs, permuted
from graphopt_passes.fusion.transposes.permuted import Perm
from graphopt_passes.fusion.transposes.plan import choose
from graphopt_passes.fusion.transposes.region import Region, grow, inverse, is_identity, perm_of


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
    numerics = Numerics.ROUNDING  # reductions add up in another order
    peers: ClassVar[dict[str, str]] = {
        "onnxruntime": "TransposeOptimizer",
        "onnxslim": "EliminationTransposeViewTranspose",
    }

    def run(self, graph: Graph, rw: Rewriter) -> None:
        """Look at the region around each `Transpose` that is in none yet, then around what became a `Reshape`."""
        seeds = [node for op in ("Transpose", "Reshape") for node in graph if node.op == op]
        done: set[Node] = set()
        changes = 0
        for seed in seeds:
            region = grow(seed) if not seed.removed and seed not in done and not rw.log.full else None
            if region is None:
                continue
            done |= region.links
            changed, saved = choose(region)
            if changed and saved > 0:
                changes += _change(region, changed, rw, self.name)
            elif rw.log.listen:
                _explain(region, seed, rw, self.name)
        if changes:
            for node in [node for node in graph if node.op == "Transpose"]:
                rw.begin(self.name, node)
                join_transposes(node, rw)


def _explain(region: Region, seed: Node, rw: Rewriter, rule: str) -> None:
    """Note what stays as it is, and why."""
    for node, reason in region.declined.items():
        rw.note(rule, node, reason)
    if region.home:
        rw.note(rule, seed, Mismatch("moving it would not leave less to transpose"))


def _change(region: Region, changed: set[Node], rw: Rewriter, rule: str) -> int:
    """Change the order of axes of some operators, one after the other. Returns how many of them."""
    count = 0
    for node in sorted(changed, key=lambda n: n.order):
        rw.begin(rule, node)
        outcome = _turn(node, region, rw)
        if isinstance(outcome, Mismatch):
            rw.decline("{}", outcome, node=node)
        else:
            count += 1
    return count


def _turn(node: Node, region: Region, rw: Rewriter) -> Outcome:
    """Let an operator work on the other form of its inputs, and permute what it gives."""
    moved = region.moves[node]
    sources = {v: _other_form(v, moved, node, region, rw) for v in moving_inputs(node, len(moved))}
    found = permuted(node, sources, inverse(moved))
    if isinstance(found, Mismatch):
        return found
    made = rw.op(node.op_type, *found.inputs, outputs=len(node.outputs), **found.attrs)
    parts = made if isinstance(made, tuple) else (made,)
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
