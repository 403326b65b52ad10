"""Products with matrices of bytes for which the runtime has no kernel that multiplies floats."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graphopt.operators.builder import with_operand
from graphopt.rewrite import Decline, Level, Node, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST
from graphopt_passes.layout.weights_of_floats import check_growth

_BITS, _MIDDLE = 8, 128
_OF_BYTES = 4
"""The accuracy level from which on rows are quantized, for which there is a kernel."""


class ConvertMatmulOfBytes(OpRule):
    """Replace an 8-bit `MatMulNBits` whose rows are not quantized with `MatMul` by a float matrix.

    ONNX Runtime unpacks the matrix in each run: for 1024x1024, one thread took 2260 us for a row and 280 as `MatMul`,
    4.6 and 1.6 ms for 64 rows. The matrix takes four times the memory.
    """

    # No pattern: operands may be left out.
    ops = (f"{DOMAIN}::MatMulNBits",)
    level = Level.LAYOUT
    numerics = Numerics.ROUNDING
    opsets = f"7-{NEWEST}"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        x, stored = node.operand(0), node.operand(1)
        if node.attr("bits", 4) != _BITS:
            raise Decline
        if node.attr("accuracy_level", 0) >= _OF_BYTES or x.dtype != TensorProto.FLOAT:
            raise Decline("{} is not multiplied in float32", x.name)
        if node.input(4) is not None:
            raise Decline("the runtime rejects 8-bit weights with g_idx")
        rows, outputs, block = (int(node.attr(name, 0)) for name in ("K", "N", "block_size"))
        if min(rows, outputs, block) < 1:
            raise Decline("{} does not state the sizes of its matrix and blocks", node.result.name)
        check_growth(stored, rw)
        blocks = -(-rows // block)
        if stored.array().size != outputs * blocks * block:
            raise Decline("{} does not hold {} columns of whole blocks", stored.name, outputs)
        packed = stored.array().reshape(outputs, blocks, block)
        scales, zeros = (_of_blocks(node, at, packed.shape[:2]) for at in (2, 3))
        floats = ((packed.astype(np.float32) - zeros) * scales).reshape(outputs, -1)[:, :rows]
        product = rw.op("MatMul", x, rw.constant(np.ascontiguousarray(floats.T), like=stored))
        return rw.replace(node, [with_operand(rw, "Add", product, node.input(5))])


def _of_blocks(node: Node, at: int, shape: tuple[int, ...]) -> np.ndarray:
    """Scales or zero points with an axis for the numbers of a block."""
    array = node.array(at, np.full(shape, _MIDDLE))
    if array.size != shape[0] * shape[1]:
        raise Decline("{} does not have one number per block", node.operand(at).name)
    return array.astype(np.float32).reshape(*shape, 1)
