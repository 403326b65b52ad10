"""Protobuf messages: copies without some of the fields, and serialization of single fields."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
"""The wire types of protobuf that ONNX uses."""


def varint(number: int) -> bytes:
    """A number in protobuf's base-128 form."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def delimited(field: int, length: int) -> bytes:
    """The tag and length of a length-delimited field."""
    return varint(field << 3 | 2) + varint(length)


def copy_fields(source: Any, target: Any, skip: Collection[str] = ()) -> None:
    """Copy the fields of a message, including fields that this version of onnx does not know.

    Args:
        source: the message.
        target: an empty message of its type.
        skip: names of fields to leave out.
    """
    for field, value in source.ListFields():
        if field.name in skip:
            continue
        if field.is_repeated:
            getattr(target, field.name).extend(value)
        elif field.message_type is not None:
            getattr(target, field.name).CopyFrom(value)
        elif field.type == field.TYPE_STRING:
            copy_text(source, target, field.name)
        else:
            setattr(target, field.name, value)
    target.MergeFromString(b"".join(_unknown_fields(source)))


def as_text(stated: str | bytes) -> str:
    """A string of a message as text: protobuf returns bytes if it is not UTF-8; equal bytes give equal texts."""
    return stated if isinstance(stated, str) else stated.decode(errors="backslashreplace")


def copy_text(source: Any, target: Any, name: str) -> None:
    """Copy a string field of a message, if it is set, to another message of the same type.

    Args:
        source: the message to copy from.
        target: the message to copy to.
        name: the field, not repeated.
    """
    if not source.HasField(name):
        return
    value = getattr(source, name)
    if isinstance(value, bytes):  # not UTF-8: protobuf accepts it in serialized form only
        target.MergeFromString(delimited(source.DESCRIPTOR.fields_by_name[name].number, len(value)) + value)
    else:
        setattr(target, name, value)


def _unknown_fields(message: Any) -> Iterator[bytes]:
    fields: Any = UnknownFieldSet(message)
    for field in fields:
        if field.wire_type == _DELIMITED:
            yield delimited(field.field_number, len(field.data)) + field.data
            continue
        yield varint(field.field_number << 3 | field.wire_type)
        if field.wire_type == _VARINT:
            yield varint(field.data)
        elif field.wire_type in (_FIXED64, _FIXED32):
            yield field.data.to_bytes(8 if field.wire_type == _FIXED64 else 4, "little")
