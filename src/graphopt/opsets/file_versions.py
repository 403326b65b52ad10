"""Versions of ONNX's file format (`ir_version`): the one that came with an opset, and the least that a model needs."""

from __future__ import annotations

from onnx import helper

from graphopt.ir import Model

_LEAST, _WITH_SPARSE, _WITH_TRAINING, _WITH_FUNCTIONS, _WITH_OVERLOADS = 4, 5, 7, 8, 10
"""The first that is written, and those that brought fields which older ones do not have."""


def ir_of(opset: int) -> int:
    """The IR version of the first release of the standard that has an opset."""
    return min(row[1] for row in helper.VERSION_TABLE if row[2] >= opset)


def least_ir(model: Model) -> int:
    """The first IR version that has all fields of the model that mean something."""
    proto = model.proto
    if any(function.overload for function in proto.functions):
        return _WITH_OVERLOADS
    if model.functions:
        return _WITH_FUNCTIONS
    if proto.training_info:
        return _WITH_TRAINING
    if any(value.is_sparse for graph in model.graphs() for value in graph.values.values()):
        return _WITH_SPARSE
    return _LEAST
