"""Models with the taken branches inlined into the main graph, for judges that look values up by name."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from graphopt.fuzzing.embedding import renamed_node
from graphopt.fuzzing.usual import values_of
from graphopt.verify.values import Array


def with_branches_taken(model: onnx.ModelProto, feed: Mapping[str, Array]) -> onnx.ModelProto:
    """A model that computes the same outputs on one feed, with each `If` replaced by the nodes of the branch taken.

    Values defined in a branch are prefixed with the first output of their `If`, since two branches may use one name.
    An `If` whose condition cannot be evaluated stays.

    Args:
        model: any model; it is not changed.
        feed: its inputs.
    """
    while (at := _first_if(model.graph)) is not None:
        inlined = _inlined(model, at, feed)
        if inlined is None:
            return model
        model = inlined
    return model


def _first_if(graph: onnx.GraphProto) -> int | None:
    return next((i for i, node in enumerate(graph.node) if node.op_type == "If" and not node.domain), None)


def _inlined(model: onnx.ModelProto, at: int, feed: Mapping[str, Array]) -> onnx.ModelProto | None:
    node = model.graph.node[at]
    found = values_of(model, dict(feed), [node.input[0]])
    if found is None:
        return None
    taken = "then_branch" if found[node.input[0]].item() else "else_branch"
    branch = next(attribute.g for attribute in node.attribute if attribute.name == taken)
    names = {name: f"{node.output[0]}/{name}" for name in _defined(branch)}
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    results = [
        onnx.helper.make_node("Identity", [names.get(info.name, info.name)], [name])
        for info, name in zip(branch.output, node.output, strict=True)
        if name
    ]
    inner = [renamed_node(each, names) for each in branch.node]
    del copy.graph.node[:]
    copy.graph.node.extend([*model.graph.node[:at], *inner, *results, *model.graph.node[at + 1 :]])
    copy.graph.initializer.extend(branch.initializer)
    copy.graph.sparse_initializer.extend(branch.sparse_initializer)
    first, sparse = len(model.graph.initializer), len(model.graph.sparse_initializer)
    for tensor in (*copy.graph.initializer[first:], *(each.values for each in copy.graph.sparse_initializer[sparse:])):
        tensor.name = names[tensor.name]
    return copy


def _defined(graph: onnx.GraphProto) -> set[str]:
    names = {tensor.name for tensor in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    return names | {name for node in graph.node for name in node.output if name}
