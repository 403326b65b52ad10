"""Constant tensors: the location of their bytes, and access to them with as few copies as possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from graphopt.errors import ModelError, reason_of
from graphopt.ir.messages import copy_fields
from graphopt.ir.numpy_types import element_type
from graphopt.ir.seal import Sealed, shown, write
from graphopt.ir.slices import FileSlice
from graphopt.ir.types import KNOWN_TYPES, element_bits, tensor_nbytes

_CACHE_LIMIT = 1 << 16
"""Arrays up to this many bytes are cached after the first access; larger ones are viewed anew each time."""

_SHORT = 1 << 12
"""Up to this many bytes are compared directly, more by a digest."""

_SAMPLE = 64
"""Bytes at each of three offsets, which tell most tensors apart."""

_DIRECT: dict[int, np.dtype[Any]] = {
    TensorProto.FLOAT: np.dtype("<f4"), TensorProto.DOUBLE: np.dtype("<f8"), TensorProto.FLOAT16: np.dtype("<f2"),
    TensorProto.INT8: np.dtype("i1"), TensorProto.INT16: np.dtype("<i2"), TensorProto.INT32: np.dtype("<i4"),
    TensorProto.INT64: np.dtype("<i8"), TensorProto.UINT8: np.dtype("u1"), TensorProto.UINT16: np.dtype("<u2"),
    TensorProto.UINT32: np.dtype("<u4"), TensorProto.UINT64: np.dtype("<u8"), TensorProto.BOOL: np.dtype("?"),
    TensorProto.COMPLEX64: np.dtype("<c8"), TensorProto.COMPLEX128: np.dtype("<c16"),
}  # fmt: skip
"""Types whose raw bytes NumPy reads without conversion."""

_FROM_NUMPY = {dtype: code for code, dtype in _DIRECT.items()}

_BITS: dict[int, np.dtype[Any]] = {TensorProto.FLOAT: np.dtype("<u4"), TensorProto.DOUBLE: np.dtype("<u8")}
_MOST_ELEMENTS = 1 << 58
"""NumPy refuses larger shapes, even with a dimension of 0, for the largest element types."""
_CHUNK = 1 << 14
_EVERY = 256
"""For statistics of a tensor in a file that is too large to be read whole, one chunk in this many is read."""
_WHOLE_CHUNK = 1 << 19
"""Bytes of a chunk if all are scanned: as many as a cache holds, so that memory is read once."""


def _places(size: int, length: int) -> tuple[int, int, int]:
    return 0, (size - length) // 2, size - length


def _sampled(data: bytes | memoryview) -> bytes:
    """Bytes from the beginning, middle and end."""
    size = len(data)
    length = min(_SAMPLE, size)
    return b"".join([data[at : at + length] for at in _places(size, length)])


def _sampled_view(array: np.ndarray) -> bytes:
    """The same sample of a view, whose elements are stored in another order than they are written."""
    step, length = array.itemsize, min(_SAMPLE, array.nbytes)
    runs = [(at // step, at % step, -(-(at + length) // step)) for at in _places(array.nbytes, length)]
    return b"".join([array.flat[first:end].tobytes()[skip:][:length] for first, skip, end in runs])


class Tensor:
    """A constant: element type, dimensions and the location of its bytes.

    The bytes are in a `TensorProto`, in a slice of a file, or in a NumPy array. `array()` returns them
    as a NumPy array; nothing is read before it is called.

    Attributes:
        dtype: the element type.
        dims: the dimensions.
        source: the slice of a file with the bytes, if they are in one.
        is_opaque: whether only a reference to the bytes is available, which is written back unchanged.
    """

    __slots__ = (
        "_array", "_beside", "_figures", "_key", "_nbytes", "_proto", "_sample", "dims", "dtype", "is_opaque", "source",
    )  # fmt: skip

    def __init__(
        self, dtype: int, dims: tuple[int, ...], *, proto: TensorProto | None = None,
        source: FileSlice | None = None, array: np.ndarray | None = None, is_opaque: bool = False,
    ) -> None:  # fmt: skip
        if array is None and 0 in dims and math.prod([dim or 1 for dim in dims]) > _MOST_ELEMENTS:
            raise ModelError(f"tensor of dims {list(dims)}: no array has so large dims, not even without elements")
        self.is_opaque = is_opaque
        self.dtype = dtype
        self.dims = dims
        self.source = source
        self._proto = proto if array is None else None
        self._beside = None if array is None else proto
        """The proto with name, doc string and metadata, if the data is in an array."""
        self._array = array
        self._key: Hashable = None
        self._nbytes: int | None = None
        self._sample: bytes | None = None
        self._figures: dict[Hashable, Any] = {}
        write(self, "__class__", _SealedTensor)

    @classmethod
    def from_array(cls, array: np.ndarray, dtype: int | None = None) -> Tensor:
        """A tensor that holds `array`; `dtype` is the ONNX type if NumPy's type does not determine it.

        Raises:
            ModelError: the array's type has no ONNX counterpart.
        """
        array = np.asarray(array)
        if array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        if dtype is None:
            dtype = _FROM_NUMPY.get(array.dtype)
        if dtype is None:
            if array.dtype.kind in "OUS":
                dtype = TensorProto.STRING
            else:
                try:
                    dtype = element_type(array.dtype)
                except (KeyError, ValueError) as error:
                    raise ModelError(f"no ONNX element type for NumPy's {array.dtype}") from error
        return cls(dtype, tuple(int(d) for d in array.shape), array=array)

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.dims)

    @property
    def is_known(self) -> bool:
        """Whether its contents are available, and of an element type that this version knows."""
        return self.dtype in KNOWN_TYPES and not self.is_opaque

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes, as stored; for strings the sum of their lengths."""
        size = self._nbytes
        if size is None:
            size = self._count_bytes()
            write(self, "_nbytes", size)
        return size

    def _count_bytes(self) -> int:
        size = tensor_nbytes(self.dtype, self.numel)
        if size is not None:
            return size
        if self.dtype == TensorProto.STRING:
            return sum(map(len, self._strings()))
        return self._proto.ByteSize() if self._proto is not None else 0

    def array(self) -> np.ndarray:
        """The contents, read-only. Narrow types are `ml_dtypes`, strings are objects: bytes if they are not UTF-8.

        Raises:
            ModelError: the data file is missing or short, or the type cannot be read.
        """
        if self._array is not None:
            return self._array
        array = self._read()
        if array.nbytes <= _CACHE_LIMIT:
            write(self, "_array", array)
        return array

    def copy(self) -> np.ndarray:
        """The contents as a writable copy; see `array`."""
        direct, source = _DIRECT.get(self.dtype), self.source
        if direct is None or source is None or source.length != self.numel * direct.itemsize or not source.length:
            return self.array().copy()
        array = np.empty(self.dims, direct)
        source.read_into(array.reshape(-1).view(np.uint8))
        return array

    def _read(self) -> np.ndarray:
        direct = _DIRECT.get(self.dtype)
        if self.source is not None:
            raw = self.source.view()
            if direct is None:
                return _read_only(onnx.numpy_helper.to_array(self._stub(raw.tobytes())))
        elif direct is not None and self._proto is not None and self._proto.HasField("raw_data"):
            raw = np.frombuffer(self._proto.raw_data, np.uint8)
        else:
            assert self._proto is not None
            if self.is_opaque:
                raise ModelError(f"tensor {self._proto.name!r} is in a file beside the model, which was not read")
            if self._proto.data_location == TensorProto.EXTERNAL:
                raise ModelError(f"tensor {self._proto.name!r} has its data in a file: load the model from its path")
            if self.dtype == TensorProto.STRING:  # the library's own reader drops zeros at the end of a string
                strings = np.array([*map(text_of, self._proto.string_data), None], object)[:-1]
                if len(strings) != self.numel:
                    raise ModelError(f"tensor of dims {list(self.dims)} has {len(strings)} strings")
                return _read_only(strings.reshape(self.dims))
            try:
                return _read_only(onnx.numpy_helper.to_array(self._proto))
            except (ValueError, TypeError, KeyError) as error:
                raise ModelError(f"tensor {self._proto.name!r} cannot be read: {error}") from error
        if raw.nbytes != self.numel * direct.itemsize:
            expected = self.numel * direct.itemsize
            raise ModelError(f"tensor of dims {list(self.dims)} needs {expected} bytes, its data has {raw.nbytes}")
        return raw.view(direct).reshape(self.dims)

    def _strings(self) -> list[bytes]:
        """The elements of a tensor of strings, as bytes."""
        if self._proto is not None:
            return list(self._proto.string_data)
        return [s if isinstance(s, bytes) else str(s).encode() for s in self.array().ravel()]

    def _stub(self, raw: bytes) -> TensorProto:
        return TensorProto(data_type=self.dtype, dims=self.dims, raw_data=raw)

    def key(self) -> Hashable:
        """A key that is equal for tensors with the same type, dims and bytes."""
        if self._key is None:
            write(self, "_key", (self.dtype, self.dims, self._digest()))
        return self._key

    def _digest(self) -> bytes:
        if not self.is_known and self._proto is not None:
            places = b"".join(entry.SerializeToString() for entry in self._proto.external_data)
            return bytes(self.header("").SerializeToString() + places + self._proto.raw_data)
        if self.dtype == TensorProto.STRING:
            return b"".join(len(p).to_bytes(8, "little") + p for p in self._strings())
        raw = self._bytes() if self.numel else np.zeros(0, np.uint8)
        if raw.nbytes <= _SHORT:
            return raw.tobytes()
        import hashlib  # a large module, for the few models that have large equal tensors

        return hashlib.blake2b(raw.data, digest_size=20).digest()

    def sample(self) -> bytes:
        """Some bytes from the beginning, middle and end: tensors that differ there are not equal. Not for strings."""
        sample = self._sample
        if sample is None:
            sample = self._take_sample()
            write(self, "_sample", sample)
        return sample

    def begins_with(self, number: float) -> bool:
        """Whether its first element equals `number`; reads nothing if a sample of a large tensor is cached."""
        direct, sample = _DIRECT.get(self.dtype), self._sample
        if self._array is None and sample and direct is not None:
            return bool(np.frombuffer(sample, direct, 1).item() == number)
        array = self.array()
        return bool(array.size) and array.dtype != object and bool(array.item(0) == number)

    def glance(self, raw: bytes) -> None:
        """Cache facts from a copy of the raw data: a small array itself, else its sample and smallest magnitude.

        Args:
            raw: all bytes, as ONNX stores them, of the right number.
        """
        direct = _DIRECT.get(self.dtype)
        if direct is None:
            return
        if 0 < len(raw) <= _CACHE_LIMIT:
            write(self, "_array", np.frombuffer(raw, direct).reshape(self.dims))
            return
        write(self, "_sample", _sampled(raw))
        if raw and self.dtype in _BITS:
            self._figures["scanned", 1] = _smallest(_parts(np.frombuffer(raw, np.uint8)), _BITS[self.dtype])

    def _take_sample(self) -> bytes:
        if self.is_opaque:
            return b""
        if self.source is not None and self.dtype in _DIRECT:
            length = min(_SAMPLE, self.source.length)
            try:
                return b"".join(self.source.pieces(_places(self.source.length, length), length))
            except (OSError, ValueError) as error:
                raise ModelError(f"cannot read tensor data file {self.source.path}: {reason_of(error)}") from error
        array = self.array()
        return _sampled(self._bytes().data) if array.flags.c_contiguous else _sampled_view(array)

    def least(self, most_read: int | None = None) -> np.floating[Any] | None:
        """The smallest magnitude of its nonzero elements.

        Args:
            most_read: if a file holds more bytes than this, only a part of them is read.

        Returns:
            A number of its element type, infinity if all are zero or NaN; None if it is neither float nor double.
        """
        found = self._scanned(most_read)
        return None if found is None else found[0]

    def may_hold_zero(self, most_read: int | None = None) -> bool:
        """Whether an element is zero, or may be because not all were read; for `most_read` see `least`."""
        found = self._scanned(most_read)
        return found is None or found[1]

    def _scanned(self, most_read: int | None) -> tuple[np.floating[Any], bool] | None:
        """The smallest magnitude, and whether there may be zeros: weights are read once for both."""
        key = ("read", most_read)
        if key in self._figures:
            found: tuple[np.floating[Any], bool] = self._figures[key]
            return found
        if self.dtype not in _BITS or not self.numel:
            return None
        limit = most_read if self.source is not None else None
        every = 1 if limit is None or self.nbytes <= limit else _EVERY
        found = self._figures[key] = self.figure(("scanned", every), lambda: self._scan(every))
        return found

    def figure(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """A result computed from the contents, cached.

        Args:
            key: the key of the cached result.
            compute: computes the result, which must not be changed afterwards.
        """
        found = self._figures.get(key)
        if found is None:
            found = self._figures[key] = compute()
        return found

    def _scan(self, every: int) -> tuple[np.floating[Any], bool]:
        source, bits = self.source, _BITS[self.dtype]
        if source is not None and source.length == self.numel * bits.itemsize:
            found = _smallest(source.chunks(_WHOLE_CHUNK if every == 1 else _CHUNK * bits.itemsize, every), bits)
        else:
            found = _smallest(_parts(self.array().ravel("K").view(np.uint8)), bits)  # a view in its own order
        return found[0], found[1] or every > 1

    def _bytes(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The contents as bytes in row-major order."""
        array = self.array()
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
            if self._array is not None and 0 not in self._array.strides:  # saving needs this order anyway
                write(self, "_array", _read_only(array))
        return array.reshape(-1).view(np.uint8)

    def fill(self, proto: TensorProto, name: str | None = None) -> None:
        """Write this tensor into an empty `proto`, data inline.

        Args:
            proto: the target.
            name: the new name; that of the source proto if None.
        """
        if self._proto is not None:
            proto.CopyFrom(self._proto)
            if self.source is not None:
                proto.ClearField("data_location")
                proto.ClearField("external_data")
                proto.raw_data = self.source.view().tobytes()
        else:
            self._fill_from_array(proto)
        if name is not None:
            proto.name = name

    def _fill_from_array(self, proto: TensorProto) -> None:
        assert self._array is not None
        proto.CopyFrom(self.header())
        direct = _DIRECT.get(self.dtype)
        if direct is not None and self._array.dtype == direct:
            proto.raw_data = self._bytes().tobytes() if self._array.size else b""
        elif self.dtype == TensorProto.STRING:
            proto.string_data.extend(self._strings())
        else:
            proto.raw_data = pack(self._array, self.dtype)

    def hold(self) -> None:
        """Read the data from its file into memory."""
        if self.source is not None:
            proto = TensorProto()
            self.fill(proto)
            write(self, "_proto", proto)
            write(self, "source", None)

    def header(self, name: str | None = None) -> TensorProto:
        """The proto without its data: name, type, dims, doc string and metadata."""
        proto = TensorProto()
        stated = self._proto if self._proto is not None else self._beside
        if stated is None:
            proto.data_type = self.dtype
            proto.dims.extend(self.dims)
        else:
            copy_fields(stated, proto, _DATA_FIELDS)
        if name is not None:
            proto.name = name
        return proto

    def raw(self) -> bytes | memoryview | FileSlice:
        """The data as ONNX stores it, without a copy if possible.

        Raises:
            ModelError: the tensor holds strings, which have no raw form.
        """
        if self.source is not None:
            return self.source
        if self._proto is not None and self._proto.HasField("raw_data"):
            return self._proto.raw_data
        if element_bits(self.dtype) is None:
            raise ModelError(f"tensor of element type {self.dtype} has no raw form")
        direct = _DIRECT.get(self.dtype)
        array = self.array()
        if direct is not None and array.dtype == direct:
            return self._bytes().data
        return pack(array, self.dtype)

    @property
    def original(self) -> TensorProto | None:
        """The proto that this tensor was read from, with or without data; read-only."""
        return None if self._proto is None else shown(self._proto)

    def came_as(self, proto: TensorProto) -> bool:
        """Whether it was read from `proto`. Protobuf may return a second wrapper of a message, so names count, too."""
        stated = self._proto if self._proto is not None else self._beside
        return stated is not None and (stated is proto or stated.name == proto.name)

    def scalar(self) -> Any:
        """The only element as a Python number, or None unless there is exactly one."""
        return self.array().reshape(-1)[0].item() if self.numel == 1 else None

    def __repr__(self) -> str:
        return f"Tensor(dtype={self.dtype}, dims={list(self.dims)})"


class _SealedTensor(Sealed, Tensor):
    __slots__ = ()


_DATA_FIELDS = frozenset(
    f.name for f in TensorProto.DESCRIPTOR.fields if f.name.endswith("_data") and f.name != "external_data"
) | {"external_data", "data_location"}


def text_of(data: bytes) -> str | bytes:
    """A string of a model; bytes that are not UTF-8 stay bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def pack(array: np.ndarray, dtype: int) -> bytes:
    """Raw bytes of an array of a type that NumPy itself does not have (bfloat16, float8, int4 and others)."""
    bits = element_bits(dtype)
    if bits is None:
        raise ModelError(f"element type {dtype} has no raw form")
    if bits >= 8:
        return array.tobytes()
    per_byte = 8 // bits
    flat: np.ndarray = array.astype(np.int8).astype(np.uint8) if array.dtype.kind != "V" else array.view(np.uint8)
    if array.dtype.name.startswith("float4"):
        flat = array.view(np.uint8)
    flat = flat.reshape(-1) & ((1 << bits) - 1)
    flat = np.concatenate([flat, np.zeros(-flat.size % per_byte, np.uint8)]).reshape(-1, per_byte)
    shifts = np.arange(per_byte, dtype=np.uint8) * bits
    return bytes(np.bitwise_or.reduce(flat << shifts, axis=1).astype(np.uint8).tobytes())


def _parts(raw: np.ndarray[Any, np.dtype[np.uint8]]) -> Iterator[np.ndarray[Any, np.dtype[np.uint8]]]:
    """Bytes in chunks that fit into a cache."""
    for start in range(0, raw.size, _WHOLE_CHUNK):
        yield raw[start : start + _WHOLE_CHUNK]


def _smallest(
    parts: Iterable[np.ndarray[Any, np.dtype[np.uint8]]], bits: np.dtype[Any]
) -> tuple[np.floating[Any], bool]:  # fmt: skip
    """The smallest magnitude of nonzero floats, infinity if there is none, and whether any float is zero.

    Bits are compared as integers (the sign is the highest bit), so that no processor mode, such as flushing denormals,
    matters. As signed integers, negative floats come first, in ascending order of magnitude.

    Args:
        parts: chunks of their bytes.
        bits: the unsigned integer type of their size.
    """
    signed, floats, best = _forms(bits)
    sign, zero, reduce = 1 << (8 * bits.itemsize - 1), False, np.minimum.reduce
    for part in parts:
        numbers = part.view(bits)
        least = min(int(reduce(numbers)), int(reduce(numbers.view(signed))) + sign)
        if not least:
            zero = True
            numbers = numbers & bits.type(sign - 1)
            numbers -= bits.type(1)  # zeros become the largest integers
            least = int(reduce(numbers)) + 1
        best = min(best, least)
    return np.array([best], bits).view(floats)[0], zero


@lru_cache(maxsize=4)
def _forms(bits: np.dtype[Any]) -> tuple[np.dtype[Any], np.dtype[Any], int]:
    """The signed integer and float types of the size of an unsigned type, and the bits of infinity."""
    signed, floats = np.dtype(f"<i{bits.itemsize}"), np.dtype(f"<f{bits.itemsize}")
    return signed, floats, int(np.array(np.inf, floats).view(bits))


def _read_only(array: np.ndarray) -> np.ndarray:
    if array.flags.writeable:
        array.flags.writeable = False
    return array
