"""Selects the constant regions of a graph to compute, from shapes only, before anything is computed."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import field

from graphopt.analysis.budget import SMALL, Allowance, constant_bytes, has_no_elements, output_bytes, work
from graphopt.analysis.disagreements import BROKEN
from graphopt.analysis.nodes import infer_node
from graphopt.analysis.purity import why_not_fold
from graphopt.analysis.shapes import ShapeAnalysis
from graphopt.errors import Decline
from graphopt.ir import Graph, Node, Value, edit
from graphopt.records import dataclass

_NODE_BYTES = 64
"""Least bytes of a node in a file."""

_MAX_CONE = 512
"""Most nodes that are visited to find the constants that a result makes unused."""

_BODY_WORK = 1 << 24

_POSITIVE = ("blocksize", "dilations", "group", "kernel_shape", "num_groups", "num_heads", "num_outputs", "strides")
"""Attributes that a runtime divides by without a check."""

_POSITIVE_OPERANDS = {"Col2Im": (1, 2), "DFT": (1,), "MelWeightMatrix": (0, 1, 2), "STFT": (1, 3)}
"""Operators with operands that it divides by, with the indices of these."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Limits of computed and stored results.

    Attributes:
        max_bytes: the largest result, including intermediate ones.
        max_growth: largest ratio of a result to the constants that become unused, for results above 64 KiB and above
            the share of the weights.
        fold_qdq: whether quantize and dequantize operators are computed too.
        max_work: the largest number of elementary steps of a node.
    """

    max_bytes: int = 1 << 28
    max_growth: float = 1.5
    fold_qdq: bool = False
    max_work: int = 1 << 34


@dataclass(slots=True)
class ConstantRegion:
    """The nodes to compute, and the results to store.

    Attributes:
        nodes: all nodes to compute, in order.
        roots: nodes whose results are read outside the region.
        declined: nodes with constant inputs that are not computed, with the reason.
        no_runtime: nodes that only NumPy may compute: they might crash the process in a runtime.
    """

    nodes: list[Node] = field(default_factory=list)
    roots: list[Node] = field(default_factory=list)
    declined: dict[Node, Decline] = field(default_factory=dict)
    no_runtime: set[Node] = field(default_factory=set)


def plan(graph: Graph, policy: Policy, allowance: Allowance | None = None) -> ConstantRegion:
    """Select the nodes of a graph to compute; planning computes small integer tensors (shapes, axes) only.

    The size of every selected result is known, or bounded by that of an input. Bodies of control flow may never run, so
    only small results are computed there, and none in branches that are known not to run.

    Args:
        graph: the graph. More precise types allow better plans.
        policy: the limits.
        allowance: how much the model may still grow; planned growth is subtracted. By default the graph gets its own.
    """
    region = ConstantRegion()
    if _never_runs(graph):
        return region
    chosen: dict[Node, int] = {}
    analysis = ShapeAnalysis()
    for node in graph.listed():
        if node.op == "Constant" or not _has_constant_inputs(node, chosen):
            continue
        reason = why_not_fold(node, qdq=policy.fold_qdq)
        if reason is None:
            try:
                size, reason = _measure(graph, node, analysis, policy)
                dangerous = reason is None and (_is_dangerous(node) or has_no_elements(analysis, node))
            except BROKEN as error:
                reason = Decline("it is malformed ({})", str(error))
        if reason is not None:
            region.declined[node] = reason
            continue
        chosen[node] = size
        if dangerous:
            region.no_runtime.add(node)
    _keep_what_pays(chosen, policy, region, allowance or Allowance.of(constant_bytes((graph,))))
    region.nodes = _needed(chosen, region.roots)
    return region


def _ensure_types(node: Node) -> None:
    """Infer missing types, which sizes depend on: more may be known than in the last inference."""
    if any(value is not None and value.type is None for value in node.outputs):
        for value, value_type in zip(node.outputs, infer_node(node), strict=True):
            if value is not None and value.type is None:
                edit.set_type(value, value_type)


def _never_runs(graph: Graph) -> bool:
    """Whether the graph is, or is inside, a branch that a constant condition rules out."""
    while graph.owner is not None:
        owner = graph.owner
        condition = owner.input(0) if owner.op == "If" else None
        value = condition.const(max_bytes=64) if condition is not None else None
        if value is not None and value.size == 1:
            taken = owner.subgraphs.get("then_branch" if value.reshape(-1)[0] else "else_branch")
            if taken is not graph:
                return True
        graph = owner.graph
    return False


def _has_constant_inputs(node: Node, chosen: dict[Node, int]) -> bool:
    for value in node.inputs:
        if value is not None and value.producer not in chosen and value.constant_tensor is None:
            return False
    return bool(node.inputs)


def _measure(graph: Graph, node: Node, analysis: ShapeAnalysis, policy: Policy) -> tuple[int, Decline | None]:
    """Bytes of the results, and the reason if the node is too expensive to compute."""
    _ensure_types(node)
    analysis.update(node)
    size = output_bytes(analysis, node)
    if size is None:
        return 0, Decline("the size of its result is not known")
    inner = graph.owner is not None
    limit = SMALL if inner else policy.max_bytes
    if size > limit:
        return size, Decline("its result has {} bytes, more than {}", size, limit)
    steps = work(analysis, node)
    if steps > (_BODY_WORK if inner else policy.max_work):
        return size, Decline("it takes about {} steps to compute", steps)
    return size, None


def _is_dangerous(node: Node) -> bool:
    """Whether a runtime might crash the process instead of reporting an error."""
    if node.op in ("Div", "Mod"):
        dtype = node.inputs[0].dtype if node.inputs and node.inputs[0] is not None else None
        return dtype not in (1, 10, 11, 16)
    if node.op == "GatherND" and node.attr("batch_dims", 0) < 0:
        return True  # the runtime reads before the first dimension
    for index in _POSITIVE_OPERANDS.get(node.op, ()):
        operand = node.input(index)
        known = operand.const(max_bytes=256) if operand is not None else None
        if operand is not None and (known is None or known.min(initial=1) < 1):
            return True
    for name in _POSITIVE:
        value = node.attrs.get(name)
        if value is not None and (min(value, default=1) if isinstance(value, tuple) else value) < 1:
            return True
    return False


def _keep_what_pays(chosen: dict[Node, int], policy: Policy, region: ConstantRegion, allowance: Allowance) -> None:
    """Select results from the last to the first; those that would make the model grow too much are left out."""
    for node in reversed(list(chosen)):
        if not _read_outside(node, chosen):
            allowance.left += _NODE_BYTES
            continue
        size = chosen[node]
        freed = _freed(node, chosen)
        growth = max(size - freed - _NODE_BYTES, 0)
        if growth and node.op == "Identity":
            region.declined[node] = Decline("it only forwards a constant that has other readers")
            del chosen[node]
        elif size > allowance.small and size > policy.max_growth * freed:
            region.declined[node] = Decline("its result has {} bytes and frees only {}", size, freed)
            allowance.refused = min(size, allowance.refused or size)
            del chosen[node]
        elif growth > max(allowance.left, 0):
            region.declined[node] = Decline("the model would grow by more than {} bytes", allowance.limit)
            allowance.short = True
            del chosen[node]
        else:
            allowance.left -= growth
            region.roots.append(node)
    region.roots.reverse()


def _read_outside(node: Node, inside: Container[Node]) -> bool:
    return any(v is not None and (v.output_count or any(u not in inside for u in v.users)) for v in node.outputs)


def _freed(root: Node, chosen: dict[Node, int]) -> int:
    """Bytes of the constants that only the computation of `root` reads, so that no other result also frees them."""
    depth = _MAX_CONE if chosen[root] > SMALL else 8
    seen = {root}
    constants: dict[Value, None] = {}
    stack = [root]
    while stack:
        for value in stack.pop().inputs:
            if value is None:
                continue
            producer = value.producer
            if producer is None or producer not in chosen:
                constants[value] = None
            elif producer not in seen and len(seen) < depth and not _read_outside(producer, seen):
                seen.add(producer)
                stack.append(producer)
    return sum(
        value.constant_tensor.nbytes
        for value in constants
        if value.constant_tensor is not None and not value.output_count and all(u in seen for u in value.users)
    )


def _needed(chosen: dict[Node, int], roots: list[Node]) -> list[Node]:
    needed: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            producers = (v.producer for v in node.inputs if v is not None)
            stack.extend(p for p in producers if p is not None and p in chosen)
    return [node for node in chosen if node in needed]
