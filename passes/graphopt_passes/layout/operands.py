"""Which operand of a matrix product is the constant one: a constant right operand is packed at session start."""

from __future__ import annotations

from math import prod
from typing import ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.ir import Node, Value
from graphopt.match import Mismatch
from graphopt.rewrite import Level, Numerics, OpRule, Outcome, Rewriter

_SMALLEST = 1 << 14
"""Weights of fewer elements are packed in no time."""

_MOST_ROWS = 16
"""The result is transposed, which is next to nothing for so few rows."""


_FARTHEST = 12
"""Operators between an image and the row made of it that are looked through."""

_FLATTENING = frozenset({"Flatten", "Reshape", "Squeeze", "ReduceMean"})
_ROW_BY_ROW = frozenset({
    "Gemm", "Transpose", "Relu", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Dropout",
})  # fmt: skip


class SwapGemmOperands(OpRule):
    """Make the weight of a classifier the left operand of its `Gemm`: `x W + b` becomes the transpose of `W' x' + b'`.

    ONNX Runtime copies a constant right operand into packed form at every session start, and a left one never; for
    small networks the classifier's weight is most of what is packed. The product takes as long either way. Only for few
    rows, or a row per image of a dynamic batch: the result is transposed, and no wide one should be.
    """

    name = "swap_gemm_operands"
    ops = ("Gemm",)
    level = Level.LAYOUT
    numerics = Numerics.ROUNDING
    opsets = "7-"
    peers: ClassVar[dict[str, str]] = {}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Replace one product."""
        x, weight, bias = node.input(0), node.input(1), node.input(2)
        if x is None or weight is None or x.is_const:
            return None
        problem = _problem(node, x, weight)
        if problem is not None:
            return problem
        matrix = weight.const()
        assert matrix is not None
        left = weight if node.attr("transB", 0) else rw.constant(np.ascontiguousarray(matrix.T), like=weight)
        operands = [left, x]
        if bias is not None:
            column = bias.const()
            if column is None or column.ndim > 1:
                return Mismatch("what is added, {}, is not a constant row", bias.name)
            operands.append(rw.constant(column.reshape(-1, 1), like=bias))
        alpha, beta = node.attrs.get("alpha"), node.attrs.get("beta")
        product = rw.op("Gemm", *operands, transB=1, alpha=alpha, beta=beta)
        return rw.replace(node, [rw.op("Transpose", product, perm=(1, 0))])


def _problem(node: Node, x: Value, weight: Value) -> Mismatch | None:
    """Why the operands stay where they are."""
    tensor = weight.constant_tensor
    if tensor is None or len(tensor.dims) != 2 or tensor.dtype != TensorProto.FLOAT:
        return Mismatch("{} is not a constant matrix of float32", weight.name)
    if node.attr("transA", 0):
        return Mismatch("{} is transposed", x.name)
    rows = x.shape[0] if x.shape is not None and len(x.shape) == 2 else None
    if isinstance(rows, int) and rows > _MOST_ROWS:
        return Mismatch("{} has {} rows", x.name, rows)
    if not isinstance(rows, int) and not _row_per_image(x):
        return Mismatch("{} may have many rows", x.name)
    if not weight.one_use:
        return Mismatch("{} has other readers", weight.name)
    return Mismatch("{} is small", weight.name) if tensor.numel < _SMALLEST else None


def _row_per_image(x: Value) -> bool:
    """Whether there are as many rows as images in a batch, since each was flattened from one."""
    rows = x.shape[0] if x.shape is not None and len(x.shape) == 2 else None
    value: Value | None = x
    for _ in range(_FARTHEST):
        producer = value.producer if value is not None else None
        if producer is None or rows is None:
            return False
        if producer.op in _FLATTENING:
            return _flattens(producer, rows)
        if producer.op not in _ROW_BY_ROW:
            return False
        value = next((v for v in producer.inputs if v is not None and not v.is_const), None)
    return False


def _flattens(node: Node, rows: object) -> bool:
    """Whether a node makes one row of each image, and as many as `rows`."""
    source, out = node.inputs[0], node.outputs[0]
    shape = (source.shape if source is not None else None) or ()
    made = (out.shape if out is not None else None) or ()
    if len(shape) != 4 or len(made) != 2:
        return False
    # Exporters name the batch behind a Reshape to (-1, features) anew, but rows as long as images are as many.
    sizes = [dim for dim in shape[1:] if isinstance(dim, int) and dim > 0]
    whole = len(sizes) == 3 and made == (rows, prod(sizes))
    return shape[0] == rows or (node.op == "Reshape" and whole)
