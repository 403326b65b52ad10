"""Which numbers of a model are exact: no evaluation of it rounds them, so none is granted another one.

Whole numbers that a mask, an index or a position is computed with are meant to be what they are. Moved in the last bit,
a 2 that is rounded down becomes 1, and whatever follows from that would be granted.
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
"""Operators that only move the numbers of their first operand."""
_CHOOSING = frozenset({"Concat", "Gather", "Max", "Min", "Pad", "ReduceMax", "ReduceMin", "Slice", "Split", "Tile",
                       "Where"})  # fmt: skip
_KEEPING = frozenset({"Abs", "Add", "Clip", "CumSum", "Mul", "Neg", "Range", "ReduceSum", "Relu", "Sub"})
"""Operators that make whole numbers of whole numbers."""
_ROUNDING = frozenset({"Ceil", "Floor", "OneHot", "Round", "Sign"})
"""Operators that make whole numbers of any."""
_JUMPING = frozenset(
    {"ArgMax", "ArgMin", "Bernoulli", "Ceil", "DynamicQuantizeLinear", "Equal", "Floor", "Greater", "GreaterOrEqual",
     "GridSample", "Hardmax", "Less", "LessOrEqual", "MaxPool", "MaxRoiPool", "Mod", "Multinomial",
     "NonMaxSuppression", "NonZero", "OneHot", "QuantizeLinear", "Range", "Resize", "RoiAlign", "Round", "Shrink",
     "Sign", "ThresholdedRelu", "TopK", "Unique", "Upsample"}
)  # fmt: skip
"""Operators of which a result may be another one altogether when an operand is moved in its last bit."""
_MASKING = frozenset({"Add", "Mul", "Sub"})
"""Operators that bring the lowest number to where a mask is."""
_NEAR_TOP = 0.9
_ROOM = 8.0
"""So many other numbers are between two whole ones, at least."""
_LONG = 1 << 12
"""Constants as long as this are weights."""


def is_simple(wide: _Wide, dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where numbers are whole, or a half more, and so small that the type has many others between them."""
    return np.asarray((np.abs(wide) <= 1.0 / (_ROOM * limits(dtype).eps)) & (wide * 2.0 == np.rint(wide * 2.0)))


def unrounded(graph: onnx.GraphProto, exact: Iterable[str], floats: Iterable[str]) -> tuple[set[str], set[str]]:
    """The values of a graph that nothing rounds, and those that may hold about the largest number of their type.

    Args:
        graph: the graph.
        exact: values that are to count as exact.
        floats: the floats that its nodes compute; what else they read is not rounded.
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
    """The inputs whose whole numbers something decides by that nothing has rounded on the way; and all of a body's.

    Whole numbers of the others are as good as any: what is computed with them is rounded, and granted that.

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
    """Whether a node may decide something by its operands; a call or a body may, whatever it does."""
    if node.domain not in ("", "ai.onnx") or any(each.HasField("g") for each in node.attribute):
        return True
    to = next((each.i for each in node.attribute if each.name == "to"), onnx.TensorProto.FLOAT)
    return node.op_type in _JUMPING or (node.op_type in ("Cast", "CastLike") and to not in _FLOATS)


def _stays_exact(node: onnx.NodeProto, rounded: set[str]) -> bool:
    """Whether what a node computes is exact, given which of its operands are not."""
    if node.domain not in ("", "ai.onnx") or node.op_type == "Constant":
        return False
    if node.op_type in _ROUNDING:
        return True
    return node.op_type in MOVING | _CHOOSING | _KEEPING and not rounded


def _constants(graph: onnx.GraphProto) -> Iterator[tuple[str, _Wide, np.dtype[Any]]]:
    """The float constants that are no weights, as doubles, and of which type they are."""
    for node in graph.node:
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.type in {onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS}:
                yield node.output[0], np.array(attribute.floats or [attribute.f], np.float64), np.dtype(np.float32)
    for name, tensor in constant_tensors(graph, graph.node).items():
        if tensor.data_type in _FLOATS and math.prod(tensor.dims) < _LONG:
            array = onnx.numpy_helper.to_array(tensor)
            yield name, array.astype(np.float64), array.dtype
