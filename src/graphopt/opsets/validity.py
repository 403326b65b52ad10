"""The standard's full check of a model, which the result of a conversion must pass if the original did."""

from __future__ import annotations

import textwrap

import onnx
from onnx import helper

from graphopt.analysis import infer_types
from graphopt.analysis.purity import body_is
from graphopt.analysis.skeleton import may_be_inferred
from graphopt.ir import Model, Node, Value
from graphopt.ir.flush import stored, without_initializers
from graphopt.ir.schema import READING_TYPES, op_schema
from graphopt.ir.types import TensorType, encode_type
from graphopt.rewrite.legality import reads

_READ_BYTES = 1024
"""Most bytes of an initializer that the check reads: lists of axes and of sizes are not larger."""

_SHOWN = 300
_PREFIX = "[ShapeInferenceError] Inference error(s): "


class FlawedError(Exception):
    """A model does not pass the check; the message states the error."""


def is_valid(model: Model) -> bool:
    """Whether a model passes the check."""
    try:
        check(model)
    except FlawedError:
        return False
    return True


def check(model: Model) -> None:
    """Check a model, unless that could crash the process or run without end.

    Args:
        model: the model. Its weights become inputs for the check, which would copy them needlessly, and accepts at most
            two gigabytes.

    Raises:
        FlawedError: it does not pass.
    """
    if any(node.op in READING_TYPES for node in model.nodes()):
        infer_types(model)  # inference may see these operators if the types of their operands are known
    if not may_be_inferred(model):
        return
    try:
        onnx.checker.check_model(_without_foreign(model, _without_weights(model)), full_check=True)
    except Exception as error:  # the checker raises several unrelated types
        text = " ".join(str(error).split()).removeprefix(_PREFIX)
        raise FlawedError(textwrap.shorten(text, _SHOWN)) from error


def _without_weights(model: Model) -> onnx.ModelProto:
    weights = {
        value.name: value.tensor
        for value in stored(model.graph)
        if value.tensor is not None and not value.is_sparse and value.tensor.nbytes > _READ_BYTES
    }
    proto = without_initializers(model, set(weights))
    known = {value.name for value in proto.graph.input}
    for name, tensor in weights.items():
        if name not in known:
            proto.graph.input.append(helper.make_tensor_value_info(name, tensor.dtype, tensor.dims))
    return proto


def _without_foreign(model: Model, proto: onnx.ModelProto) -> onnx.ModelProto:
    """Replace the results of operators that onnx does not know with inputs: next to such operators it checks nothing.

    Readers of a result of unknown rank are removed, too, since that could not be an input.
    """
    types: dict[str, onnx.TypeProto] = {}
    vague: set[Value] = set()
    for node in model.graph:
        if not _is_known(node) or not vague.isdisjoint(reads(node)):
            for value in node.outputs:
                if value is not None:
                    known = value.type
                    if known is None or (isinstance(known, TensorType) and known.shape is None):
                        vague.add(value)
                    else:
                        types[value.name] = encode_type(known)
    gone = {*types, *(value.name for value in vague)}
    if gone:
        kept = [node for node in proto.graph.node if gone.isdisjoint(node.output)]
        del proto.graph.node[:]
        proto.graph.node.extend(kept)
        proto.graph.input.extend(onnx.ValueInfoProto(name=name, type=known) for name, known in types.items())
        results = [info for info in proto.graph.output if info.name not in gone or info.name in types]
        del proto.graph.output[:]
        proto.graph.output.extend(results)
    return proto


def _is_known(node: Node) -> bool:
    """Whether onnx knows an operator and all operators in its subgraphs, or in the body of the function it calls."""
    if node.op.startswith("call "):
        return body_is(node, _is_known)
    if not op_schema(node.op_type, node.domain, node.graph.opset(node.domain)):
        return False
    return all(_is_known(inner) for graph in node.subgraphs.values() for inner in graph)
