"""Contents of values that are computed from sizes or constants, on demand of a conversion step."""

from __future__ import annotations

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from graphopt.analysis.evaluate import ConstantRegion, evaluate
from graphopt.analysis.purity import why_not_fold
from graphopt.analysis.shapes import ShapeAnalysis
from graphopt.ir import Node, TensorType, Value

_MOST_NODES, _MOST_ELEMENTS = 64, 1 << 12


def contents(value: Value | None, analysis: ShapeAnalysis) -> np.ndarray | None:
    """The contents of a value computed from sizes or constants; None if it is a constant itself, or not known."""
    if value is None or value.is_const or value.producer is None or value.dtype is None:
        return None
    data = analysis.data(value)
    if data is not None and data.dtype.kind in "if":
        return np.asarray(data, tensor_dtype_to_np_dtype(value.dtype))
    nodes: dict[Node, None] = {}
    if not _follows_from_constants(value, nodes):
        return None
    region = ConstantRegion(list(nodes), [value.producer], no_runtime=set(nodes))
    found = evaluate(region).get(value)
    return None if found is None else found.array()


def _follows_from_constants(value: Value, nodes: dict[Node, None]) -> bool:
    """Whether a few nodes compute a value from small constants; they are added to `nodes` in topological order."""
    node = value.producer
    if value.is_const or node in nodes:
        return True
    if node is None or node.subgraphs or why_not_fold(node) or len(nodes) >= _MOST_NODES:
        return False
    if not isinstance(value.type, TensorType) or (value.type.numel or _MOST_ELEMENTS + 1) > _MOST_ELEMENTS:
        return False
    if not all(each is None or _follows_from_constants(each, nodes) for each in node.inputs):
        return False
    nodes[node] = None
    return True
