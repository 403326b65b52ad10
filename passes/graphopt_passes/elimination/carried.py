"""What branches, loops and scans compute or carry along although nobody needs it."""

from __future__ import annotations

from typing import Any

from graphopt.analysis.purity import is_removable
from graphopt.ir import Graph, Node, Value, captured_values
from graphopt.rewrite import OpRule, Outcome, Rewriter
from graphopt.rewrite.inline import Operand, Trim, replace_by, trimmed

_LOOPS = {"Loop": (2, 1), "Scan": (0, 0)}
"""How many inputs and outputs of the body come before the states."""


class EliminateUnusedSubgraphOutputs(OpRule):
    """Leave out outputs of `If`, `Loop` and `Scan` that nothing reads, and what the bodies compute for them.

    A state goes where neither its final value is read nor anything else in the body depends on it.
    """

    name = "eliminate_unused_subgraph_outputs"
    ops = ("If", "Loop", "Scan")
    opsets = "9-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Find the unused ones; a node with no used output at all is another pass's business."""
        used = [value is not None and value.uses > 0 for value in node.outputs]
        if not any(used):
            return None
        if node.op == "If":
            return _trim_branches(node, used, rw)
        return _trim_body(node, used, rw)


class EliminateLoopInvariantState(OpRule):
    """Let the body of `Loop` or `Scan` read the initial value of a state that no round changes.

    The final value is the initial one, and a constant is then seen as such inside of the body.
    """

    name = "eliminate_loop_invariant_state"
    ops = tuple(_LOOPS)
    opsets = "9-"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Compare what goes into a round with what comes out."""
        body = node.subgraphs.get("body")
        if body is None or not _fits(node, body):
            return None
        first_in, first_out = _LOOPS[node.op]
        states = _states(node)
        kept = [k for k in range(states) if not _is_passed_on(body, node, k)]
        if len(kept) == states:
            return None
        gone = [k for k in range(states) if k not in kept]
        given = {body.inputs[first_in + k]: node.inputs[first_in + k] for k in gone}
        trim = Trim([first_in + k for k in gone], [first_out + k for k in gone])
        operands = [v for i, v in enumerate(node.inputs) if i - first_in not in gone]
        count = len(node.outputs) - sum(k < len(node.outputs) for k in gone)
        made = trimmed(rw, node, {"body": trim}, inputs=operands, outputs=count, given=given)
        rest = iter(made)
        results = [node.inputs[first_in + k] if k in gone else next(rest) for k in range(len(node.outputs))]
        return replace_by(rw, node, results)


def _states(node: Node) -> int:
    """How many values a loop or scan carries from round to round."""
    if node.op == "Loop":
        return len(node.inputs) - 2
    return len(node.inputs) - int(node.attr("num_scan_inputs", 0))


def _fits(node: Node, body: Graph) -> bool:
    """Whether the body has the inputs and outputs that the node needs, and all operands are there."""
    first_in, first_out = _LOOPS[node.op]
    states = _states(node)
    if states < 0 or None in node.inputs[first_in:]:
        return False
    return len(body.inputs) == len(node.inputs) and len(body.outputs) >= max(first_out + states, len(node.outputs))


def _is_passed_on(body: Graph, node: Node, number: int) -> bool:
    """Whether each round puts out a state as it came, or the initial value itself."""
    first_in, first_out = _LOOPS[node.op]
    value = body.outputs[first_out + number]
    while value.producer is not None and value.producer.op == "Identity" and value.producer.graph is body:
        before = value.producer.inputs[0]
        if before is None:
            return False
        value = before
    return value is body.inputs[first_in + number] or value is node.inputs[first_in + number]


def _trim_branches(node: Node, used: list[bool], rw: Rewriter) -> Outcome:
    branches = list(node.subgraphs.values())
    if all(used) or len(branches) != 2 or any(len(branch.outputs) != len(used) for branch in branches):
        return None
    gone = [index for index, is_used in enumerate(used) if not is_used]
    trims = {
        key: Trim((), gone, _unneeded(branch, _chosen(branch.outputs, used))) for key, branch in node.subgraphs.items()
    }
    made = trimmed(rw, node, trims, inputs=node.inputs, outputs=sum(used))
    return replace_by(rw, node, _dealt(made, used))


def _trim_body(node: Node, used: list[bool], rw: Rewriter) -> Outcome:
    body = node.subgraphs.get("body")
    if body is None or not _fits(node, body):
        return None
    first_in, first_out = _LOOPS[node.op]
    states = _states(node)
    total = len(body.outputs) - first_out
    used = [*used, *(False for _ in range(total - len(used)))]
    wanted = _wanted_states(node, body, used)
    keep = [wanted[k] if k < states else used[k] for k in range(total)]
    if all(keep):
        return None
    roots = [
        *body.outputs[:first_out],
        *(v for v, is_kept in zip(body.outputs[first_out:], keep, strict=True) if is_kept),
    ]
    gone = [k for k in range(states) if not keep[k]]
    trim = Trim(
        [first_in + k for k in gone], [first_out + k for k in range(total) if not keep[k]], _unneeded(body, roots)
    )
    operands = [v for i, v in enumerate(node.inputs) if i - first_in not in gone]
    attrs: dict[str, Any] = {
        name: tuple(entry for entry, is_kept in zip(listed, keep[states:], strict=True) if is_kept) or None
        for name in ("scan_output_axes", "scan_output_directions")
        if (listed := node.attrs.get(name)) is not None
    }
    if any(len(node.attrs[name]) != total - states for name in attrs):
        return None
    made = trimmed(rw, node, {"body": trim}, inputs=operands, outputs=sum(keep), **attrs)
    return replace_by(rw, node, _dealt(made, keep)[: len(node.outputs)])


def _chosen(values: list[Value], wanted: list[bool]) -> list[Value]:
    return [value for value, is_wanted in zip(values, wanted, strict=True) if is_wanted]


def _dealt(made: list[Operand], kept: list[bool]) -> list[Operand]:
    rest = iter(made)
    return [next(rest) if is_kept else None for is_kept in kept]


def _wanted_states(node: Node, body: Graph, used: list[bool]) -> list[bool]:
    """Which states something depends on.

    That may be a final value that is read, the condition, a result, or a node that may do more than compute.
    """
    first_in, first_out = _LOOPS[node.op]
    states = _states(node)
    number = {value: k for k, value in enumerate(body.inputs[first_in : first_in + states])}
    wanted = used[:states]
    roots = [
        *body.outputs[:first_out],
        *(v for v, is_used in zip(body.outputs[first_out:], used, strict=True) if is_used),
    ]
    while True:
        read = _needed(body, roots)[1]
        more = [k for value, k in number.items() if value in read and not wanted[k]]
        if not more:
            return wanted
        for k in more:
            wanted[k] = True
            roots.append(body.outputs[first_out + k])


def _unneeded(graph: Graph, roots: list[Value]) -> list[Node]:
    needed = _needed(graph, roots)[0]
    return [node for node in graph if node not in needed]


def _needed(graph: Graph, roots: list[Value]) -> tuple[set[Node], set[Value]]:
    """The nodes of a graph that values depend on, nodes that must stay among them, and all that these read."""
    nodes: set[Node] = set()
    values: set[Value] = set(roots)
    stack = [v.producer for v in roots if v.producer is not None and v.graph is graph]
    stack += [node for node in graph if not is_removable(node)]
    while stack:
        node = stack.pop()
        if node in nodes:
            continue
        nodes.add(node)
        for value in (*node.inputs, *captured_values(node)):
            if value is not None:
                values.add(value)
                if value.producer is not None and value.graph is graph:
                    stack.append(value.producer)
    return nodes, values
