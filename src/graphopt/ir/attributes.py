"""Conversion of attributes between protos and Python values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto

from graphopt.errors import PassError
from graphopt.ir.seal import read_only, unwrapped
from graphopt.ir.tensor import Tensor, text_of

_A = AttributeProto

GRAPH_KINDS = (_A.GRAPH, _A.GRAPHS)
"""The kinds of attributes that hold graphs."""


def decode_attribute(proto: AttributeProto) -> Any:
    """The Python value of an attribute.

    An integer, float, string, `Tensor` or tuple of these; a graph or any rarer kind stays a proto, read-only.
    Strings that are not UTF-8 stay bytes.
    """
    proto = unwrapped(proto)  # a view over a wrapper is no message, and could not be written
    kind = proto.type
    if proto.ref_attr_name:
        return read_only(proto)
    if kind == _A.INT:
        return proto.i
    if kind == _A.INTS:
        return tuple(proto.ints)
    if kind == _A.FLOAT:
        return proto.f
    if kind == _A.STRING:
        return text_of(proto.s)
    if kind == _A.FLOATS:
        return tuple(proto.floats)
    if kind == _A.STRINGS:
        return tuple(text_of(s) for s in proto.strings)
    if kind == _A.TENSOR:
        opaque = proto.t.data_location == onnx.TensorProto.EXTERNAL
        return Tensor(proto.t.data_type, tuple(proto.t.dims), proto=proto.t, is_opaque=opaque)
    return read_only(proto)


def encode_attribute(name: str, value: Any, kind: int | None = None) -> AttributeProto:
    """The proto of an attribute.

    Args:
        name: attribute name.
        value: a result of `decode_attribute`, a NumPy array for a tensor, or an `AttributeProto` to copy.
        kind: the type in the operator's schema; distinguishes an empty list of ints from one of floats.

    Raises:
        PassError: no attribute can hold the value.
    """
    if isinstance(value, AttributeProto):
        proto = AttributeProto()
        proto.CopyFrom(unwrapped(value))
        proto.name = name
        return proto
    proto = AttributeProto(name=name)
    if isinstance(value, np.ndarray):
        value = Tensor.from_array(value)
    if isinstance(value, Tensor):
        proto.type = _A.TENSOR
        value.fill(proto.t)
    elif isinstance(value, onnx.GraphProto):
        proto.type = _A.GRAPH
        proto.g.CopyFrom(unwrapped(value))
    elif isinstance(value, (bool, int, np.integer)) and kind != _A.FLOAT:
        proto.type, proto.i = _A.INT, int(value)
    elif isinstance(value, (float, int, np.floating)):
        proto.type, proto.f = _A.FLOAT, float(value)
    elif isinstance(value, (str, bytes)):
        proto.type, proto.s = _A.STRING, value.encode() if isinstance(value, str) else value
    elif isinstance(value, (list, tuple)):
        _encode_list(proto, value, kind)
    else:
        raise PassError(f"attribute {name!r} cannot hold a {type(value).__name__}")
    return proto


_INTEGERS = {int}
_MAY_BE_INTS = (None, _A.INTS)


def _encode_list(proto: AttributeProto, values: list[Any] | tuple[Any, ...], kind: int | None) -> None:
    types = {*map(type, values)}
    if types == _INTEGERS and kind in _MAY_BE_INTS:
        proto.type = _A.INTS
        proto.ints.extend(values)
    elif all(isinstance(v, (int, np.integer)) for v in values) and kind in _MAY_BE_INTS:
        proto.type = _A.INTS
        proto.ints.extend(int(v) for v in values)
    elif (values and all(isinstance(v, (str, bytes)) for v in values)) or kind == _A.STRINGS:
        proto.type = _A.STRINGS
        proto.strings.extend(v.encode() if isinstance(v, str) else v for v in values)
    elif all(isinstance(v, (int, float, np.number)) for v in values):
        proto.type = _A.FLOATS
        proto.floats.extend(float(v) for v in values)
    else:
        raise PassError(f"attribute {proto.name!r} cannot hold a list of {type(values[0]).__name__}")
