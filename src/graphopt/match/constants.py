"""Whether a constant holds what a `Const` asks for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from graphopt.ir import Tensor
from graphopt.match.checks import dtype_name, not_constant
from graphopt.match.mismatch import Mismatch
from graphopt.match.tree import Const

if TYPE_CHECKING:
    from graphopt.ir import Value

Array = np.ndarray[Any, Any]

_UNREADABLE = frozenset({TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.COMPLEX128})
_WHOLE = frozenset(
    code for name, code in TensorProto.DataType.items() if name == "BOOL" or name.startswith(("INT", "UINT"))
)


class ConstTest:
    """The requirements of a `Const` beyond being constant: type, shape, size and contents, in this order.

    Args:
        const: the pattern.
    """

    __slots__ = ("_const", "_numbers", "_quick")

    def __init__(self, const: Const) -> None:
        self._const = const
        self._numbers = _rounded_numbers(const)
        plain = const.dtypes is None and const.max_bytes is None and const.shape in ("scalar", None)
        self._quick = self._numbers if plain else {}

    def __call__(self, value: Value, inputs: Sequence[Value | None]) -> Mismatch | None:
        """A reason if the value does not fit.

        Args:
            value: the candidate.
            inputs: the inputs of the operator that reads it.
        """
        tensor = value.constant_tensor
        if tensor is None:
            return not_constant(value)
        number = self._quick.get(tensor.dtype)
        if number is not None and not tensor.dims and abs(tensor.array().item() - number[0]) <= number[1]:
            return None
        return self._look_closely(value, tensor, inputs)

    def _look_closely(self, value: Value, tensor: Tensor, inputs: Sequence[Value | None]) -> Mismatch | None:
        const = self._const
        if const.dtypes is not None and tensor.dtype not in const.dtypes:
            expected = " or ".join(dtype_name(d) for d in sorted(const.dtypes))
            return Mismatch("constant {!r} is {}, expected {}", value.name, dtype_name(tensor.dtype), expected)
        if const.shape is not None:
            reason = self._shape(value, tensor.dims, inputs)
            if reason is not None:
                return reason
        if const.max_bytes is not None and tensor.nbytes > const.max_bytes:
            text = "constant {!r} has {} bytes, at most {} are allowed"
            return Mismatch(text, value.name, tensor.nbytes, const.max_bytes)
        return None if const.value is None else self._contents(value.name, tensor, const.value)

    def _shape(self, value: Value, found: tuple[int, ...], inputs: Sequence[Value | None]) -> Mismatch | None:
        wanted = self._const.shape
        if wanted == "scalar":
            if found.count(1) != len(found):
                return Mismatch("constant {!r} has shape {}, expected a scalar", value.name, list(found))
            if found and not any(len(found) <= (v.rank or 0) for v in inputs if v is not None and v is not value):
                return Mismatch("constant {!r} has shape {}, which may add axes to the result", value.name, list(found))
            return None
        assert isinstance(wanted, tuple)
        if len(found) != len(wanted) or any(w not in (None, f) for f, w in zip(found, wanted, strict=True)):
            return Mismatch("constant {!r} has shape {}, expected {}", value.name, list(found), list(wanted))
        return None

    def _contents(self, name: str, tensor: Tensor, expected: Array) -> Mismatch | None:
        if tensor.dtype in _UNREADABLE:
            return Mismatch("constant {!r} holds {}, not numbers", name, dtype_name(tensor.dtype))
        const = self._const
        number = self._numbers.get(tensor.dtype)
        if number is not None and tensor.numel == 1:
            if abs(tensor.scalar() - number[0]) <= number[1]:
                return None
        elif holds(tensor, expected, const.rel, const.abs):
            return None
        if tensor.numel == 1:
            return Mismatch("constant {!r} is {}, expected {}", name, tensor.scalar(), expected.tolist())
        return Mismatch("constant {!r} does not hold {}", name, expected.tolist())


def holds(tensor: Tensor, expected: Array, rel: float, abs_: float) -> bool:
    """Whether every element is what the expected value is in the tensor's own type, up to a tolerance.

    Integers and booleans must be equal. A finite value that the type cannot hold fits nothing, and so does an empty
    tensor when something is expected.
    """
    found = tensor.array()
    if found.size == 0 or not _broadcasts(expected, found):
        return bool(found.shape == expected.shape)
    if tensor.dtype in _WHOLE:
        whole = found if found.dtype.kind in "iub" else found.astype(np.int64)
        return bool(np.all(whole == expected))
    wanted = np.asarray(expected, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = wanted.astype(found.dtype).astype(np.float64)
        wide = found.astype(np.float64)
        near = np.abs(wide - rounded) <= np.maximum(abs_, rel * np.abs(rounded))
        finite = np.isfinite(rounded) & np.isfinite(wide)
        same = (wide == rounded) & (np.isinf(rounded) == np.isinf(wanted))
    return bool(np.all((finite & near) | same))


def _broadcasts(expected: Array, found: Array) -> bool:
    try:
        return bool(np.broadcast_shapes(expected.shape, found.shape) == found.shape)
    except ValueError:
        return False


def _rounded_numbers(const: Const) -> dict[int, tuple[float, float]]:
    """What a number becomes in the usual types, where it stays finite, and how far from it is near enough."""
    value = const.value
    if value is None or value.shape or value.dtype.kind not in "iubf":
        return {}
    with np.errstate(over="ignore"):
        usual = {
            TensorProto.FLOAT: float(np.float32(value)),
            TensorProto.DOUBLE: float(value),
            TensorProto.FLOAT16: float(np.float16(value)),
        }
    finite = {dtype: number for dtype, number in usual.items() if math.isfinite(number)}
    return {dtype: (number, max(const.abs, const.rel * abs(number))) for dtype, number in finite.items()}
