"""Exact numbers of a model: no evaluation rounds them, so they get no tolerance.

Whole numbers from which a mask, an index or a position is computed must not be perturbed: with a change in the last
bit a 2 may be floored to 1, and any error that follows would be tolerated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import onnx

from graphopt.verify.source import constant_tensors, read_by
from graphopt.verify.values import limits

_Wide = np.ndarray[Any, np.dtype[np.float64]]
_FLOATS = frozenset(
    {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
)
MOVING = frozenset({"Cast", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that only move elements of their first operand."""
_CHOOSING = frozenset({"Concat", "Gather", "Max", "Min", "Pad", "ReduceMax", "ReduceMin", "Slice", "Split", "Tile",
                       "Where"})  # fmt: skip
_KEEPING = frozenset({"Abs", "Add", "Clip", "CumSum", "Mul", "Neg", "Range", "ReduceSum", "Relu", "Sub"})
"""Operators with whole results from whole operands."""
_ROUNDING = frozenset({"Ceil", "Floor", "OneHot", "Round", "Sign"})
"""Operators with whole results from any operands."""
_JUMPING = frozenset(
    {"ArgMax", "ArgMin", "Bernoulli", "Ceil", "DynamicQuantizeLinear", "Equal", "Floor", "Greater", "GreaterOrEqual",
     "GridSample", "Hardmax", "Less", "LessOrEqual", "MaxPool", "MaxRoiPool", "Mod", "Multinomial",
     "NonMaxSuppression", "NonZero", "OneHot", "QuantizeLinear", "Range", "Resize", "RoiAlign", "Round", "Shrink",
     "Sign", "ThresholdedRelu", "TopK", "Unique", "Upsample"}
)  # fmt: skip
"""Discontinuous operators: a change in the last bit of an operand may change a result completely."""
_MASKING = frozenset({"Add", "Mul", "Sub"})
"""Operators that apply a mask, whose masked elements may be the lowest number of the type."""
_NEAR_TOP = 0.9
_ROOM = 8.0
"""Least number of values of the type between two whole numbers."""
_LONG = 1 << 12
"""Constants with at least this many elements are weights."""


def is_simple(wide: _Wide, dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where numbers are multiples of 1/2, and small enough that the type has many values between whole numbers."""
    return np.asarray((np.abs(wide) <= 1.0 / (_ROOM * limits(dtype).eps)) & (wide * 2.0 == np.rint(wide * 2.0)))


def unrounded(graph: onnx.GraphProto, exact: Iterable[str], floats: Iterable[str]) -> tuple[set[str], set[str]]:
    """The values of a graph that are exact, and those that may contain nearly the largest number of their type.

    Args:
        graph: the graph.
        exact: values that count as exact.
        floats: the floats that its nodes compute; other operands are not rounded.
    """
    found, largest = set(exact), set()
    overridable = {value.name for value in graph.input}
    floating = {*floats, *(v.name for v in graph.input if v.type.tensor_type.elem_type in _FLOATS)}
    floating.update(t.name for t in graph.initializer if t.data_type in _FLOATS)
    for name, wide, dtype in _constants(graph):
        floating.add(name)
        if name not in overridable and is_simple(wide, dtype).all():
            found.add(name)
        if np.any(np.isfinite(wide) & (np.abs(wide) >= _NEAR_TOP * limits(dtype).top)):
            largest.add(name)
    for node in graph.node:
        if _stays_exact(node, {name for name in node.input if name in floating and name not in found}):
            found.update(node.output)
        if node.op_type in MOVING | _CHOOSING | _MASKING and not largest.isdisjoint(node.input):
            largest.update(node.output)
    return found, largest


def read_exactly(graph: onnx.GraphProto, floats: Iterable[str]) -> set[str]:
    """The inputs from which exact operands of discontinuous operators are computed, or that a subgraph reads exactly.

    Whole numbers of other inputs are not special: results computed from them are rounded, and tolerated.

    Args:
        graph: the main graph of a model.
        floats: the floats that its nodes compute.
    """
    given = {value.name for value in graph.input}
    exact, _ = unrounded(graph, given, floats)
    producers = {name: node for node in graph.node for name in node.output}
    waiting = [name for node in graph.node if _may_jump(node) for name in read_by(node)]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found and name in exact:
            found.add(name)
            waiting += producers[name].input if name in producers else ()
    return found & given


def _may_jump(node: onnx.NodeProto) -> bool:
    """Whether a node may be discontinuous; function calls, other domains and nodes with subgraphs count as such."""
    if node.domain not in ("", "ai.onnx") or any(each.HasField("g") for each in node.attribute):
        return True
    to = next((each.i for each in node.attribute if each.name == "to"), onnx.TensorProto.FLOAT)
    return node.op_type in _JUMPING or (node.op_type in ("Cast", "CastLike") and to not in _FLOATS)


def _stays_exact(node: onnx.NodeProto, rounded: set[str]) -> bool:
    """Whether the results of a node are exact, given its operands that are not."""
    if node.domain not in ("", "ai.onnx") or node.op_type == "Constant":
        return False
    if node.op_type in _ROUNDING:
        return True
    return node.op_type in MOVING | _CHOOSING | _KEEPING and not rounded


def _constants(graph: onnx.GraphProto) -> Iterator[tuple[str, _Wide, np.dtype[Any]]]:
    """The float constants that are not weights, by name, as doubles, with their types."""
    for node in graph.node:
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.type in {onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS}:
                yield node.output[0], np.array(attribute.floats or [attribute.f], np.float64), np.dtype(np.float32)
    for name, tensor in constant_tensors(graph, graph.node).items():
        if tensor.data_type in _FLOATS and math.prod(tensor.dims) < _LONG:
            array = onnx.numpy_helper.to_array(tensor)
            yield name, array.astype(np.float64), array.dtype
