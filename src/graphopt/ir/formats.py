"""Recognition of files that are not ONNX models, by first bytes or name, for messages with advice."""

from __future__ import annotations

import re
from pathlib import Path

from graphopt.errors import ModelError

_STARTS = (
    (b"version https://git-lfs", "the pointer that Git LFS left in place of a model; `git lfs pull` fetches that"),
    (b"\x1f\x8b", "data compressed by gzip; unpack it first"),
    (b"PK\x03\x04", "a zip archive, as torch.save and Keras write, too; unpack the ONNX model, or export one"),
    (b"\x80\x02", "a Python pickle, as older versions of torch.save write; export an ONNX model from it"),
    (b"\x89HDF", "HDF5, as older versions of Keras write; export an ONNX model from it"),
    (b"GGUF", "GGUF, which has weights and no graph; export an ONNX model from the original"),
)
_LATER = (
    (4, b"ORTM", "a model in ONNX Runtime's own format (.ort); give the ONNX model it was made from"),
    (4, b"TFL3", "TensorFlow Lite; convert it to ONNX first, as tf2onnx does"),
    (8, b'{"', "safetensors, which has weights and no graph; export an ONNX model from the original"),
)
_TEXTS = (
    (re.compile(rb"\s*<(!doctype|html|\?xml|head)", re.I), "a web page or XML, perhaps what a failed download left"),
    (re.compile(rb"\s*\{\s*\"", re.I), 'JSON; if it is a model, onnx.load(file, format="json") reads it'),
    (re.compile(rb"(\s|#[^\n]*\n)*(ir_version|graph|opset_import|producer_name)\s*[:{]"),
     'text protobuf; onnx.load(file, format="textproto") reads it'),
    (re.compile(rb"(\s|#[^\n]*\n)*<\s*(ir_version|opset_import|producer_name)\s*:"),
     'a model in ONNX text; onnx.load(file, format="onnxtxt") reads it'),
)  # fmt: skip
_LOOKED_AT = 4096

_TEXT_NAMES = {
    ".pbtxt": "textproto", ".txtpb": "textproto", ".prototxt": "textproto", ".textproto": "textproto",
    ".json": "json", ".onnxjson": "json", ".onnxtxt": "onnxtxt", ".onnxtext": "onnxtxt",
}  # fmt: skip
"""File extensions that `onnx.load` reads as text, each with the format it assumes."""


def check_binary_name(path: Path) -> None:
    """Check that a model file to be written does not have the extension of a text format.

    Raises:
        ModelError: it has one, so that `onnx.load` could not read the file.
    """
    form = _TEXT_NAMES.get(path.suffix.lower())
    if form is not None:
        raise ModelError(
            f"cannot write {path}: models are written in binary, and {path.suffix} is read as text; "
            f'name it .onnx, and onnx.save(model, file, format="{form}") makes text of it'
        )


def recognized(data: bytes) -> str | None:
    """The format of bytes that are not a serialized ONNX model, and what to do about it.

    Args:
        data: the bytes, or the first of them.

    Returns:
        Words for a message; None if the format is not recognized.
    """
    head = data[:_LOOKED_AT]
    for start, what in _STARTS:
        if head.startswith(start):
            return what
    for place, mark, what in _LATER:
        if head[place : place + len(mark)] == mark:
            return what
    return next((what for form, what in _TEXTS if form.match(head)), None)
