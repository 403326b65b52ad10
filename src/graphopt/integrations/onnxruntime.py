"""A replacement for `quant_pre_process`, the step that ONNX Runtime's quantization requires before it.

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
    if external_data is not None:
        result.save(destination, external_data)
        onnx.shape_inference.infer_shapes_path(os.fspath(destination), data_prop=True)
        return
    try:
        typed = onnx.shape_inference.infer_shapes(result.model, data_prop=True)
    except (EncodeError, ValueError):  # above 2 GiB, the limit of one message
        result.save(destination)
        onnx.shape_inference.infer_shapes_path(os.fspath(destination), data_prop=True)
    else:
        Model.load(typed, inplace=True).save(destination)
