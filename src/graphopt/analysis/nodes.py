"""Output types of single nodes, for those that rewrites create."""

from __future__ import annotations

import onnx
from onnx import defs, shape_inference

from graphopt.ir import Node, Value, ValueType
from graphopt.ir.flush import emit
from graphopt.ir.types import decode_type, encode_type

_DATA_LIMIT = 1 << 12
"""Constants up to this many bytes are shown to inference: shapes, axes and scales are that small."""


def infer_node(node: Node) -> list[ValueType | None]:
    """The type of each output of a node, as far as the standard's inference tells from the types of its inputs.

    Args:
        node: a node whose inputs have their types set as far as they are known.

    Returns:
        One entry for each output; None where it is not known.
    """
    unknown: list[ValueType | None] = [None] * len(node.outputs)
    opset = node.graph.opset(node.domain)
    if not opset or node.subgraphs or not defs.has(node.op_type, opset, node.domain):
        return unknown
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    for value in node.inputs:
        if value is None:
            continue
        if value.type is None:
            return unknown
        types[value.name] = encode_type(value.type)
        _show_contents(value, data)
    try:
        schema = defs.get_schema(node.op_type, opset, node.domain)
        imports = [onnx.helper.make_opsetid(d, v) for d, v in node.graph.opsets.items()]
        found = shape_inference.infer_node_outputs(schema, emit(node), types, data, None, imports)
    except Exception:
        # Inference raises many kinds of errors on inputs that it finds wrong: then nothing is known.
        return unknown
    return [decode_type(found[v.name]) if v is not None and v.name in found else None for v in node.outputs]


def _show_contents(value: Value, data: dict[str, onnx.TensorProto]) -> None:
    tensor = value.constant_tensor
    if tensor is not None and tensor.nbytes <= _DATA_LIMIT:
        proto = onnx.TensorProto()
        tensor.fill(proto, value.name)
        data[value.name] = proto
