"""Random numbers in place of weights that are not available, so that a model can still be run."""

from __future__ import annotations

import math
from zlib import crc32

import numpy as np
import onnx
from onnx import TensorProto

from graphopt.ir import Model, Source
from graphopt.ir.external import external_tensors
from graphopt.ir.tensor import Tensor

_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16})


def both_filled(source: Source, result: Model) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A model and its optimized result, with the same numbers in place of the weights that were left unread."""
    return filled(Model.load(source, opaque=result.opaque).flush()), filled(result.flush())


def filled(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model in which equal references to files are replaced with equal numbers.

    Matrices have a spread that roughly keeps activations in range; vectors are positive, as variances and scales must
    be; 8-bit integers cover their range, and wider ones, which may be indices, are 0 or 1.

    Args:
        model: the model; it is not changed.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in external_tensors(copy):
        seed = crc32(b"".join(entry.SerializeToString() for entry in tensor.external_data))
        dims = tuple(tensor.dims)
        drawn = Tensor.from_array(_drawn(np.random.default_rng(seed), tensor.data_type, dims), tensor.data_type)
        name = tensor.name
        tensor.Clear()
        drawn.fill(tensor, name)
    return copy


def _drawn(generator: np.random.Generator, dtype: int, dims: tuple[int, ...]) -> np.ndarray:
    kind = onnx.helper.tensor_dtype_to_np_dtype(dtype)
    if dtype in _FLOATS and len(dims) > 1:
        numbers = generator.standard_normal(dims, np.float32)
        numbers /= max(math.prod(dims), 1) ** 0.25
        return numbers.astype(kind)
    if dtype in _FLOATS or kind.kind in "Vc":  # including floats of less than two bytes, and complex numbers
        return (0.5 + generator.random(dims, np.float32)).astype(kind)
    if kind.itemsize > 1 or kind.kind == "b":
        return generator.integers(0, 2, dims).astype(kind)
    return (
        generator.integers(0, 8, dims).astype(kind)
        if kind.name.endswith("4")
        else generator.integers(np.iinfo(kind).min, np.iinfo(kind).max, dims, dtype=kind, endpoint=True)
    )
