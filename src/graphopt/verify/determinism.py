"""Outputs of a model that depend on random numbers, so that two runs cannot be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx

from graphopt.verify.source import read_by

_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
_STANDARD = frozenset({"", "ai.onnx"})
_TRAINING_SLOT = 2  # Dropout's third input since opset 12

Functions = Mapping[tuple[str, str, str], onnx.FunctionProto]


def random_outputs(model: onnx.ModelProto) -> dict[str, str]:
    """For each random graph output, by name, the operator that makes it random."""
    functions = {(f.domain, f.name, getattr(f, "overload", "")): f for f in model.functions}
    off = {t.name for t in model.graph.initializer if _is_false(t)} - {i.name for i in model.graph.input}
    for node in model.graph.node:
        if node.op_type == "Constant" and any(a.name == "value" and _is_false(a.t) for a in node.attribute):
            off.update(node.output)
    tainted = _tainted(model.graph.node, functions, off)
    return {o.name: tainted[o.name] for o in model.graph.output if o.name in tainted}


def _tainted(nodes: Iterable[onnx.NodeProto], functions: Functions, off: set[str]) -> dict[str, str]:
    tainted: dict[str, str] = {}
    for node in nodes:
        reason = _random_op(node, functions, off) or next((tainted[i] for i in read_by(node) if i in tainted), None)
        if reason is not None:
            tainted.update((name, reason) for name in node.output if name)
    return tainted


def _random_op(node: onnx.NodeProto, functions: Functions, off: set[str], depth: int = 0) -> str | None:
    """The random operator that a node is or contains."""
    if node.domain in _STANDARD:
        if node.op_type in _RANDOM:
            return node.op_type
        if node.op_type == "Dropout" and len(node.input) > _TRAINING_SLOT:
            flag = node.input[_TRAINING_SLOT]
            return node.op_type if flag and flag not in off else None
    bodies = [list(a.g.node) for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    bodies += [list(g.node) for a in node.attribute for g in a.graphs]
    function = functions.get((node.domain, node.op_type, getattr(node, "overload", "")))
    if function is not None and depth < 50:  # ONNX forbids recursion, but an invalid model must not hang the check
        bodies.append(list(function.node))
    for body in bodies:
        for inner in body:
            if found := _random_op(inner, functions, off, depth + 1):
                return found
    return None


def _is_false(tensor: onnx.TensorProto) -> bool:
    if tensor.data_type != onnx.TensorProto.BOOL or any(d != 1 for d in tensor.dims):
        return False
    return not any(tensor.raw_data) if tensor.HasField("raw_data") else not any(tensor.int32_data)
