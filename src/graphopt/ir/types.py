"""Types of values: `TypeProto`, decoded once into a form that is cheap to compare."""

from __future__ import annotations

import math
from collections.abc import Iterable

import onnx
from onnx import TensorProto

from graphopt.ir.messages import as_text
from graphopt.ir.seal import read_only, unwrapped
from graphopt.records import dataclass

Dim = int | str | None
"""A fixed size, a named symbol (`dim_param`), or unknown."""

_BITS: dict[int, int] = {
    TensorProto.FLOAT: 32, TensorProto.DOUBLE: 64, TensorProto.FLOAT16: 16, TensorProto.BFLOAT16: 16,
    TensorProto.INT8: 8, TensorProto.INT16: 16, TensorProto.INT32: 32, TensorProto.INT64: 64,
    TensorProto.UINT8: 8, TensorProto.UINT16: 16, TensorProto.UINT32: 32, TensorProto.UINT64: 64,
    TensorProto.BOOL: 8, TensorProto.COMPLEX64: 64, TensorProto.COMPLEX128: 128,
}  # fmt: skip
for _name in ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E8M0"):
    if hasattr(TensorProto, _name):
        _BITS[getattr(TensorProto, _name)] = 8
for _name, _bits in (("UINT4", 4), ("INT4", 4), ("FLOAT4E2M1", 4), ("UINT2", 2), ("INT2", 2)):
    if hasattr(TensorProto, _name):
        _BITS[getattr(TensorProto, _name)] = _bits

KNOWN_TYPES = frozenset(_BITS) | {TensorProto.STRING}
"""The element types that this version can read."""

NARROW_TYPES = frozenset(dtype for dtype, bits in _BITS.items() if bits < 8)
"""The element types of fewer than 8 bits."""

MOST_AXES = 64
"""No runtime has values of more axes, NumPy included."""

FLOAT_TYPES = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16})
"""The floating-point element types that arithmetic operators accept."""

HALF_TYPES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
"""The 16-bit floating-point element types."""

FLOAT8_TYPES = frozenset({
    TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ,
})  # fmt: skip
"""The signed 8-bit floating-point element types."""

NUMBER_TYPES = frozenset({
    TensorProto.BOOL, TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT8, TensorProto.INT16,
    TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64,
})  # fmt: skip
"""The element types of numbers and booleans that operators and runtimes support since the first opsets."""


def type_name(dtype: int) -> str:
    """The name of an element type in lower case; `type N` if this version has no name for it."""
    known = TensorProto.DataType.DESCRIPTOR.values_by_number.get(dtype)
    return known.name.lower() if known is not None else f"type {dtype}"


def element_bits(dtype: int) -> int | None:
    """Size of one element in bits, or None for strings and types this version does not know."""
    return _BITS.get(dtype)


def element_count(dims: Iterable[object], unknown: int = 1) -> int:
    """The number of elements along axes; a size that is not a number counts as `unknown`."""
    return math.prod([dim if isinstance(dim, int) else unknown for dim in dims])


def tensor_nbytes(dtype: int, numel: int) -> int | None:
    """Bytes of `numel` elements in ONNX's packed form, or None if the type has no fixed width."""
    bits = _BITS.get(dtype)
    return None if bits is None else (numel * bits + 7) // 8


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape of a tensor.

    Attributes:
        dtype: a value of `onnx.TensorProto.DataType`.
        shape: one `Dim` per axis, or None if even the rank is unknown.
    """

    dtype: int
    shape: tuple[Dim, ...] | None

    @property
    def rank(self) -> int | None:
        """Number of axes, or None."""
        return None if self.shape is None else len(self.shape)

    @property
    def static(self) -> bool:
        """Whether every dimension is a fixed size."""
        return self.shape is not None and all(isinstance(d, int) for d in self.shape)

    @property
    def numel(self) -> int | None:
        """Number of elements, or None unless static."""
        if self.shape is None:
            return None
        dims = [d for d in self.shape if isinstance(d, int)]
        return math.prod(dims) if len(dims) == len(self.shape) else None

    @property
    def nbytes(self) -> int | None:
        """Size in bytes, or None unless static and of a type with a fixed width."""
        numel = self.numel
        return None if numel is None else tensor_nbytes(self.dtype, numel)

    @property
    def least_nbytes(self) -> int | None:
        """Size in bytes if every dimension that is not fixed is 1; None if the rank or width is unknown."""
        if self.shape is None:
            return None
        return TensorType(self.dtype, tuple(d if isinstance(d, int) else 1 for d in self.shape)).nbytes


GENERATED = "unk__"
"""Prefix of the dimension names that shape inference generates; they mean nothing in another run."""


def is_told(dim: Dim) -> bool:
    """Whether a dimension is fixed or has a name from the model."""
    return dim is not None and not (isinstance(dim, str) and dim.startswith(GENERATED))


def agree(a: Dim, b: Dim) -> bool:
    """Whether two dimensions are known to be equal: the same number, or the same symbol."""
    return a is not None and a == b


def shapes_differ(a: tuple[Dim, ...] | None, b: tuple[Dim, ...] | None) -> bool:
    """Whether two shapes are known to be different: in their rank, or in two numbers of one axis."""
    if a is None or b is None:
        return False
    pairs = zip(a, b, strict=False)
    return len(a) != len(b) or any(isinstance(x, int) and isinstance(y, int) and x != y for x, y in pairs)


ValueType = TensorType | onnx.TypeProto
"""A tensor type, or the proto itself for sequences, optionals, maps and sparse tensors."""


def decode_type(proto: onnx.TypeProto) -> ValueType | None:
    """The type that a `TypeProto` states; None if it states none, or an unknown element type."""
    kind = proto.WhichOneof("value")
    if kind is None:
        return None
    if kind != "tensor_type":
        return read_only(proto)
    tensor = proto.tensor_type
    if tensor.elem_type not in KNOWN_TYPES:
        return None
    if not tensor.HasField("shape"):
        return TensorType(tensor.elem_type, None)
    return TensorType(tensor.elem_type, tuple(_decode_dim(d) for d in tensor.shape.dim))


def _decode_dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        return dim.dim_value if dim.dim_value >= 0 else None
    if kind != "dim_param":
        return None
    return as_text(dim.dim_param) or None


_LARGEST = (1 << 63) - 1


def encode_type(value_type: ValueType) -> onnx.TypeProto:
    """The `TypeProto` of a type."""
    proto = onnx.TypeProto()
    if isinstance(value_type, onnx.TypeProto):
        proto.CopyFrom(unwrapped(value_type))
        return proto
    proto.tensor_type.elem_type = value_type.dtype
    if value_type.shape is not None:
        shape = proto.tensor_type.shape
        shape.SetInParent()
        for dim in value_type.shape:
            entry = shape.dim.add()
            if isinstance(dim, str):
                entry.dim_param = dim
            elif dim is not None and dim <= _LARGEST:  # no field can hold a larger size
                entry.dim_value = dim
    return proto


def without_sizes(kind: onnx.TypeProto) -> onnx.TypeProto:
    """The type without the shape of the tensor, or of those in the sequence or optional."""
    result = inner = encode_type(kind)
    while (field := inner.WhichOneof("value")) in ("optional_type", "sequence_type"):
        inner = getattr(inner, field).elem_type
    if field == "tensor_type":
        inner.tensor_type.ClearField("shape")
    return result
