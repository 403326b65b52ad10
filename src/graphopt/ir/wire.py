"""A reader of protobuf's wire format that leaves large weights in the file.

A model file is read through a memory map. For every large initializer of the main graph, `raw_data` is cut out before
parsing, and the slice of the file with these bytes is recorded. The parser then sees a few hundred kilobytes instead
of the whole file.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from graphopt.ir.messages import delimited
from graphopt.ir.slices import FileSlice, stamp_of

_GRAPH, _INITIALIZER, _RAW_DATA, _DATA_LOCATION = 7, 5, 9, 14
"""Field numbers: ModelProto.graph, GraphProto.initializer, TensorProto.raw_data and .data_location."""

_LARGE = 1 << 14
"""Initializers below this many bytes stay in the proto: a view of the file would not be faster."""

Buffer = memoryview


def _read_varint(data: Buffer, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise ValueError("varint too long")


def _fields(data: Buffer, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields between two positions: number, and positions of the field, of its payload, and of its end."""
    while at < end:
        start = at
        key, at = _read_varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 2:
            length, at = _read_varint(data, at)
            body, at = at, at + length
        elif kind == 0:
            body = at
            _, at = _read_varint(data, at)
        elif kind == 1:
            body, at = at, at + 8
        elif kind == 5:
            body, at = at, at + 4
        else:
            raise ValueError(f"wire type {kind} is not supported")
        if at > end or number == 0:
            raise ValueError("field reaches past its message")
        yield number, start, body, at


def lift(path: Path) -> tuple[bytes, dict[int, FileSlice]] | None:
    """The bytes of a model file without its large weights, and the slices of these.

    Args:
        path: the file.

    Returns:
        The shortened serialized model, and for each shortened initializer of the main graph, by its index, the
        slice of the file with its data. None if the file is not laid out as expected: then it must be parsed whole.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        data = memoryview(mapped)
        try:
            graphs = [field for field in _fields(data, 0, len(data)) if field[0] == _GRAPH]
            if len(graphs) != 1:
                return None
            _, start, body, end = graphs[0]
            parts, slices = _shorten(data, body, end, path, stamp_of(file))
            head, tail = bytes(data[:start]), bytes(data[end:])
        except (ValueError, IndexError):
            return None
        finally:
            data.release()
    graph = b"".join(parts)
    return b"".join((head, delimited(_GRAPH, len(graph)), graph, tail)), slices


def _shorten(
    data: Buffer, at: int, end: int, path: Path, stamp: tuple[int, int]
) -> tuple[list[bytes], dict[int, FileSlice]]:
    parts: list[bytes] = []
    slices: dict[int, FileSlice] = {}
    kept_from = at
    count = 0
    for number, start, body, stop in _fields(data, at, end):
        if number != _INITIALIZER:
            continue
        if stop - body >= _LARGE:
            inside = list(_fields(data, body, stop))
            raw = [f for f in inside if f[0] == _RAW_DATA]
            # If data_location is EXTERNAL, the data is in another file, and raw_data has no meaning.
            elsewhere = any(f[0] == _DATA_LOCATION and _read_varint(data, f[2])[0] for f in inside)
            if len(raw) == 1 and not elsewhere and raw[0][3] - raw[0][2] >= _LARGE:
                _, raw_start, raw_body, raw_stop = raw[0]
                tensor = bytes(data[body:raw_start]) + bytes(data[raw_stop:stop])
                parts += (bytes(data[kept_from:start]), delimited(_INITIALIZER, len(tensor)), tensor)
                slices[count] = FileSlice(path, raw_body, raw_stop - raw_body, stamp)
                kept_from = stop
        count += 1
    parts.append(bytes(data[kept_from:end]))
    return parts, slices
