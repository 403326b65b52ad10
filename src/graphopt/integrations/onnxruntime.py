"""In place of the step that ONNX Runtime's quantization asks for before it: `quant_pre_process`.

from graphopt.integrations.onnxruntime import preprocess

preprocess("model.onnx", "prepared.onnx")
quantize_static("prepared.onnx", "quantized.onnx", reader)
"""

from __future__ import annotations

import os
from typing import Unpack

import onnx
from google.protobuf.message import EncodeError

from graphopt.ir import ExternalData, Model, Source
from graphopt.manager import PassManager, RunSettings
from graphopt.rewrite import Level


def preprocess(
    source: Source, destination: str | os.PathLike[str], level: str | Level = Level.BASIC, *,
    external_data: ExternalData | None = None, **settings: Unpack[RunSettings],
) -> None:  # fmt: skip
    """Optimize a model for quantization, and state the types of its values, which the quantizer looks for.

    Args:
        source: the model.
        destination: the file to write.
        level: `basic` or `extended`: operators that are fused at the latter are quantized as a whole, or not at all.
        external_data: how to lay out weights outside the file.
        **settings: see `graphopt.PassManager`.

    Raises:
        ModelError: the model cannot be read, or the file not written.
    """
    result = PassManager(level, **settings).run(source)
    if external_data is not None:
        result.save(destination, external_data)
        onnx.shape_inference.infer_shapes_path(os.fspath(destination), data_prop=True)
        return
    try:
        typed = onnx.shape_inference.infer_shapes(result.model, data_prop=True)
    except (EncodeError, ValueError):  # above the 2 GiB that one message can hold
        result.save(destination)
        onnx.shape_inference.infer_shapes_path(os.fspath(destination), data_prop=True)
    else:
        Model.load(typed, inplace=True).save(destination)
