"""What a replacement must not do; the gate asks before it changes anything."""

from __future__ import annotations

from onnx import TensorProto

from graphopt.ir import Graph, Node, Tensor, TensorType, Value, captured_values
from graphopt.ir.flush import IR_WITH_FREE_INITIALIZERS
from graphopt.match import Mismatch

_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16})


def reads(node: Node) -> list[Value]:
    """The values that a node, or what is inside of it, reads."""
    read = [v for v in node.inputs if v is not None]
    return [*read, *captured_values(node)] if node.subgraphs else read


def well_known(value: Value) -> bool:
    """Whether every dimension is fixed or has a name that the model gave it."""
    shape = value.shape
    return shape is not None and not any(d is None or (isinstance(d, str) and d.startswith("unk__")) for d in shape)


def at_level(node: Node, graph: Graph) -> Node:
    """The node of `graph` that `node` is, or is inside of."""
    while node.graph is not graph:
        owner = node.graph.owner
        if owner is None:
            return node
        node = owner
    return node


def type_conflict(old: Value, new: Value) -> Mismatch | None:
    """Why two values cannot have the same readers as far as their types are known, None when they can."""
    before, after = old.type, new.type
    if before is after or not isinstance(before, TensorType) or not isinstance(after, TensorType):
        return None
    if before.dtype != after.dtype:
        return Mismatch("{} has element type {}, its replacement {}", old.name, before.dtype, after.dtype)
    if before.shape is None or after.shape is None:
        return None
    if len(before.shape) != len(after.shape):
        return Mismatch("{} has rank {}, its replacement {}", old.name, len(before.shape), len(after.shape))
    for a, b in zip(before.shape, after.shape, strict=True):
        if isinstance(a, int) and isinstance(b, int) and a != b:
            return Mismatch("{} has shape {}, its replacement {}", old.name, before.shape, after.shape)
    return None


def constant_conflict(graph: Graph, tensor: Tensor, *, as_node: bool = False) -> Mismatch | None:
    """Why a graph cannot hold a constant: where it has to be a `Constant` node, that must be able to state it.

    Args:
        graph: the graph.
        tensor: the constant.
        as_node: whether it is to be a node in any case, since the graph puts it out.
    """
    if graph.opset() >= 9 or tensor.dtype in _FLOATS:
        return None
    if graph.model.ir_version >= IR_WITH_FREE_INITIALIZERS and not graph.in_function and not as_node:
        return None
    return Mismatch("before opset 9 a Constant node holds floats only, not element type {}", tensor.dtype)


def is_annotated(value: Value) -> bool:
    """Whether the quantization annotations of its graph name an initializer, so that it must stay."""
    notes = getattr(value.graph.proto, "quantization_annotation", ())
    return any(entry.value == value.name for note in notes for entry in note.quant_parameter_tensor_names)
