"""Products with 4-bit matrices in forms without a kernel, which ONNX Runtime unpacks in each run."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto

from graphopt.rewrite import Decline, Level, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST

_BITS, _MIDDLE = 4, 8
"""The bits of integers that have kernels, and their default zero point."""
_FARTHEST = 16
"""How far a zero point may be from the middle: if it were much farther, the two summands would cancel."""


class _OnBlocks(OpRule):
    """A rule on `MatMulNBits` with 4-bit integers in whole blocks."""

    ops = (f"{DOMAIN}::MatMulNBits",)
    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = f"7-{NEWEST}"


class ConvertGroupsToBlocks(_OnBlocks):
    """Sort the rows of a `MatMulNBits` by group, so that each group is a block, and remove the group index.

    With an index of groups ONNX Runtime unpacks the whole matrix in each run: for 1024x1024, one thread took 1680 us
    for a row and 165 without it. If rows are not sorted by group, as written by GPTQ that sorts by activations, the
    other operand is permuted to match. The numbers stay floats: an accuracy level that would quantize them, which has
    no effect with an index, is removed with it.
    """

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        index, zeros = node.input(4), node.input(3)
        if index is None:
            raise Decline
        if zeros is not None and zeros.dtype not in (TensorProto.FLOAT, TensorProto.FLOAT16):
            raise Decline("the runtime reads the 4-bit zero points {} differently if g_idx is given", zeros.name)
        sizes = _sizes(node)
        order = _order(index, sizes["K"], sizes["block_size"])
        x, weight, *others = node.inputs
        if (np.diff(order) != 1).any():
            x, weight = _ordered(node, order, rw)
        inputs = x, weight, *others[:2], None, node.input(5)
        return rw.replace(node, [rw.op("MatMulNBits", *inputs, domain=DOMAIN, **sizes)])


class ConvertFractionalZerosToSums(_OnBlocks):
    """Replace float zero points of a `MatMulNBits` with a product of the sums of blocks that is added to its result.

    `x * s * (q - z)` is `x * s * (q - 8) + x * s * (8 - z)`, with `s * (8 - z)` constant in a block. With such zero
    points, as HQQ finds them, ONNX Runtime unpacks the whole matrix in each run: for 1024x1024, one thread took 1770 us
    for a row and 150 in this form, 3.6 and 1.8 ms for 64 rows.
    """

    finite = True

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        zeros = node.input(3)
        if zeros is None or zeros.dtype != TensorProto.FLOAT or node.input(4) is not None:
            raise Decline
        sizes, x, scales = _sizes(node), node.operand(0), node.operand(2)
        outputs, blocks = sizes["N"], sizes["K"] // sizes["block_size"]
        if x.dtype != TensorProto.FLOAT or not x.rank:
            raise Decline("{} is not known to be float32 of rank 1 or more", x.name)
        if {zeros.array().size, scales.array().size} != {outputs * blocks}:
            raise Decline("{} and {} do not have one number per block", zeros.name, scales.name)
        distances = _MIDDLE - zeros.array().astype(np.float64)
        if not (np.abs(distances) <= _FARTHEST).all():
            raise Decline("{} is far from the middle of the 4-bit range", zeros.name)
        scales.check_finite()
        scaled = (scales.array().astype(np.float64).reshape(-1) * distances.reshape(-1)).astype(np.float32)
        each = rw.constant(np.ascontiguousarray(scaled.reshape(outputs, blocks).T), like=zeros)
        shape = np.array([*[0] * (x.rank - 1), blocks, sizes["block_size"]])
        sums = rw.op("ReduceSum", rw.op("Reshape", x, shape), axes=(-1,), keepdims=0)
        product = rw.op("MatMulNBits", x, *node.inputs[1:3], None, None, node.input(5), domain=DOMAIN, **sizes)
        return rw.replace(node, [rw.op("Add", product, rw.op("MatMul", sums, each))])


def _sizes(node: Node) -> dict[str, Any]:
    """The attributes of the product without its accuracy level; declines if a block is not whole."""
    names = ("K", "N", "bits", "block_size")
    sizes = {name: int(node.attr(name, _BITS if name == "bits" else 0)) for name in names}
    if sizes["bits"] != _BITS or sizes["block_size"] < 1 or sizes["K"] % sizes["block_size"]:
        raise Decline("{} is not a product with whole blocks of 4-bit integers", node.result.name)
    packed = node.operand(1)
    if prod(packed.sizes()) * 8 != sizes["N"] * sizes["K"] * _BITS:
        raise Decline("{} does not have the size that N and K state", packed.name)
    return sizes


def _order(index: Value, rows: int, block: int) -> np.ndarray:
    """The rows sorted by group; declines unless each group has as many rows as a block."""
    groups = index.array().reshape(-1)[:rows]
    if len(groups) != rows or not np.array_equal(np.sort(groups), np.arange(rows) // block):
        raise Decline("the groups of {} do not have the block size", index.name)
    return np.argsort(groups, kind="stable")


def _ordered(node: Node, order: np.ndarray, rw: Rewriter) -> tuple[Value, Value]:
    """Both operands with the rows of the matrix in another order."""
    x, weight = node.operand(0), node.operand(1)
    packed = weight.array()
    if weight.uses > 1 or not x.rank:
        raise Decline("{} has other readers, or the rank of {} is not known", weight.name, x.name)
    if packed.ndim != 3 or not packed.size or packed.size * 2 != len(packed) * len(order):
        raise Decline("{} is not packed in blocks of whole bytes", weight.name)
    wide = np.stack([packed & 15, packed >> _BITS], axis=-1).reshape(len(packed), -1)
    pairs = wide[:, order].reshape(*packed.shape, 2)
    moved = rw.constant(pairs[..., 0] | pairs[..., 1] << _BITS, like=weight)
    return rw.op("Gather", x, order, axis=-1), moved
