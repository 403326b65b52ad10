from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.cli import app


@dataclass(frozen=True)
class Done:
    """What a command printed and how it ended."""

    exit_code: int | None
    stdout_bytes: bytes
    stderr: str
    exception: Exception | None = None

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode(errors="replace")

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process."""

    def call(*words: object, env: Mapping[str, str] | None = None) -> Done:
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors="replace") for _ in range(2))
        code, error = None, None
        with monkeypatch.context() as patched, redirect_stdout(out), redirect_stderr(err):
            for name, value in (env or {}).items():
                patched.setenv(name, value)
            try:
                code = app.run([str(word) for word in words])
            except Exception as raised:
                error = raised
        return Done(code, _written(out), _written(err).decode(errors="replace"), error)

    return call


def _written(stream: io.TextIOWrapper) -> bytes:
    stream.flush()
    return stream.buffer.getvalue()  # type: ignore[attr-defined]


def small_model(*, weight: float = 2.0, external: bool = False) -> onnx.ModelProto:
    """y = Relu(Identity(x * w)), with a symbolic batch."""
    array = np.full((4, 300), weight, np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scaled"], name="scale"),
        helper.make_node("Identity", ["scaled"], ["same"], name="same"),
        helper.make_node("Relu", ["same"], ["y"], name="relu"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 300])
    graph = helper.make_graph(nodes, "small", [x], [y], [numpy_helper.from_array(array, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    if external:
        onnx.external_data_helper.convert_model_to_external_data(model, location="small.data", size_threshold=16)
    return model


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.onnx"
    onnx.save(small_model(), path)
    return path


@pytest.fixture
def existing(tmp_path: Path) -> Path:
    """A file that must survive whatever goes wrong."""
    path = tmp_path / "out.onnx"
    path.write_bytes(b"precious")
    return path


def command(*args: object, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """The real command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "graphopt", *map(str, args)],
        input=stdin, capture_output=True, timeout=60, check=False, env={**os.environ, "COLUMNS": "100"},
    )  # fmt: skip
