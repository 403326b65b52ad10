"""Quantized values as unsigned bytes, for which x86 has the faster kernels."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from onnx import TensorProto

from graphopt.rewrite import Decline, Node, Numerics, Outcome, Rewriter, Value
from graphopt_passes.fusion.contrib.limits import LIMITS, reads_bytes
from graphopt_passes.fusion.contrib.operands import OnIntegers
from graphopt_passes.fusion.contrib.parameters import other_bytes
from graphopt_passes.fusion.contrib.signed_moves import moved, moves, path_of

_SHARED = ("Add", "Mul", "Concat", "Gather")
"""Operators whose constants have the type of their other operand; products take signed weights with either type."""
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_MATRICES = ("Gemm", "MatMul")
"""Products whose results may be floats."""
_BEHIND = (*LIMITS, "GatherND", "Slice", "Transpose")
"""Operators that a model may have between a product of bytes and the `QuantizeLinear` of its result."""


class ConvertInt8ToUint8(OnIntegers):
    """Quantize to unsigned bytes instead of signed ones, by moving the zero point by 128.

    For values between `QuantizeLinear` and `DequantizeLinear`, moved in between or not, and for constants that are
    dequantized for an `Add`, `Mul`, `Concat` or `Gather`. The floats stay the same. On x86, where the kernels for
    signed activations are slow. If others, such as a caller, read the signed bytes of a product, these are computed
    from the unsigned ones, and if a product reads signed bytes of others, unsigned ones are computed from these: both
    exactly. A `Concat` of signed bytes, as converters from TFLite write it, becomes one of unsigned bytes between two
    such conversions, which vanish where the operators around it are converted. Where results must be exact nothing is
    converted: no rule then makes kernels on bytes of the operators between.
    """

    # No pattern: all readers of a value change with it, and there may be any number.
    ops = ("QuantizeLinear", "DequantizeLinear", "Concat")
    numerics = Numerics.ROUNDING
    needs = (("QuantizeLinear", "DequantizeLinear"),)
    peers = {"onnxruntime": "QDQS8ToU8Transformer"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        if node.op == "Concat":
            return _joined(node, rw)
        reads = node.op == "DequantizeLinear"
        value = node.operand(0) if reads else node.result
        zero = _zero_point(node)
        if not rw.target.is_x86:
            raise Decline("the target is not x86 and has kernels for int8")
        if zero.size != 1 or node.attr("block_size", 0):
            raise Decline("{} is not quantized per tensor", value.name)
        if not reads:
            return _computed(node, value, zero, rw)
        return _constant(node, value, zero, rw) if value.is_const else _given(node, value, zero, rw)


def _constant(node: Node, value: Value, zero: np.ndarray, rw: Rewriter) -> Outcome:
    users = node.result.users
    if not users or any(user.op not in _SHARED for user in users):
        raise Decline
    if any(_is_signed(other) for user in users for other in user.operands):
        raise Decline("another operand of the readers of {} is signed", value.name)
    moved = rw.constant(other_bytes(value.array()), like=value)
    inputs = (moved, node.inputs[1], rw.constant(other_bytes(zero), like=node.input(2)))
    return rw.replace(node, [rw.again(node, *inputs)])


def _is_signed(value: Value) -> bool:
    """Whether a value is dequantized from signed bytes that are computed or given."""
    source = value.made_by("DequantizeLinear")
    return source is not None and source.operand(0).dtype == TensorProto.INT8 and not source.operand(0).is_const


def _given(node: Node, value: Value, zero: np.ndarray, rw: Rewriter) -> Outcome:
    """A `DequantizeLinear` of signed bytes that are not quantized here, such as a caller's, for a product of bytes."""
    if not _is_for_bytes(node) or path_of(value)[-1].made_by("QuantizeLinear"):
        raise Decline
    inputs = (_in_other_bytes(value, zero, rw), node.inputs[1], rw.constant(other_bytes(zero), like=node.input(2)))
    return rw.replace(node, [rw.again(node, *inputs)])


def _joined(node: Node, rw: Rewriter) -> Outcome:
    """A `Concat` of signed bytes that are quantized here and read as floats, or were unsigned before."""
    if not rw.target.is_x86 or any(value.dtype != TensorProto.INT8 for value in node.operands):
        raise Decline
    paths = [path_of(value) for value in node.operands if not value.is_const]
    makers = [path[-1].made_by("QuantizeLinear") for path in paths]
    if not makers or not all(maker is not None and is_whole(maker) for maker in makers):
        raise Decline("not all inputs of {} are quantized per tensor in the model", node.result.name)
    if not all(_was_unsigned(path[-1]) for path in paths):
        _check_goes_on(node.result, node)
        for value in {value: None for path in paths for value in path}:
            _check_goes_on(value, node)
    zero = np.zeros((), np.int8)
    parts = [_in_other_bytes(value, zero, rw) for value in node.operands]
    whole = rw.again(node, *parts)
    return rw.replace(node, [_in_other_bytes(whole, other_bytes(zero), rw)])


def _check_goes_on(value: Value, node: Node) -> None:
    """Decline unless all readers of signed bytes are converted with them, and are in the graph of `node`."""
    for user in value.users:
        if user.graph is not node.graph or not _goes_on(value, user):
            raise Decline("{} is read by {}", value.name, user.op)
    if value.output_count or (value.producer is not None and value.producer.graph is not node.graph):
        raise Decline("{} is a graph output, or belongs to another graph", value.name)


def _goes_on(value: Value, user: Node) -> bool:
    if user.op == "DequantizeLinear":
        return user.inputs[0] is value and is_whole(user)
    return user.op == "Concat" or moves(value, user)


def is_whole(node: Node) -> bool:
    """Whether an operator quantizes or dequantizes signed bytes per tensor."""
    with suppress(Decline):
        return _zero_point(node).size == 1 and not node.attr("block_size", 0)
    return False


def _was_unsigned(value: Value) -> Value | None:
    """The unsigned bytes from which `_in_other_bytes` made signed ones; None if it did not."""
    end = value.made_by("QuantizeLinear")
    start = end.operand(0).made_by("DequantizeLinear") if end else None
    if not end or not start or start.operand(0).dtype != TensorProto.UINT8:
        return None
    with suppress(Decline):
        before, after = (node.operand(2).array() for node in (start, end))
        ones = all(np.array_equal(node.operand(1).array().reshape(-1), [1]) for node in (start, end))
        if ones and before.size == 1 and after.dtype == np.int8 and np.array_equal(other_bytes(after), before):
            return start.operand(0)
    return None


def _in_other_bytes(value: Value, zero: np.ndarray, rw: Rewriter) -> Value:
    """Signed bytes as unsigned ones, or vice versa, through floats that are whole numbers."""
    if value.is_const:
        return rw.constant(other_bytes(value.array()), like=value)
    if (unsigned := _was_unsigned(value)) is not None:
        return unsigned
    one = np.array(1, np.float32)
    start, end = (rw.constant(each.reshape(())) for each in (zero, other_bytes(zero)))
    return rw.op("QuantizeLinear", rw.op("DequantizeLinear", value, one, start), one, end)


def _is_of_bytes(node: Node | None) -> bool:
    """Whether a node is a product of dequantized operands that has a kernel on bytes.

    These kernels add no computed bias, and give bytes, except for products with constant matrices.
    """
    if node is None or node.op not in _PRODUCTS or not reads_bytes(node):
        return False
    if any(not each.is_const and not each.made_by("DequantizeLinear") for each in node.operands[2:]):
        return False
    weight = node.operand(1).made_by("DequantizeLinear")
    return _is_quantized(node.result) or bool(node.op in _MATRICES and weight and weight.operand(0).is_const)


def _is_quantized(value: Value, most: int = 4) -> bool:
    """Whether a reader quantizes a value, directly or after operators that other rules move past `QuantizeLinear`."""
    behind = [user.result for user in value.users if most and user.op in _BEHIND]
    return any(user.op == "QuantizeLinear" for user in value.users) or any(_is_quantized(v, most - 1) for v in behind)


def _unlimited(value: Value) -> Value:
    """The value before all limits."""
    while (limit := value.made_by(*LIMITS)) is not None:
        value = limit.operand(0)
    return value


def _is_for_bytes(node: Node) -> bool:
    """Whether a product with a kernel on bytes reads the result of `node` as its data."""
    return any(_is_of_bytes(user) and user.input(0) is node.result for user in node.result.users)


def _computed(node: Node, value: Value, zero: np.ndarray, rw: Rewriter) -> Outcome:
    point = rw.constant(other_bytes(zero), like=node.input(2))
    integers = rw.again(node, *node.inputs[:2], point, output_dtype=None)
    pairs: list[tuple[Node, list[Value]]] = []
    kept: list[tuple[Value, Value]] = []  # signed values that others read, each with its unsigned form
    stack = [(value, integers)]
    while stack:
        old, new = stack.pop()
        as_it_is = bool(old.output_count)
        for reader in old.users:
            if reader.graph is node.graph and moves(old, reader):
                parts = moved(reader, new, rw)
                stack += [(o, part) for o, part in zip(reader.outputs, parts, strict=True) if o is not None]
            elif (own := _zero_of(reader, old, node)) is None:
                as_it_is = True
            else:
                same = np.array_equal(own, zero) and own.shape == zero.shape
                start = point if same else rw.constant(other_bytes(own))
                pairs.append((reader, [rw.again(reader, new, reader.inputs[1], start)]))
        if as_it_is:
            kept.append((old, new))
    if (
        kept
        and not _is_of_bytes(_unlimited(node.operand(0)).producer)
        and not any(_is_for_bytes(reader) for reader, _ in pairs)
    ):
        raise Decline("{} has readers that need its signed elements", kept[0][0].name)
    pairs += [_signed(old, new, other_bytes(zero), rw) for old, new in kept]
    return rw.replace_all(pairs, anchor=node)


def _signed(old: Value, new: Value, zero: np.ndarray, rw: Rewriter) -> tuple[Node, list[Value]]:
    """The producer of signed bytes that others read, and its replacement."""
    maker = old.producer
    if maker is None or len(maker.outputs) > 1:
        raise Decline("{} has readers that need its signed elements", old.name)
    return maker, [_in_other_bytes(new, zero, rw)]


def _zero_of(reader: Node, value: Value, node: Node) -> np.ndarray | None:
    """The zero point of a reader that dequantizes a value per tensor; None for another reader."""
    if reader.op != "DequantizeLinear" or reader.graph is not node.graph or reader.inputs[0] is not value:
        return None
    with suppress(Decline):
        zero = _zero_point(reader)
        return zero if zero.size == 1 else None
    return None


def _zero_point(node: Node) -> np.ndarray:
    """The constant zero point of signed bytes, 0 where none is given; declines without a reason for other types."""
    zero = node.input(2)
    if zero is not None:
        stated, array = zero.dtype, zero.const()
    else:
        stated = node.operand(0).dtype if node.op == "DequantizeLinear" else node.attr("output_dtype", 0)
        array = np.zeros(node.operand(1).sizes(), np.int8)
    if array is None or stated != TensorProto.INT8:
        raise Decline
    return array
