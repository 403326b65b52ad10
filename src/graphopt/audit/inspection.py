"""Static checks of a model file: contents, validity, and losses against the original."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx

from graphopt.audit.record import Contents, Losses
from graphopt.errors import ModelError
from graphopt.ir import Model
from graphopt.ir.external import locations
from graphopt.ir.schema import READING_TYPES
from graphopt.verify.interface import differences, interface_of

_CHECKER_LIMIT = (1 << 31) - 1


def light_proto(path: Path) -> onnx.ModelProto:
    """The proto of a file, without large weights if the file allows that; broken graphs are read too."""
    try:
        return Model.load(path).proto
    except ModelError:
        return onnx.load(path, load_external_data=False)


def contents(path: Path, proto: onnx.ModelProto | None = None) -> Contents:
    """Count nodes, operators, parameters and bytes."""
    proto = proto if proto is not None else light_proto(path)
    ops = Counter(_op(node) for node in nodes(proto))
    parameters = sum(_elements(tensor.dims) for graph in graphs(proto) for tensor in graph.initializer)
    parameters += sum(_elements(s.values.dims) for graph in graphs(proto) for s in graph.sparse_initializer)
    return Contents(sum(ops.values()), dict(ops.most_common()), parameters, file_bytes(path, proto))


def file_bytes(path: Path, proto: onnx.ModelProto) -> int:
    """Size of a model file and the external files that it refers to."""
    beside = [path.parent / place for place in locations(proto)]
    return path.stat().st_size + sum(file.stat().st_size for file in beside if file.is_file())


_READING_TYPES = [name.rpartition("::")[2].encode() for name in READING_TYPES]


def check(path: Path) -> str:
    """The objection of `onnx.checker`, as one line; "" if it accepts the file.

    Shapes are not checked in files above 2 GB, nor in those with operators whose inference may end the process.
    """
    try:
        # Inference of some operators ends the process if the type of their operand is not known.
        data = path.read_bytes() if path.stat().st_size < _CHECKER_LIMIT else b""
        full = bool(data) and not any(name in data for name in _READING_TYPES)
        onnx.checker.check_model(str(path), full_check=full)
    except Exception as error:  # the checker raises ValidationError, inference errors and plain RuntimeErrors
        return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
    return ""


def losses(before: onnx.ModelProto, after: onnx.ModelProto) -> Losses:
    """Properties of `before` that `after` lacks."""
    breaking = [d.message for d in differences(interface_of(before), interface_of(after)) if d.breaking]
    named_before = {node.name for node in nodes(before) if node.name}
    named_after = {node.name for node in nodes(after) if node.name}
    unnamed = sum(not node.name for node in nodes(after))
    new = len(named_after - named_before)
    # A fused node has no name to keep: only names that nodes of the result could carry are counted.
    lost_names = min(len(named_before - named_after), unnamed + new)
    found = Losses(breaking, lost_names)
    kept = _metadata(after)
    found.metadata = sum(entry not in kept for entry in _metadata(before, named_after))
    found.doc_strings = (Counter(_docs(before, named_after)) - Counter(_docs(after))).total()
    found.other = _other_losses(before, after)
    return found


def _other_losses(before: onnx.ModelProto, after: onnx.ModelProto) -> list[str]:
    def sizes(model: onnx.ModelProto) -> dict[str, int]:
        return {
            "training information": len(model.training_info),
            "quantization annotations": len(model.graph.quantization_annotation),
            "sparse initializers": len(model.graph.sparse_initializer),
        }

    kept = sizes(after)
    lost = [what for what, number in sizes(before).items() if kept[what] < number]
    if before.producer_name and before.producer_name != after.producer_name:
        lost.append("producer name")
    return lost


def _metadata(model: onnx.ModelProto, only: set[str] | None = None) -> set[tuple[str, str, str]]:
    """Entries as (place, key, value) of model, graph and named nodes, of the nodes in `only` if given."""
    entries = {("model", p.key, p.value) for p in model.metadata_props}
    entries |= {("graph", p.key, p.value) for p in model.graph.metadata_props}
    for node in nodes(model):
        if node.name and (only is None or node.name in only):
            entries |= {(f"node {node.name}", p.key, p.value) for p in node.metadata_props}
    return entries


def _docs(model: onnx.ModelProto, only: set[str] | None = None) -> Iterator[str]:
    """Documentation of model, graph, inputs, outputs and nodes, of the nodes with a name in `only` if given."""
    texts = [model.doc_string, model.graph.doc_string]
    texts += [value.doc_string for value in (*model.graph.input, *model.graph.output)]
    texts += [node.doc_string for node in nodes(model) if only is None or node.name in only]
    return (text for text in texts if text)


def graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The main graph and all its subgraphs; not those of functions."""
    yield from _inner(model.graph)


def _inner(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        yield from _bodies(node)


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield from _inner(attribute.g)
        for graph in attribute.graphs:
            yield from _inner(graph)


def all_graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The main graph and all subgraphs, those of functions included."""
    yield from graphs(model)
    for function in model.functions:
        for node in function.node:
            yield from _bodies(node)


def nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node of the model, including subgraphs and functions."""
    for graph in all_graphs(model):
        yield from graph.node
    for function in model.functions:
        yield from function.node


def _op(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def _elements(dims: Iterable[int]) -> int:
    return math.prod(dims)
