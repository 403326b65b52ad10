"""Running a few nodes on constants in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from graphopt.errors import ModelError
from graphopt.ir import FLOAT8_TYPES, Node, Tensor, Value
from graphopt.ir.flush import emit
from graphopt.ir.numpy_types import numpy_type

_FED_FROM = 1 << 16
"""Operands from this many bytes on are fed as inputs instead of being copied into the session's model."""

_FEEDABLE = frozenset("fiub")

_WIDE: dict[int | None, int] = {
    onnx.TensorProto.INT4: onnx.TensorProto.INT8, onnx.TensorProto.UINT4: onnx.TensorProto.UINT8,
    **dict.fromkeys(FLOAT8_TYPES - {onnx.TensorProto.FLOAT8E4M3FN}, onnx.TensorProto.FLOAT),
    onnx.TensorProto.BFLOAT16: onnx.TensorProto.FLOAT,
}  # fmt: skip
"""Element types that the runtime may not return, with wider types to which they are cast without loss."""


def run(nodes: Sequence[Node], wanted: Sequence[Value], known: Mapping[Value, Tensor]) -> dict[Value, Tensor]:
    """Compute nodes of one graph in one session, unoptimized, on one thread.

    Args:
        nodes: the nodes, in order.
        wanted: the outputs to return.
        known: all values that they read and do not compute.

    Raises:
        Exception: any exception of the runtime.
    """
    from graphopt.system.sessions import open_session  # few models have constants that only the runtime can compute

    model, feeds = _model(nodes, wanted, known)
    arrays = open_session(model).run([value.name for value in model.graph.output], feeds)
    return {v: _tensor(v, np.asarray(a)) for v, a in zip(wanted, arrays, strict=True)}


def _tensor(value: Value, array: np.ndarray) -> Tensor:
    """The result as a tensor of its type in the standard."""
    if value.dtype is None or array.dtype.kind == "O":
        return Tensor.from_array(array, value.dtype)
    expected = numpy_type(value.dtype)
    if array.dtype == np.uint8 and expected.itemsize == 1 and value.dtype in FLOAT8_TYPES:
        array = array.view(expected)
    if value.dtype in _WIDE:
        array = array.astype(expected)
    if array.dtype != expected:
        # Before opset 10 a Dropout's mask is boolean in the runtime but not in the standard: return neither.
        raise ModelError(f"{value.name} is {array.dtype} to the runtime and {expected} to the standard")
    return Tensor.from_array(array, value.dtype)


def _model(
    nodes: Sequence[Node], wanted: Sequence[Value], known: Mapping[Value, Tensor]
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    source = nodes[0].graph
    model = onnx.ModelProto(ir_version=max(4, min(source.model.ir_version, 10)))
    for domain, version in source.opsets.items():
        model.opset_import.add(domain=domain, version=version)
    graph = model.graph
    graph.name = "region"
    graph.node.extend(emit(node) for node in nodes)
    made = {v for node in nodes for v in node.outputs}
    feeds: dict[str, Any] = {}
    for value in dict.fromkeys(v for node in nodes for v in node.inputs if v is not None and v not in made):
        tensor = known.get(value)
        if tensor is None:
            raise ModelError(f"{value.name} is not known")
        array = tensor.array() if tensor.nbytes >= _FED_FROM else None
        if array is not None and array.dtype.kind in _FEEDABLE and array.dtype.isbuiltin == 1:
            feeds[value.name] = np.ascontiguousarray(array)
            graph.input.append(onnx.helper.make_tensor_value_info(value.name, tensor.dtype, tensor.dims))
        else:
            tensor.fill(graph.initializer.add(), value.name)
    for value in wanted:
        graph.output.add(name=_given(value, graph))
    return model, feeds


def _given(value: Value, graph: onnx.GraphProto) -> str:
    """The name under which the runtime returns a result."""
    wide = _WIDE.get(value.dtype)
    if wide is None:
        return value.name
    cast = onnx.helper.make_node("Cast", [value.name], [f"{value.name}_wide"], to=wide)
    graph.node.append(cast)
    return cast.output[0]
