"""What unrolling loops and scans has in common: what it may cost, and stacking the results of the rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from graphopt.analysis.purity import is_deterministic
from graphopt.ir import Graph, Node, Tensor, Value
from graphopt.rewrite import Mismatch, Outcome, Rewriter
from graphopt.rewrite.inline import inner_graphs

_AXES_AS_INPUT = 13
"""From this opset on `Unsqueeze` is told its axes by an input."""

_MOST_BYTES = 1 << 20
"""Attributes and inner graphs are copied with every round; together they may take so many bytes."""

_NODE_BYTES = 64
"""What a node takes in a file, at least."""

_STACKED = frozenset({
    TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BOOL, TensorProto.STRING,
    TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64,
    TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64,
})  # fmt: skip
"""Element types that `Gather`, `Unsqueeze` and `Concat` take in every version."""

Results = list[Value | None]


def unroll_all(rule: str, op: str, unroll: Callable[[Node, Rewriter], Outcome], graph: Graph, rw: Rewriter) -> None:
    """Unroll the nodes of one operator in a graph, and those that come out of them.

    Args:
        rule: the name of the pass.
        op: the operator.
        unroll: replaces one node, or says why not.
        graph: the graph.
        rw: the gate.
    """
    again = True
    while again:
        again = False
        for node in list(graph.owners):
            if node.op == op and not node.removed:
                rw.begin(rule, node)
                with rw.attempt(node):
                    outcome = unroll(node, rw)
                    if isinstance(outcome, Mismatch):
                        rw.decline("{}", outcome, node=node)
                    again |= bool(outcome)


def most_rounds(body: Graph, extra: int, limit: int) -> int | Mismatch:
    """How many rounds of a body may be written out: one at least, as that makes nothing larger.

    Args:
        body: the body.
        extra: nodes that each round needs besides, to take elements and to stack results.
        limit: the most nodes to make.
    """
    unknown = next((node for node in body if not is_deterministic(node)), None)
    if unknown is not None:
        return Mismatch("{} may draw random numbers, or do more than compute its outputs", unknown.op)
    if _loop_inside(body) is not None:
        return 1
    inner = inner_graphs(body)
    every = [node for graph in (body, *inner) for node in graph]
    count = sum(node.op != "Constant" or node.graph is not body for node in every) + extra
    size = sum(_attribute_bytes(node) for node in every if node.op != "Constant" or node.graph is not body)
    size += sum(value.tensor.nbytes for graph in inner for value in graph.initializers if value.tensor is not None)
    return max(1, min(limit // max(count, 1), _MOST_BYTES // max(size, 1)))


def too_many(rounds: int, most: int, body: Graph) -> Mismatch:
    """Why so many rounds are not written out.

    Args:
        rounds: the number of rounds.
        most: what `most_rounds` allows.
        body: the body.
    """
    inner = _loop_inside(body)
    if inner is not None:
        return Mismatch("the {} inside cannot be unrolled, and {} rounds would copy it", inner.op, rounds)
    return Mismatch("{} rounds are more than {}", rounds, most)


def _loop_inside(body: Graph) -> Node | None:
    every = (node for graph in (body, *inner_graphs(body)) for node in graph)
    return next((node for node in every if node.op in ("Loop", "Scan")), None)


def _attribute_bytes(node: Node) -> int:
    size = _NODE_BYTES
    for value in node.attrs.values():
        if isinstance(value, Tensor):
            size += value.nbytes
        elif isinstance(value, (tuple, str, bytes)):
            size += 8 * len(value)
    return size


def stack(rw: Rewriter, node: Node, values: Sequence[Value], axis: int) -> Value:
    """The values side by side along a new axis.

    Args:
        rw: the gate, begun at the node.
        node: the node whose results these are.
        values: one for each round, at least one, of one shape.
        axis: the new axis, counted from the front.
    """
    if node.graph.opset() >= _AXES_AS_INPUT:
        axes = rw.constant(np.array([axis], np.int64))
        pieces = [rw.op("Unsqueeze", value, axes) for value in values]
    else:
        pieces = [rw.op("Unsqueeze", value, axes=(axis,)) for value in values]
    stacked: Value = pieces[0] if len(pieces) == 1 else rw.op("Concat", *pieces, axis=axis)
    return stacked


def cannot_stack(value: Value, rounds: int) -> Mismatch | None:
    """Why the results of a body, collected over the rounds, cannot be written as operators; None when they can."""
    if value.dtype not in _STACKED:
        return Mismatch("{} of element type {} cannot be stacked", value.name, value.dtype)
    if not rounds and (value.shape is None or not all(isinstance(d, int) for d in value.shape)):
        # Without a round the runtime makes up the dimensions that the body does not state.
        return Mismatch("the shape of {} is not known, and no round tells", value.name)
    return None


def nothing(rw: Rewriter, value: Value, axis: int) -> Value:
    """What is collected of a result when there is no round; `cannot_stack` has been asked."""
    assert value.shape is not None
    assert value.dtype is not None
    dims = [d for d in value.shape if isinstance(d, int)]
    dims.insert(axis, 0)
    return rw.constant(Tensor.from_array(np.zeros(dims, tensor_dtype_to_np_dtype(value.dtype)), value.dtype))
