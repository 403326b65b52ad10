"""Conversion of element types between ONNX and NumPy, as in `onnx.helper`, which is imported for rare types only.

It imports `ml_dtypes`, the packing of narrow types and the reader of external data, a tenth of the imports of a run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

_USUAL: dict[int, np.dtype[Any]] = {
    TensorProto.FLOAT: np.dtype("float32"), TensorProto.DOUBLE: np.dtype("float64"),
    TensorProto.FLOAT16: np.dtype("float16"), TensorProto.INT8: np.dtype("int8"), TensorProto.INT16: np.dtype("int16"),
    TensorProto.INT32: np.dtype("int32"), TensorProto.INT64: np.dtype("int64"), TensorProto.UINT8: np.dtype("uint8"),
    TensorProto.UINT16: np.dtype("uint16"), TensorProto.UINT32: np.dtype("uint32"),
    TensorProto.UINT64: np.dtype("uint64"), TensorProto.BOOL: np.dtype("bool"),
}  # fmt: skip
_ELEMENTS = {kind: int(dtype) for dtype, kind in _USUAL.items()}


def numpy_type(dtype: int) -> np.dtype[Any]:
    """The NumPy type of an element type.

    Raises:
        KeyError: there is none.
    """
    kind = _USUAL.get(dtype)
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(dtype)) if kind is None else kind


def element_type(kind: np.dtype[Any]) -> int:
    """The element type of a NumPy type.

    Raises:
        ValueError: there is none.
    """
    dtype = _ELEMENTS.get(kind)
    return int(onnx.helper.np_dtype_to_tensor_dtype(kind)) if dtype is None else dtype
