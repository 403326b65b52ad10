"""Reads and writes models for peers that work on protos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_LIMIT = 2**31 - 2**20  # what one protobuf message can hold, with some room


def load(src: str) -> Any:
    """The model with all its weights."""
    import onnx

    return onnx.load(src)


def save(model: Any, dst: str, *, external: bool = False) -> None:
    """Write a model; with external weights if requested or if it is too large for one file."""
    import onnx

    if external or initializer_bytes(model) > _LIMIT:
        onnx.save(model, dst, save_as_external_data=True, location=f"{Path(dst).name}.data")
    else:
        onnx.save(model, dst)


def initializer_bytes(model: Any) -> int:
    """Bytes of the raw weights in a proto."""
    return sum(len(tensor.raw_data) for tensor in model.graph.initializer)


def has_external_data(src: str) -> bool:
    """Whether the model has weights in external files."""
    import onnx

    model = onnx.load(src, load_external_data=False)
    return any(t.data_location == onnx.TensorProto.EXTERNAL for t in model.graph.initializer)
