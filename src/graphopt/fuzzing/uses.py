"""Changes of golden cases in the uses of a value: branches, the caller, a repeated operand; and in its rank."""

from __future__ import annotations

import random
from typing import Any

import onnx
from onnx import ModelProto, TensorProto, helper

from graphopt.fuzzing.usual import element_types
from graphopt.fuzzing.variants import Change, _nodes


def captured(model: ModelProto, rng: random.Random) -> bool:
    """Let both branches of an `If` capture a value, which may be a node's output, an input or a constant."""
    graph = model.graph
    types = element_types(model)
    if not types:
        return False
    name = rng.choice(list(types))
    branches: dict[str, Any] = {
        branch: _passing_on(name, branch, types[name]) for branch in ("then_branch", "else_branch")
    }
    graph.input.append(helper.make_tensor_value_info(f"{name}/chosen", TensorProto.BOOL, []))
    graph.node.append(helper.make_node("If", [f"{name}/chosen"], [f"{name}/read"], **branches))
    graph.output.append(onnx.ValueInfoProto(name=f"{name}/read"))
    return True


def _passing_on(name: str, branch: str, kind: int) -> onnx.GraphProto:
    """A branch that returns a captured value."""
    result = f"{name}/{branch}"
    nodes = [helper.make_node("Identity", [name], [result])]
    return helper.make_graph(nodes, branch, [], [helper.make_tensor_value_info(result, kind, None)])


def overridable(model: ModelProto, rng: random.Random) -> bool:
    """Turn a constant into an overridable initializer."""
    given = {info.name for info in model.graph.input}
    tensors = [tensor for tensor in model.graph.initializer if tensor.name not in given]
    if not tensors:
        return False
    tensor = rng.choice(tensors)
    model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    return True


def twice(model: ModelProto, rng: random.Random) -> bool:
    """Replace one operand of a node with another of its operands."""
    nodes = [node for node in _nodes(model) if len(set(filter(None, node.input))) > 1]
    if not nodes:
        return False
    node = rng.choice(nodes)
    one, other = rng.sample([at for at, name in enumerate(node.input) if name], 2)
    node.input[one] = node.input[other]
    return True


def fewer_axes(model: ModelProto, rng: random.Random) -> bool:
    """Remove one axis of an input, or all."""
    shapes = [info.type.tensor_type.shape for info in model.graph.input if info.type.tensor_type.shape.dim]
    if not shapes:
        return False
    shape = rng.choice(shapes)
    del shape.dim[: rng.choice((1, len(shape.dim)))]
    return True


USES: dict[str, Change] = {
    "captured": captured, "overridable": overridable, "twice": twice, "fewer axes": fewer_axes,
}  # fmt: skip
"""Changes of uses."""
