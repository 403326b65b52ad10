"""A replacement for `quant_pre_process`, the step that ONNX Runtime's quantization requires before it.

from graphopt.integrations.onnxruntime import preprocess

preprocess("model.onnx", "prepared.onnx")
quantize_static("prepared.onnx", "quantized.onnx", reader)
"""

from __future__ import annotations

import os
from typing import Unpack

import onnx

from graphopt.analysis import infer_types
from graphopt.ir import ExternalData, Graph, Model, Source
from graphopt.ir.edit import mark_changed
from graphopt.ir.types import GENERATED, encode_type
from graphopt.manager import PassManager, RunSettings
from graphopt.rewrite import Level


def preprocess(
    source: Source, destination: str | os.PathLike[str], level: str | Level = Level.BASIC, *,
    external_data: ExternalData | None = None, **settings: Unpack[RunSettings],
) -> None:  # fmt: skip
    """Optimize a model for quantization, and store the types of its values, which the quantizer looks up.

    Args:
        source: the model.
        destination: the file to write.
        level: `basic` or `extended`: operators that the latter fuses are quantized as a whole, or not at all.
        external_data: the layout of weights outside the file.
        **settings: see `graphopt.PassManager`.

    Raises:
        ModelError: the model cannot be read, or the file cannot be written.
    """
    result = PassManager(level, **settings).run(source)
    # Types are stated in the protos of the view, and a given proto must stay as it is.
    model = result.view
    if isinstance(source, onnx.ModelProto):
        model = Model.load(result.model, inplace=True, opaque=model.opaque)
    infer_types(model)
    for graph in model.graphs():
        _state_types(graph)
    mark_changed(model.graph)
    model.save(destination, external_data)


def _state_types(graph: Graph) -> None:
    """State the inferred types of a graph's inner values: the standard's inference derives wrong ones in places."""
    proto = graph.proto
    for value in (each for node in graph for each in node.results):
        if value.type is None or value.output_count:
            continue
        if value._info is None:
            value._info = proto.value_info.add(name=value.name)
        value._info.type.CopyFrom(_lasting(encode_type(value.type)))


def _lasting(stated: onnx.TypeProto) -> onnx.TypeProto:
    """A type without names of dimensions that inference made up, which mean nothing to other readers."""
    for kind in ("sequence_type", "optional_type"):
        if stated.HasField(kind):
            _lasting(getattr(stated, kind).elem_type)
    for dim in stated.tensor_type.shape.dim if stated.HasField("tensor_type") else ():
        if dim.dim_param.startswith(GENERATED):
            dim.Clear()
    return stated
