"""Versions of ONNX's file format (`ir_version`): the one released with an opset, and the least that a model needs."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import helper

from graphopt.ir import Model
from graphopt.opsets.types import text

_LEAST, _WITH_ANNOTATIONS, _WITH_SPARSE, _WITH_TRAINING, _WITH_FUNCTIONS, _WITH_DEFAULTS, _WITH_OVERLOADS = (
    4, 5, 6, 7, 8, 9, 10,
)  # fmt: skip
"""The lowest version that is written, and the versions that introduced fields."""

_TYPES = {
    "optional(": 8, "float8e4m3": 9, "float8e5m2": 9, "int4": 10, "float4": 11, "float8e8m0": 12,
    "int2": 13, "float6": 14,
}  # fmt: skip
"""The versions that introduced types, by a part of the type's name."""


def ir_of(opset: int) -> int:
    """The IR version of the first release of the standard with an opset."""
    return min(row[1] for row in helper.VERSION_TABLE if row[2] >= opset)


def least_ir(model: Model) -> int:
    """The first IR version with all types and fields that the model uses."""
    return max(_needed(model), default=_LEAST)


def _needed(model: Model) -> Iterator[int]:
    proto = model.proto
    if model.functions:
        yield _WITH_FUNCTIONS
        yield from (_WITH_OVERLOADS for function in proto.functions if function.overload)
        yield from (_WITH_DEFAULTS for function in proto.functions if function.attribute_proto)
    if proto.training_info:
        yield _WITH_TRAINING
    if proto.graph.quantization_annotation:
        yield _WITH_ANNOTATIONS
    values = [value for graph in model.graphs() for value in graph.values.values()]
    yield from (_WITH_SPARSE for value in values if value.is_sparse)
    for name in {text(value.type) or "" for value in values}:
        yield from (version for part, version in _TYPES.items() if part in name)
