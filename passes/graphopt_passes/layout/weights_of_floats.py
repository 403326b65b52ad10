"""Weights that are stored in 8 bits or less and read as floats."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from math import prod
from weakref import WeakKeyDictionary

import numpy as np
from onnx import TensorProto

from graphopt.ir import FLOAT8_TYPES, Model
from graphopt.operators.quantizing import is_in_singles
from graphopt.rewrite import Decline, Level, Node, Numerics, OpRule, Outcome, Rewriter, Value
from graphopt_passes.fusion.contrib.int4 import FuseInt4IntoMatmul, taken_by_kernel
from graphopt_passes.fusion.contrib.limits import LIMITS, is_limit
from graphopt_passes.fusion.contrib.operands import DOMAIN, NEWEST_OF_BYTES
from graphopt_passes.fusion.contrib.parameters import BYTES, NARROW, WORDS, are_ordinary, dequantized, floats_of
from graphopt_passes.fusion.contrib.quantized import side_by_side
from graphopt_passes.fusion.contrib.word_products import ConvertWordMatmulToBytes, is_large

_LARGEST = 2**28, 2**24
"""The most bytes of a weight as floats; the second applies if all weights up to the first exceed `_MOST`."""
_MOST = 2**30
"""The most bytes of all such weights of a model as floats, four times their size. If there are more, all stay."""
_STORED = {"DequantizeLinear": 0, f"{DOMAIN}::DequantizeLinear": 0, f"{DOMAIN}::MatMulNBits": 1}
"""Operators that read integers as floats, and the position of the integers."""
_INTEGERS = frozenset(BYTES) | NARROW
_limits: WeakKeyDictionary[Model, int] = WeakKeyDictionary()
_FUSED = f"{DOMAIN}::FusedConv"
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose", _FUSED})
_PRODUCTS = _CONVOLUTIONS | {"Gemm", "MatMul", "com.microsoft::FusedGemm", "com.microsoft::FusedMatMul"}

_MOVING = frozenset(
    {"Concat", "Flatten", "Gather", "Identity", "MaxPool", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Transpose",
     "Unsqueeze"}
)  # fmt: skip
"""Operators that other rules move past quantization."""
_MOST_MOVES = 8


class FoldDequantizedWeights(OpRule):
    """Fold the `DequantizeLinear` of constant weights that products of floats would dequantize in every run.

    Dequantizing takes as long as the product, or longer, and kernels cannot pack weights that are not constant. This
    runs before the blocked layout, which reads constant weights. It leaves the weights of products whose other operand
    is dequantized, too: rules after the layout make integer products of these, of convolutions if their result is
    quantized and has no other reader. Matrices of 4 bits stay where `MatMulNBits` takes them. A `Transpose` between a
    weight and its products is folded with it.
    """

    # No pattern: all readers of the result count.
    ops = ("DequantizeLinear", f"{DOMAIN}::DequantizeLinear")
    level = Level.LAYOUT
    numerics = Numerics.ROUNDING
    """The kernels pack constant weights, and then sum the products of a single row in another order."""
    opsets = f"10-{NEWEST_OF_BYTES}"
    whatever_is_read = False
    """Whether weights of products of dequantized values are folded, too."""

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        stored = node.operand(0)
        if not stored.is_const:
            raise Decline
        for value in _read(node.result):
            _check_readers(value)
            if not self.whatever_is_read and any(_is_for_integers(user, value) for user in value.users):
                raise Decline("{} is multiplied by integers", value.name)
        products = [user for user in node.result.users if user.op in FuseInt4IntoMatmul.ops]
        if any(_fits(taken_by_kernel, product) for product in products):  # floats, 8 times as large, are hardly faster
            raise Decline("MatMulNBits can multiply by {}", stored.name)
        check_growth(stored, rw)
        return rw.replace(node, [rw.constant(_floats(node), like=stored)])


class FoldLeftDequantizedWeights(FoldDequantizedWeights):
    """Fold the `DequantizeLinear` of constant weights for which no kernel on integers was found.

    What is left by then are convolutions whose bias has another scale than their products, weights with several zero
    points, and transposed convolutions whose windows overlap.
    """

    level = Level.ALL
    whatever_is_read = True


def check_growth(stored: Value, rw: Rewriter) -> None:
    """Decline if constant integers, or all in a model that are read as floats, would be large as floats."""
    tensor, model = stored.constant_tensor, stored.graph.model
    if model not in _limits:
        _limits[model] = _limit(model)
    if tensor is None or 4 * prod(tensor.dims) > min(_limits[model], rw.options.max_folded_bytes):
        raise Decline("{} in float32, or all weights converted like it, would be large", stored.name)


def _limit(model: Model) -> int:
    """The largest limit for a weight at which all weights of a model up to it fit into `_MOST`; 0 if none does."""
    read = {node.operand(_STORED[node.op]) for node in model.nodes() if node.op in _STORED}
    kept = [each for each in read if each.is_const and each.dtype in _INTEGERS | FLOAT8_TYPES]
    sizes = [4 * prod(each.sizes()) for each in kept]
    return next((most for most in _LARGEST if sum(size for size in sizes if size <= most) <= _MOST), 0)


def _read(result: Value) -> list[Value]:
    """The values that products may read: the weight, and its transposed forms."""
    return [result, *(user.result for user in result.users if user.op == "Transpose")]


def _check_readers(value: Value) -> None:
    """Decline if a value has readers other than products of floats."""
    others = [user.op for user in value.users if user.op not in _PRODUCTS and user.op != "Transpose"]
    if others or not value.users:
        raise Decline("{} is read by {}", value.name, (*others, "nothing")[0])
    if value.output_count:
        raise Decline("{} is a graph output", value.name)


def _is_for_integers(user: Node, value: Value) -> bool:
    """Whether a product may become an integer product."""
    overlaps = user.op == "ConvTranspose" and not _fits(side_by_side, user, user.operand(1))
    if overlaps or user.op == _FUSED or (user.op in _CONVOLUTIONS and not _is_quantized(user.result)):
        return False  # no rule makes integer products of these
    of_words = user.op in ConvertWordMatmulToBytes.ops and is_large(value.shape or (), int(user.attr("transB", 0)))
    kinds = WORDS.union(BYTES) if of_words else BYTES
    return any(_comes_of_integers(operand, kinds) for operand in user.operands if operand is not value)


def _fits(check: Callable[..., object], *operands: Node | Value) -> bool:
    with suppress(Decline):
        return bool(check(*operands))
    return False


def _is_quantized(value: Value) -> bool:
    """Whether a value, possibly moved or limited, is read by one quantize operator alone."""
    for _ in range(_MOST_MOVES):
        if not value.one_use or value.output_count:
            return False
        reader = next(iter(value.users))
        if reader.op in ("QuantizeLinear", f"{DOMAIN}::QuantizeLinear"):
            return True
        if (reader.op not in _MOVING and not is_limit(reader)) or len(reader.outputs) > 1:
            return False
        value = reader.result
    return True


def _floats(node: Node) -> np.ndarray:
    """The floats that a constant stands for, computed as the kernel does."""
    stored, scale, size = node.operand(0), node.operand(1), int(node.attr("block_size", 0))
    small = stored.dtype in FLOAT8_TYPES
    if not small and not size:
        return floats_of(dequantized(node.result))
    if stored.dtype not in _INTEGERS | FLOAT8_TYPES or scale.dtype != TensorProto.FLOAT or not is_in_singles(node):
        raise Decline("{} is not quantized to 8 bits or fewer with float32 scales", stored.name)
    array, scales = stored.array().astype(np.float32), scale.array()
    zeros = node.array(2, np.zeros(scales.shape)).astype(np.float32)
    if small and zeros.any():
        raise Decline("zero point {} is not 0, as the kernel requires", node.operand(2).name)
    if not are_ordinary(np.abs(scales)):
        raise Decline("a scale of {} is zero, not finite, too small or too large", stored.name)
    if not size and scales.size == 1:
        return np.asarray(array * scales.reshape(()), np.float32)
    axis = stored.axis(int(node.attr("axis", 1)))
    length, parts = array.shape[axis], list(array.shape)
    parts[axis] = -(-length // size) if size else length
    if scales.shape != tuple(parts if size else (length,)) or zeros.shape != scales.shape:
        raise Decline("the scale and zero point of {} have different shapes", stored.name)
    if size:
        wide = [np.repeat(each, size, axis=axis).take(range(length), axis) for each in (scales, zeros)]
    else:
        wide = [each.reshape(-1, *(1,) * (array.ndim - 1 - axis)) for each in (scales, zeros)]
    return np.asarray((array - wide[1]) * wide[0], np.float32)


def _comes_of_integers(value: Value, kinds: Collection[int]) -> bool:
    """Whether a computed value is dequantized from `kinds` and possibly moved, as integer products need it."""
    for _ in range(_MOST_MOVES):
        maker = value.producer
        if maker is None:
            return False
        if maker.op in FoldDequantizedWeights.ops:
            stored = maker.operand(0)
            return not stored.is_const and stored.dtype in (None, *kinds)
        if maker.op not in _MOVING and maker.op not in LIMITS:
            return False
        value = maker.operand(0)
    return True
