"""Files that are no ONNX model are called what they are, with what to do about it."""

from __future__ import annotations

import gzip
import io
import time
import zipfile
from pathlib import Path

import onnx
import pytest
from google.protobuf import json_format, text_format

from graphopt.errors import ModelError
from graphopt.ir import Model
from graphopt.ir.formats import recognized

MODEL = onnx.parser.parse_model(
    '<ir_version: 9, opset_import: ["" : 18]> g (float[N,3] x) => (float[N,3] y) { y = Relu(x) }'
)


def archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        opened.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
    return buffer.getvalue()


KINDS = {
    "Git LFS": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
    "gzip": gzip.compress(MODEL.SerializeToString()),
    "zip archive": archive(),
    "pickle": b"\x80\x02}q\x00.",
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(64),
    "GGUF": b"GGUF\x03\x00\x00\x00" + bytes(64),
    "TensorFlow Lite": b"\x1c\x00\x00\x00TFL3" + bytes(64),
    "safetensors": (64).to_bytes(8, "little") + b'{"a":{"dtype":"F32"}}'.ljust(64) + bytes(4),
    "own format": b"\x18\x00\x00\x00ORTM" + bytes(64),
    "web page": b"\n<!DOCTYPE html><html><body>404</body></html>",
    "JSON": json_format.MessageToJson(MODEL).encode(),
    "text protobuf": b"# Made by hand.\n" + text_format.MessageToString(MODEL).encode(),
    "ONNX text": b"# RUN: a pass\n" + onnx.printer.to_text(MODEL).encode(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_file_is_stands_in_the_message(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(KINDS[kind])
    with pytest.raises(ModelError, match=rf"model\.onnx: expected a binary ONNX model, found .*{kind}"):
        Model.load(path)


@pytest.mark.parametrize("data", [MODEL.SerializeToString(), MODEL.SerializeToString()[:20], b"hello", b"", bytes(9)])
def test_others_are_called_nothing(data: bytes) -> None:
    assert recognized(data) is None


@pytest.mark.parametrize("unit", [b"# ", b"\n", b" ", b"#\n", b"{ ", b"< "])
def test_no_text_takes_long_to_look_at(unit: bytes) -> None:
    start = time.process_time()
    recognized(unit * 5000)
    assert time.process_time() - start < 1


def test_of_a_folder_its_models_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a folder, expected an ONNX file$"):
        Model.load(tmp_path)
    for name in ("decoder.onnx", "encoder.onnx"):
        (tmp_path / name).touch()
    with pytest.raises(ModelError, match=r"; it has decoder\.onnx, encoder\.onnx$"):
        Model.load(tmp_path)
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(ModelError, match="TensorFlow SavedModel"):
        Model.load(tmp_path)


def test_a_url_is_no_file() -> None:
    with pytest.raises(ModelError, match=r"^https://example\.com/m\.onnx is a URL, expected a file"):
        Model.load("https://example.com/m.onnx")
