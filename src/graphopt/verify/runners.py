"""Execution of a model without optimizations: in onnxruntime, else in onnx's reference evaluator."""

from __future__ import annotations

import ctypes
import re
import warnings
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import onnx

from graphopt.system.extras import require
from graphopt.system.machine import host, runs_here
from graphopt.system.sessions import open_session
from graphopt.verify import values
from graphopt.verify.inference import too_large
from graphopt.verify.inputs import Feed
from graphopt.verify.source import Source
from graphopt.verify.values import Array

_PACKED = {  # element type -> bits of one element; onnxruntime returns these packed
    onnx.TensorProto.INT4: 4,
    onnx.TensorProto.UINT4: 4,
}
_NARROW = re.compile(r"u?int[24]\b|float4")
_EXOTIC = re.compile(r"bfloat16|float8|float4|u?int[24]\b")
_FIRST_LINE = 300


class CannotLoadError(Exception):
    """A backend cannot load the model; the message is one line."""


class RunError(Exception):
    """A run failed; the message is one line."""


class Runner(Protocol):
    """A backend with one loaded model."""

    backend: str

    def run(self, feed: Feed) -> list[Any]:
        """The outputs in the model's order; raises RunError."""
        ...


class OrtRunner:
    """onnxruntime on the CPU, one thread, all graph optimizations off.

    Args:
        source: the model.
        reuse: see `open_session`.
    """

    backend = "onnxruntime"

    def __init__(self, source: Source, *, reuse: bool = True) -> None:
        ort = require("onnxruntime")

        if not runs_here(source.proto):
            raise CannotLoadError(
                f"it was written for kernels with blocks of another size than this machine's, {host()}"
            )
        try:
            self._session = open_session(source.loadable(), reuse=reuse)
        except Exception as error:  # the many exception types of a native library share no base class
            raise CannotLoadError(one_line(error)) from None
        self._quiet = ort.RunOptions()
        self._quiet.log_severity_level = 4
        inputs = {i.name: i.type for i in self._session.get_inputs()}
        outputs = [o.type for o in self._session.get_outputs()]
        if narrow := [f"{n} ({t})" for n, t in inputs.items() if _NARROW.search(t)]:
            raise CannotLoadError(f"takes no input of this type from Python: {narrow[0]}")
        self._exotic = any(_EXOTIC.search(t) for t in [*inputs.values(), *outputs])

    def run(self, feed: Feed) -> list[Any]:
        """Run once."""
        try:
            if self._exotic:
                return self._run_ort_values(feed)
            return list(self._session.run(None, feed, self._quiet))
        except RunError:
            raise
        except Exception as error:
            raise RunError(one_line(error)) from None

    def stop(self) -> None:
        """End a run in another thread, and prevent new runs."""
        self._quiet.terminate = True

    def _run_ort_values(self, feed: Feed) -> list[Any]:
        """Run with types that NumPy does not know: bfloat16, float8, 4-bit integers."""
        ort = require("onnxruntime")

        held = {}
        for name, value in feed.items():
            array = value if isinstance(value, np.ndarray) else None
            if array is None:
                raise RunError(f"input {name!r}: onnxruntime takes no such value beside a type that NumPy lacks")
            held[name] = _to_ort_value(ort, array)
        results = self._session.run_with_ort_values(None, held, self._quiet)
        return [_from_ort_value(v) for v in results]


class ReferenceRunner:
    """onnx's reference evaluator, written in Python: slow, but it supports every standard operator."""

    backend = "reference"

    def __init__(self, source: Source) -> None:
        from onnx.reference import ReferenceEvaluator

        from graphopt.verify.forms import corrected, readable

        standard = max((entry.version for entry in source.proto.opset_import if not entry.domain), default=0)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                own = corrected(standard) if standard else []
                self._evaluator = ReferenceEvaluator(readable(source.full_proto(), standard), new_ops=own)
        except Exception as error:
            raise CannotLoadError(one_line(error)) from None

    def run(self, feed: Feed) -> list[Any]:
        """Run once."""
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                return list(self._evaluator.run(None, feed))
        except Exception as error:
            raise RunError(one_line(error)) from None


def open_runner(source: Source, backends: Sequence[str] = ("onnxruntime", "reference")) -> Runner:
    """The first backend that can load the model; CannotLoadError states the objections of each."""
    kinds: dict[str, type[OrtRunner] | type[ReferenceRunner]] = {
        "onnxruntime": OrtRunner,
        "reference": ReferenceRunner,
    }
    if (why := too_large(source.proto)) is not None:
        raise CannotLoadError(why)
    objections = []
    for backend in backends:
        try:
            return kinds[backend](source)
        except CannotLoadError as error:
            objections.append(f"{backend}: {error}")
    raise CannotLoadError("; ".join(objections))


def one_line(error: BaseException) -> str:
    """An exception as one readable line, without onnxruntime's prefixes, source paths and signatures."""
    text = " ".join(str(error).split()) or type(error).__name__
    text = f"there is no {text}" if isinstance(error, KeyError) else text  # its text is only the key
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text)
    text = re.sub(r"(/\S+/)?onnxruntime(_src)?/\S+:\d+ \S[^)]*\)( const)? ", "", text)
    text = re.sub(r"Load model from .*? failed: ?", "", text)
    return text[:_FIRST_LINE]


def _to_ort_value(ort: Any, array: Array) -> Any:
    if not values.is_foreign(array.dtype):
        return ort.OrtValue.ortvalue_from_numpy(array)
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    raw = array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, kind)


def _from_ort_value(value: Any) -> Any:
    if not value.is_tensor():
        raise RunError("onnxruntime returns no sequence or optional beside a type that NumPy lacks")
    kind = value.element_type()
    dtype = values.numpy_dtype(kind)
    if dtype is None or not values.is_foreign(dtype):
        return value.numpy()
    shape = tuple(value.shape())
    size = int(np.prod(shape, dtype=np.int64))
    if not size:
        return np.zeros(shape, dtype)
    raw = np.frombuffer(ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes()), np.uint8)
    if kind in _PACKED:
        nibbles = np.stack([raw & 0xF, raw >> 4], axis=-1).reshape(-1)[:size]
        if kind == onnx.TensorProto.INT4:
            nibbles = (nibbles ^ 8).astype(np.int8) - 8
        return nibbles.astype(dtype).reshape(shape)
    return raw.view(dtype)[:size].reshape(shape)
