"""Expansion of operators that are newer than the target, by the functions that define them in the standard."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import onnx
from onnx import defs

from graphopt.errors import Decline, ModelError
from graphopt.ir import Graph, Model, Node, Value, captured_values
from graphopt.ir.attributes import decode_attribute
from graphopt.ir.flush import emit
from graphopt.ir.schema import op_schema
from graphopt.ir.seal import unsealed
from graphopt.ir.types import encode_type
from graphopt.opsets.meanings import stays
from graphopt.rewrite import Rewriter
from graphopt.rewrite.inline import adopt, replace_by

_IR = 10
_ONNX = tuple(map(int, onnx.__version__.split(".")[:2]))
_RIGHT_ATTENTION, _RIGHT_PADDING = _ONNX >= (1, 21), _ONNX >= (1, 23)
"""In onnx 1.19 results with a mask and `is_causal` differ from the standard's own test cases, in 1.21 they do not.

For `is_causal` with a number of keys per sample, the first version that is known to be right is 1.23.
"""

_ROUGH = frozenset({"ReduceL2", "ReduceLogSumExp"})
"""Operators whose functions take a root in float32, or add up exponentials without subtracting the largest number."""


def write_out(node: Node, rw: Rewriter) -> None:
    """Replace a node with the body of its operator, in operators of the opset of its graph.

    Args:
        node: the node.
        rw: the gate, begun at the node.

    Raises:
        Decline: its operator has no body at this opset, or the body cannot replace it.
    """
    if node.op_type == "Attention" and not node.attr("softcap", 0.0) >= 0:
        raise Decline("softcap {} is applied by the standard and ignored by the runtime", node.attr("softcap"))
    if node.op_type in _ROUGH:
        raise Decline("the function of {} loses digits, or overflows, where kernels do not", node.op_type)
    proto = _standard(node)
    if proto is None:
        raise Decline
    write_body(node, proto, rw)


def write_body(node: Node, proto: onnx.FunctionProto, rw: Rewriter) -> None:
    """Replace a node with a function of its inputs, in operators of the opset of its graph.

    A body may contain a subgraph of the node; the values that the subgraph captures become inputs of the body.

    Raises:
        Decline: the node cannot be replaced.
    """
    outer = {value.name: value for value in captured_values(node)}
    function = _loaded(proto, outer)
    given = {value: outer.get(value.name) or node.input(i) for i, value in enumerate(function.inputs)}
    made = adopt(rw, function, given, _attributes(node, proto))
    results = {value.name: result for value, result in zip(function.outputs, made, strict=True)}
    replace_by(rw, node, [results.get(name) for name in proto.output])


def called(rw: Rewriter, proto: onnx.FunctionProto, *operands: Value) -> list[Value]:
    """The outputs of a function applied to values of the current graph, to which its body is added as pending nodes.

    Args:
        rw: the gate, begun at a node.
        proto: the function, in operators of the opset of the graph.
        *operands: the values of its inputs.
    """
    function = _loaded(proto)
    given: dict[Value, Value | None] = dict(zip(function.inputs, operands, strict=True))
    return [value for value in adopt(rw, function, given) if value is not None]


def _loaded(proto: onnx.FunctionProto, outer: Collection[str] = ()) -> Graph:
    """The view of a function, with the outer names that it captures as further inputs."""
    for name in {*_defined(proto.node), *proto.input}.intersection(outer):
        raise Decline("{} is also the name of a value in the function that defines the operator", name)
    model = onnx.ModelProto(ir_version=_IR, opset_import=proto.opset_import)
    model.graph.name = "body"
    body = model.functions.add()
    body.CopyFrom(proto)
    body.domain, body.name = "body", "body"  # with its own name, an operator of that name inside would be a call
    body.input.extend(outer)
    # A body of the standard may list an optional output that it does not compute, as the node does not have it.
    computed = {name for node in proto.node for name in node.output} | set(proto.input)
    del body.output[:]
    body.output.extend(name for name in proto.output if name in computed)
    try:
        with unsealed():  # it does not belong to the model that a pass works on
            return Model.load(model).functions[0]
    except ModelError as error:  # not about the caller's model
        raise RuntimeError(f"the body of {proto.name}: {error}") from error


def _defined(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """The names of all values that nodes and their subgraphs define."""
    for node in nodes:
        yield from node.output
        for graph in (attribute.g for attribute in node.attribute if attribute.HasField("g")):
            yield from (value.name for value in graph.input)
            yield from _defined(graph.node)


def _attributes(node: Node, proto: onnx.FunctionProto) -> dict[str, Any]:
    schema = node.schema
    stated = {a.name: decode_attribute(a) for a in proto.attribute_proto}
    return {**stated, **({} if schema is None else schema.defaults), **node.attrs}


def _standard(node: Node) -> onnx.FunctionProto | None:
    """The function that defines a node in the standard, at the opset of its graph."""
    opset = node.graph.opset(node.domain)
    if node.op != node.op_type or op_schema(node.op_type, node.domain, opset) is None:
        return None
    if not _RIGHT_ATTENTION and node.op == "Attention" and node.input(3) is not None and node.attr("is_causal", 0):
        raise Decline(
            "the function of Attention with both attn_mask and is_causal is wrong in onnx {}", onnx.__version__
        )
    if not _RIGHT_PADDING and node.op == "Attention" and node.input(6) is not None and node.attr("is_causal", 0):
        raise Decline(
            "the function of Attention with both nonpad_kv_seqlen and is_causal is wrong in onnx {}", onnx.__version__
        )
    schema: Any = defs.get_schema(node.op_type, opset, node.domain)
    plain, dependent = schema.function_opset_versions, schema.context_dependent_function_opset_versions
    version = max((each for each in (*plain, *dependent) if each <= opset), default=0)
    if not version:
        return None
    if version in plain:
        return _fitting(schema.get_function_with_opset_version(version), opset)
    types = []
    for value in node.inputs:
        if value is not None and value.type is None:
            raise Decline("the type of {} is not known", value.name)
        known = None if value is None else value.type
        types.append(b"" if known is None else encode_type(known).SerializeToString())
    written = emit(node).SerializeToString()
    return _fitting(schema.get_context_dependent_function_with_opset_version(version, written, types), opset)


def _fitting(body: bytes | onnx.FunctionProto, opset: int) -> onnx.FunctionProto | None:
    """A body, if its operators mean the same at the given opset."""
    found = onnx.FunctionProto.FromString(body if isinstance(body, bytes) else body.SerializeToString())
    version = next((each.version for each in found.opset_import if each.domain == ""), opset)
    changed = set()
    for node in found.node:
        there, here = (op_schema(node.op_type, "", each) for each in (version, opset))
        if there is None or here is None:
            return None
        if there.since_version != here.since_version:
            changed.add(node.op_type)
    if changed and not all(stays(node, opset) for node in _loaded(found) if node.op_type in changed):
        return None
    return found if found.node else None
