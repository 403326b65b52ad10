"""Lookups in constant tables of quantized integers."""

from __future__ import annotations

from contextlib import suppress
from math import gcd, prod
from typing import Any

import numpy as np
from onnx import TensorProto

from graphopt.operators.quantizing import is_in_singles
from graphopt.rewrite import Decline, Node, Outcome, Rewriter, Value
from graphopt_passes.fusion.contrib.int4 import pairs
from graphopt_passes.fusion.contrib.operands import DOMAIN, ONE, OnIntegers, in_runtime
from graphopt_passes.fusion.contrib.parameters import NARROW, dequantized, quantized

_TAKEN = (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16, TensorProto.INT32)
"""Integer types that `Gather` takes."""
_BLOCKS_SINCE = 21
_LARGEST_BLOCK, _SMALLEST_BLOCK = 256, 16
_WIDENED = 2**24
"""The most elements of a table of less than 8 bits that is widened to bytes."""


class MoveGatherBeforeDequantize(OnIntegers):
    """Move a `Gather` from a constant table before `DequantizeLinear`, so that only its result is dequantized.

    Embeddings are stored like this. Scales and zero points that vary along the gathered axis are gathered as well. Rows
    of 4 bits are looked up by `GatherBlockQuantized`, which gives zeros for a position out of range, where `Gather`
    fails; other integers of less than 8 bits become bytes.
    """

    # No pattern: the parameters have several forms.
    ops = ("Gather",)
    sources = ("DequantizeLinear",)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        value = node.operand(0)
        dequantize = value.source("DequantizeLinear", reader=node)
        stored, *parameters = dequantize.operands
        if not stored.is_const:
            raise Decline
        _check_pays(node, value)
        if stored.dtype in NARROW and len(stored.users) > 1:
            raise Decline("{} has other readers, so that it would be stored twice", stored.name)
        with suppress(Decline):
            return rw.replace(node, [_by_kernel(node, dequantize, rw)])
        if stored.dtype in NARROW and prod(stored.sizes()) <= _WIDENED:
            zeros = [rw.constant(zero.array().astype(np.int8), like=zero) for zero in parameters[1:]]
            stored, parameters = rw.constant(stored.array().astype(np.int8), like=stored), [parameters[0], *zeros]
        if stored.dtype not in _TAKEN:
            raise Decline("Gather does not support the element type of {}", stored.name)
        attrs = _arrange(node, dequantize, parameters, rw)
        found = rw.again(node, stored, *node.inputs[1:])
        return rw.replace(node, [rw.op("DequantizeLinear", found, *parameters, **attrs)])


def _check_pays(node: Node, value: Value) -> None:
    """Decline unless the table need not be dequantized afterwards, and is larger than what is looked up."""
    if value.output_count or any(user.op != node.op or user.operand(1) is value for user in value.users):
        raise Decline("{} has readers that are not lookups", value.name)
    if any(_quantizes_alike(user, value) for user in node.result.users):
        raise Decline("{} is quantized again with the parameters of the table", node.result.name)
    sizes, found = value.sizes(), node.operand(1).dims()
    count = prod(size for size in found if isinstance(size, int))
    if 0 in sizes or 2 * count > sizes[value.axis(node.attr("axis", 0))]:
        raise Decline("{} lookups are too many for the size of {}", count, value.name)


def _quantizes_alike(user: Node, value: Value) -> bool:
    """Whether an operator quantizes a dequantized value as before, which is left to `FuseQdqIntoOp`."""
    with suppress(Decline):
        return user.op == "QuantizeLinear" and quantized(user).same_scale(dequantized(value))
    return False


def _arrange(node: Node, dequantize: Node, parameters: list[Value], rw: Rewriter) -> dict[str, Any]:
    """Replace the scales and zero points in `parameters` with those of the result. Returns the attributes for these."""
    sizes, attrs = dequantize.operand(0).sizes(), dict(dequantize.attrs)
    along, axis = int(node.attr("axis", 0)) % len(sizes), int(attrs.pop("axis", 1)) % len(sizes)
    if parameters[0].sizes() in ONE:
        return attrs
    blocks = attrs.get("block_size", 0)
    if axis == along and not blocks and len(sizes) == 2 and node.graph.opset() >= _BLOCKS_SINCE:
        axis = 1 - along
        blocks = attrs["block_size"] = sizes[axis]
        parameters[:] = [rw.constant(np.expand_dims(each.array(), axis), like=each) for each in parameters]
    if axis == along:
        raise Decline("the scales of {} vary along the gathered axis", dequantize.result.name)
    if blocks and not node.operand(1).dims():
        raise Decline(
            "the scale of one row of {} would be a scalar, as blocked quantization cannot have", dequantize.result.name
        )
    if blocks:
        parameters[:] = [rw.again(node, each, *node.inputs[1:]) for each in parameters]
    return {**attrs, "axis": axis if axis < along else axis + len(node.operand(1).dims()) - 1}


def _by_kernel(node: Node, dequantize: Node, rw: Rewriter) -> Value:
    """A lookup of rows of 4 bits by `GatherBlockQuantized`; declines if it does not take them."""
    stored, *parameters = dequantize.operands
    if stored.dtype not in (TensorProto.INT4, TensorProto.UINT4) or not in_runtime("GatherBlockQuantized"):
        raise Decline
    dims, shape, size = stored.sizes(), parameters[0].sizes(), int(dequantize.attr("block_size", 0))
    block = size or gcd(dims[-1], _LARGEST_BLOCK)
    along_rows = shape in ONE or dequantize.attr("axis", 1) % 2 == bool(size)
    fits = block >= _SMALLEST_BLOCK and not block & (block - 1) and dims[-1] % block == 0
    if len(dims) != 2 or node.attr("axis", 0) % 2 or not fits or not along_rows or not is_in_singles(dequantize):
        raise Decline
    if parameters[0].dtype != TensorProto.FLOAT or any(each.sizes() != shape for each in parameters):
        raise Decline
    sizes = dims[0], dims[1] // block
    if size and shape != sizes:
        raise Decline
    scale, *zeros = [np.broadcast_to(each.array().reshape(shape if size else (-1, 1)), sizes) for each in parameters]
    scales = parameters[0] if shape == sizes else rw.constant(np.ascontiguousarray(scale), like=parameters[0])
    return _packed(node, stored, scales, *zeros, rw=rw, block=block)


def _packed(node: Node, stored: Value, scales: Value, *zeros: np.ndarray, rw: Rewriter, block: int) -> Value:
    """`GatherBlockQuantized` of rows of 4-bit numbers, packed two per byte."""
    middle = 8 if stored.dtype == TensorProto.INT4 else 0
    unsigned = [array.astype(np.int16) + middle for array in (stored.array(), *zeros)]
    if not zeros and not middle:
        unsigned.append(np.zeros(scales.sizes(), np.int16))  # the default is 8
    packed, *middles = [rw.constant(pairs(array), like=stored, graph=stored.graph) for array in unsigned]
    attrs: dict[str, Any] = {"bits": 4, "block_size": block, "gather_axis": 0, "quantize_axis": 1}
    return rw.op("GatherBlockQuantized", packed, node.operand(1), scales, *middles, domain=DOMAIN, **attrs)


class ConvertInt4GatherToBytes(OnIntegers):
    """Store the 4-bit numbers that `GatherBlockQuantized` looks up as bytes with two of them each.

    ONNX Runtime unpacks its 4-bit types, which its quantizer writes for embeddings, one by one. For 128 rows of 2048,
    one thread of a Zen 5 took 672 us before and 82 after.
    """

    # No pattern: operands may be left out.
    ops = (f"{DOMAIN}::GatherBlockQuantized",)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        stored, scales, zeros = node.operand(0), node.operand(2), node.operands[3:]
        if stored.dtype not in (TensorProto.INT4, TensorProto.UINT4):
            raise Decline
        dims, (first, last) = stored.sizes(), (node.attr("gather_axis", 0), node.attr("quantize_axis", 1))
        if first not in (0, -2) or last not in (1, -1) or len(dims) != 2 or dims[1] % 2 or 0 in dims:
            raise Decline("{} is not looked up in rows of whole bytes", stored.name)
        if any(user.op != node.op for user in stored.users):
            raise Decline("{} has other readers, so that it would be stored twice", stored.name)
        block = int(node.attr("block_size", 128))
        arrays = [zero.array() for zero in zeros]
        return rw.replace(node, [_packed(node, stored, scales, *arrays, rw=rw, block=block)])
