"""onnxoptimizer's passes that change the interface of a model, or use non-standard features.

No pass of graphopt may do that: the gate preserves names, order and types of inputs and outputs. So these work on
the proto, and only `graphopt.compat.onnxoptimizer` offers them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence
from typing import TYPE_CHECKING, Any

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from graphopt.errors import UsageError
from graphopt.ir import Model, Source
from graphopt.ir.load import trained_names
from graphopt.verify import Feed, sample_inputs
from graphopt.verify.inference import infer
from graphopt.verify.interface import Shapes, sizes_from_shapes

if TYPE_CHECKING:
    from graphopt.verify import CompareSettings

_RANDOM = frozenset({
    "Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
})  # fmt: skip
_CONTROL_INPUTS = "__control_inputs"


def whole_feed(model: ModelProto, given: Mapping[str, Any], dims: Mapping[str, int] | None = None) -> Feed:
    """Arrays for all inputs of a model: the given ones, and generated ones for the others.

    Args:
        model: the model.
        given: arrays by name.
        dims: sizes of symbolic dimensions.

    Raises:
        ModelError: it runs on none of the generated inputs.
    """
    needed = {info.name for info in model.graph.input} - _weights(model.graph)
    return dict(given) if needed <= given.keys() else {**sample_inputs(model, dims=dims), **given}


def compared_on(model: Source, arrays: Mapping[str, Any], shapes: Shapes) -> CompareSettings:
    """The settings for comparing a model with its result.

    Args:
        model: the model.
        arrays: inputs by name; other inputs are generated.
        shapes: shapes of inputs by name.

    Raises:
        UsageError: it has no such inputs.
    """
    if not arrays:
        return {"shapes": shapes}
    proto = Model.load(model).flush()
    return {"inputs": whole_feed(proto, arrays, sizes_from_shapes(proto, shapes))}


def rename_input_output(model: ModelProto) -> None:
    """Rename the inputs to `input_0`, `input_1`, … and the outputs to `output_0`, ….

    The environment variables `OPTIMIZER_RENAME_INPUT_PATTERN` and `OPTIMIZER_RENAME_OUTPUT_PATTERN` set other names; a
    pattern without `%d` is ignored. Inputs with an initializer keep their names, and an internal value with one of the
    new names is renamed.
    """
    graph = model.graph
    weights = _weights(graph)
    wanted: dict[str, str] = {}
    for kind, infos in (("input", graph.input), ("output", graph.output)):
        pattern = os.environ.get(f"OPTIMIZER_RENAME_{kind.upper()}_PATTERN", "")
        pattern = pattern if "%d" in pattern else f"{kind}_%d"
        for number, info in enumerate(infos):
            if kind == "output" or info.name not in weights:
                wanted[info.name] = pattern.replace("%d", str(number), 1)
    if len(set(wanted.values())) < len(wanted):
        raise UsageError("rename_input_output: the patterns give two values one name")
    _rename(model, wanted)


def rewrite_input_dtype(model: ModelProto) -> None:
    """Change int64 inputs to int32, and cast them.

    Inputs with an initializer stay, and so do inputs that are outputs too, or that training information names.
    """
    graph = model.graph
    kept = _weights(graph) | {info.name for info in graph.output} | trained_names(model)
    taken = _all_names(graph)
    casts = []
    for info in graph.input:
        if info.type.tensor_type.elem_type != TensorProto.INT64 or info.name in kept:
            continue
        name = _fresh(f"{info.name}_int64", taken)
        for node in _nodes(graph):
            _replace(node.input, {info.name: name})
        casts.append(helper.make_node("Cast", [info.name], [name], to=TensorProto.INT64))
        info.type.tensor_type.elem_type = TensorProto.INT32
    nodes = [*casts, *graph.node]
    copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def lift_lexical_references(model: ModelProto) -> None:
    """List the captured values of each `If` and `Loop` in a non-standard attribute `__control_inputs`."""
    graph = model.graph
    _lift(graph, _scope(graph), ())


def _lift(graph: GraphProto, frame: set[str], outer: tuple[set[str], ...]) -> set[str]:
    """Annotate the nodes of a graph; returns the names that it captures."""
    unresolved: set[str] = set()
    for node in graph.node:
        unresolved |= {name for name in node.input if name and name not in frame}
        lifted: set[str] = set()
        for body in _bodies(node) if node.op_type in ("If", "Loop") and not node.domain else ():
            lifted |= _lift(body, _scope(body), (*outer, frame))
            lifted |= {out.name for out in body.output if any(out.name in each for each in (*outer, frame))}
        inside = {name for name in lifted if any(name in each for each in (*outer, frame))}
        unresolved |= lifted - frame
        if inside:
            kept = [each for each in node.attribute if each.name != _CONTROL_INPUTS]
            attributes = [AttributeProto.FromString(each.SerializeToString()) for each in kept]
            del node.attribute[:]
            node.attribute.extend([*attributes, helper.make_attribute(_CONTROL_INPUTS, sorted(inside))])
        frame |= {name for name in node.output if name}
    return unresolved


def split_init(model: ModelProto) -> None:
    """Keep the part that depends only on initializers; those of its values that the rest reads become outputs.

    Random operators, control flow and operators of other domains belong to the rest.

    Raises:
        UsageError: the type of a value at the cut is unknown.
    """
    graph = model.graph
    late, boundary = _cut(graph)
    types = _types(model)
    outputs = [info for info in graph.output if info.name not in late]
    listed = {info.name for info in outputs}
    outputs += [_typed(name, types) for name in boundary if name not in listed]
    _keep(graph, lambda node: not _produces(node, late))
    _assign(graph.output, outputs)
    _assign(graph.input, [info for info in graph.input if info.name not in late])
    _keep_types(graph)


def split_predict(model: ModelProto) -> None:
    """Keep the part that depends on other values than initializers; what it reads of the rest becomes an input.

    Raises:
        UsageError: the type of a value at the cut is unknown.
    """
    graph = model.graph
    late, boundary = _cut(graph)
    types = _types(model)
    inputs = [info for info in graph.input if info.name in late]
    inputs += [_typed(name, types) for name in boundary]
    _keep(graph, lambda node: _produces(node, late))
    read = {name for node in _nodes(graph) for name in node.input} | {info.name for info in graph.output}
    del graph.initializer[:], graph.sparse_initializer[:]
    _assign(graph.input, [info for info in inputs if info.name in read])
    _keep_types(graph)


INTERFACE_PASSES: Mapping[str, Callable[[ModelProto], None]] = {
    "rename_input_output": rename_input_output,
    "rewrite_input_dtype": rewrite_input_dtype,
    "lift_lexical_references": lift_lexical_references,
    "split_init": split_init,
    "split_predict": split_predict,
}
"""The passes by name; each changes the given model in place."""


def _cut(graph: GraphProto) -> tuple[set[str], list[str]]:
    """The values that depend on inputs or random operators, and their other operands."""
    late = {info.name for info in graph.input} - _weights(graph)
    boundary: dict[str, None] = {}
    for node in graph.node:
        bodies = list(_bodies(node))
        reads = [*node.input, *(name for body in bodies for name in _captured(body))]
        if node.op_type in _RANDOM or node.domain not in ("", "ai.onnx") or bodies or not late.isdisjoint(reads):
            late.update(name for name in node.output if name)
            boundary.update((name, None) for name in reads if name and name not in late)
    boundary.update((info.name, None) for info in graph.output if info.name not in late)
    return late, list(boundary)


def _captured(graph: GraphProto) -> Iterator[str]:
    """The names that a subgraph captures, read or returned."""
    known = _scope(graph)
    for node in graph.node:
        reads = [*node.input, *(name for body in _bodies(node) for name in _captured(body))]
        yield from (name for name in reads if name and name not in known)
        known.update(node.output)
    yield from (info.name for info in graph.output if info.name not in known)


def _types(model: ModelProto) -> dict[str, ValueInfoProto]:
    graph = infer(model).graph
    found = {info.name: info for info in (*graph.value_info, *graph.input, *graph.output)}
    for tensor in graph.initializer:
        found[tensor.name] = helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
    for sparse in graph.sparse_initializer:
        values = sparse.values
        found[values.name] = helper.make_tensor_value_info(values.name, values.data_type, list(sparse.dims))
    return found


def _typed(name: str, types: Mapping[str, ValueInfoProto]) -> ValueInfoProto:
    if name not in types:
        raise UsageError(f"the type of {name} is not known, so that the model cannot be split there")
    return types[name]


def _produces(node: NodeProto, values: set[str]) -> bool:
    return any(name in values for name in node.output)


def _keep(graph: GraphProto, wanted: Callable[[NodeProto], bool]) -> None:
    _assign(graph.node, [node for node in graph.node if wanted(node)])


def _keep_types(graph: GraphProto) -> None:
    """Drop declared types of removed values."""
    made = {name for node in graph.node for name in node.output}
    _assign(graph.value_info, [info for info in graph.value_info if info.name in made])


def _assign(field: Any, items: Iterable[onnx.ValueInfoProto] | Iterable[NodeProto]) -> None:
    copies = [type(item).FromString(item.SerializeToString()) for item in items]
    del field[:]
    field.extend(copies)


def _weights(graph: GraphProto) -> set[str]:
    return {tensor.name for tensor in graph.initializer} | {each.values.name for each in graph.sparse_initializer}


def _scope(graph: GraphProto) -> set[str]:
    return {info.name for info in graph.input} | _weights(graph)


def _bodies(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for body in _bodies(node):
            yield from _graphs(body)


def _nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for each in _graphs(graph):
        yield from each.node


def _all_names(graph: GraphProto) -> set[str]:
    return {name for each in _graphs(graph) for name in _scope(each)} | {
        name for node in _nodes(graph) for name in (*node.input, *node.output)
    }


def _fresh(name: str, taken: set[str]) -> str:
    number = 0
    found = name
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found


def _replace(names: MutableSequence[str], mapping: Mapping[str, str]) -> None:
    for index, name in enumerate(names):
        if name in mapping:
            names[index] = mapping[name]


def _rename(model: ModelProto, wanted: dict[str, str]) -> None:
    """Rename values of the main graph and all their uses; values with conflicting names are renamed too."""
    training = [graph for info in model.training_info for graph in (info.initialization, info.algorithm)]
    tops = [model.graph, *training]
    names = set[str]().union(*map(_all_names, tops))
    taken = names | set(wanted.values())
    mapping = dict(wanted)
    for name in set(wanted.values()) & (names - set(wanted)):
        mapping[name] = _fresh(name, taken)
    for graph in (each for top in tops for each in _graphs(top)):
        for node in graph.node:
            _replace(node.input, mapping)
            _replace(node.output, mapping)
            for spec in (each for devices in node.device_configurations for each in devices.sharding_spec):
                _rename_in(spec, "tensor_name", mapping)
        for info in (*graph.input, *graph.output, *graph.value_info):
            _rename_in(info, "name", mapping)
        for tensor in (*graph.initializer, *(each.values for each in graph.sparse_initializer)):
            _rename_in(tensor, "name", mapping)
        for note in graph.quantization_annotation:
            _rename_in(note, "tensor_name", mapping)
            for entry in note.quant_parameter_tensor_names:
                _rename_in(entry, "value", mapping)
    for trained in model.training_info:
        for entry in (*trained.initialization_binding, *trained.update_binding):
            _rename_in(entry, "key", mapping)
            _rename_in(entry, "value", mapping)


def _rename_in(message: Any, field: str, mapping: Mapping[str, str]) -> None:
    """Replace a name in a message; any other stays as it is: one that is not UTF-8 cannot be assigned."""
    if (name := getattr(message, field)) in mapping:
        setattr(message, field, mapping[name])
