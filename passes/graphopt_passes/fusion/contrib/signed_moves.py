"""Operators that move signed bytes, or limit them, as they do unsigned ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from graphopt.operators import Bounds
from graphopt.rewrite import Node, Rewriter, Value
from graphopt_passes.elementwise import KEEPING
from graphopt_passes.fusion.contrib.parameters import other_bytes

_MOVING = KEEPING | {"MaxPool", "Pad", "Resize"}
_LIMITING = frozenset({"Clip", "Relu"})


def moves(value: Value, reader: Node) -> bool:
    """Whether a reader moves or limits signed bytes, its first operand, and has only constants as other operands."""
    if reader.op not in _MOVING | _LIMITING or reader.inputs[0] is not value:
        return False
    if reader.op == "Resize" and not _copies(reader):
        return False
    return all(other.is_const for other in reader.operands[1:])


def _copies(resize: Node) -> bool:
    """Whether a `Resize` only copies elements of the image; others round sums, or fill in a number."""
    nearest: bool = resize.attr("mode", "nearest") == "nearest"
    whole: bool = resize.attr("coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize"
    return nearest and whole


def path_of(value: Value) -> list[Value]:
    """Signed bytes, and the values before each operator that moved or limited them, from the last to the first."""
    path = [value]
    while (producer := value.producer) is not None and producer.inputs and moves(producer.operand(0), producer):
        value = producer.operand(0)
        path.append(value)
    return path


def moved(reader: Node, new: Value, rw: Rewriter) -> Sequence[Value]:
    """The results of an operator that moves or limits signed bytes, for the unsigned bytes `new`."""
    op_type, inputs = reader.op_type, [new, *reader.inputs[1:]]
    if reader.op in _LIMITING:
        bounds = Bounds.of(reader, TensorProto.INT8)
        low, high = (np.array(min(max(bound, -128), 127), np.int8) for bound in (bounds.low, bounds.high))
        op_type, inputs = "Clip", [new, rw.constant(other_bytes(low)), rw.constant(other_bytes(high))]
    elif reader.op == "Pad" and (reader.input(2) or reader.attr("mode", "constant") == "constant"):
        fill = reader.array(2, np.zeros((), np.int8))  # other modes ignore it, but it has the type of the data
        inputs[2:3] = [rw.constant(other_bytes(fill), like=reader.input(2))]
    attrs = {} if reader.op in _LIMITING else reader.attrs
    return rw.outputs(len(reader.outputs), op_type, *inputs, **attrs)
