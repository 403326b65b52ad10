"""Operators that move data, or compute a maximum, on quantized values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from graphopt.operators import Pad, Reduction, Resize
from graphopt.rewrite import Decline, Node, Numerics, Outcome, Rewriter, Value
from graphopt_passes.fusion.contrib.limits import (
    LIMITS,
    MONOTONIC,
    check_largest,
    check_monotonic,
    is_quantized,
    may_be_of_bytes,
)
from graphopt_passes.fusion.contrib.operands import NEWEST_OF_BYTES, ONE, OnIntegers
from graphopt_passes.fusion.contrib.parameters import BYTES, WORDS, Quantized, check_per_tensor, dequantized, quantized

Maker: TypeAlias = Callable[[Node, list[Quantized], Quantized, Rewriter], Value]
"""Makes the operator on integers that replaces one whose operands are dequantized and whose result is quantized."""


def moved(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter, **attrs: str) -> Value:
    """The operator itself, except for some attributes, on integers; scale and zero point must stay the same."""
    check_alike(op, operands, output)
    at = range(len(op.inputs))[DATA.get(op.op, slice(None))]
    inputs = list(op.inputs)
    inputs[at.start : at.stop] = [operand.value for operand in operands]
    return rw.again(op, *inputs, **attrs)


def check_alike(op: Node, operands: list[Quantized], output: Quantized) -> None:
    """Decline unless equal integers stand for equal floats before and after an operator."""
    check_per_tensor(operands)
    if not all(operand.same_scale(output) for operand in operands):
        raise Decline("the scales before and after {} differ", op.op)


def _max_pool(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    check_largest(op, output)
    return moved(op, operands, output, rw)


def _resize(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    """A `Resize` that copies elements; the kernel for bytes is faster than that for floats only if it rounds down."""
    resize = Resize.of(op)
    if (resize.mode, resize.coordinates, resize.rounding) == ("nearest", "asymmetric", "floor"):
        return moved(op, operands, output, rw)
    if not resize.repeats:
        raise Decline("it does not repeat pixels, where the 8-bit kernel is slower or rounds")
    return moved(op, operands, output, rw, coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def _pad(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    check_alike(op, operands, output)
    pad, fill = Pad.of(op).reading(operands[0].value), None
    if pad.mode == "constant":
        steps = pad.number / float(output.scale.item()) + float(output.zero.item())
        ends = np.iinfo(BYTES[output.dtype])
        if not ends.min <= steps <= ends.max or steps != round(steps):
            raise Decline("the pad value is not representable in the quantization of {}", output.value.name)
        fill = rw.constant(np.array(round(steps), BYTES[output.dtype]))
    return replace(pad, fill=fill).write(rw)


def _depth_to_space(op: Node, operands: list[Quantized], output: Quantized, rw: Rewriter) -> Value:
    if op.graph.opset() < 11:
        raise Decline("the kernel does not take 8-bit integers before opset 11")
    return moved(op, operands, output, rw)


DATA = {
    **dict.fromkeys(
        ("DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape", "Resize", "Slice", "SpaceToDepth",
         "Squeeze", "Tile", "Transpose", "Unsqueeze"),
        slice(1),
    ),
    "Where": slice(1, 3),
}  # fmt: skip
"""Operators that move data, and which of their inputs hold that data."""

MOVES: dict[str, Maker] = {
    **dict.fromkeys(DATA, moved),
    "DepthToSpace": _depth_to_space, "MaxPool": _max_pool, "Pad": _pad, "Resize": _resize,
}  # fmt: skip
"""The makers of moves and `MaxPool` on integers, by operator."""


class FuseQdqIntoSplit(OnIntegers):
    """Replace a `Split` of dequantized values, whose parts are all quantized again, with a `Split` of the integers.

    A part that is quantized with another scale is converted to that.
    """

    # No pattern: any number of parts, each with any number of readers.
    ops = ("Split",)
    sources = ("DequantizeLinear", "com.microsoft::DequantizeLinear")
    needs = (("QuantizeLinear",),)
    peers = {"onnxruntime": "QDQSelectorActionTransformer"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        value = node.operand(0)
        whole = dequantized(value)
        check_per_tensor([whole])
        if whole.dtype not in BYTES and whole.dtype not in WORDS:
            raise Decline("{} is not quantized to 8 or 16 bits", whole.value.name)
        parts = rw.outputs(len(node.outputs), "Split", whole.value, *node.inputs[1:], **node.attrs)
        pairs: list[tuple[Node, list[Value]]] = []
        for old, new in zip(node.outputs, parts, strict=True):
            if old is None:
                continue
            pairs += [(reader, [_quantized_part(reader, old, new, whole, rw)]) for reader in old.users]
            if old.output_count:
                raise Decline("{} is a graph output", old.name)
        if not pairs:
            raise Decline
        return rw.replace_all(pairs, anchor=node)


def _quantized_part(reader: Node, value: Value, new: Value, whole: Quantized, rw: Rewriter) -> Value:
    """The replacement of a reader of a part, which must be a `QuantizeLinear`."""
    if reader.op != "QuantizeLinear" or reader.graph is not value.graph or reader.inputs[0] is not value:
        raise Decline("{} is read by {}", value.name, reader.op)
    if quantized(reader).same_scale(whole):
        return new
    floats = rw.op("DequantizeLinear", new, *whole.written(rw))
    return rw.op("QuantizeLinear", floats, *reader.inputs[1:], **reader.attrs)


_SAME_NUMBERS = (
    "Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"
)  # fmt: skip
_MOST_MOVES = 4


class MoveReshapeBeforeDequantize(OnIntegers):
    """Move reshapes, `Gather`, `Slice`, `Split` and `MaxPool` before `DequantizeLinear`, if a float product reads them.

    Quantizers that put no pair of operators around a `Reshape`, `Transpose` or `Gather` leave these before the products
    of attention, `Flatten` before the last one of a network, and `MaxPool`, `Slice` and `Split` before convolutions
    whose results are quantized; all become products of bytes then.
    """

    # No pattern: any of these operators.
    ops = _SAME_NUMBERS
    sources = ("DequantizeLinear",)
    peers = {"onnxruntime": "QDQPropagationTransformer"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        dequantize = node.operand(0).source("DequantizeLinear", reader=node)
        integers, *parameters = dequantize.operands
        if integers.is_const:
            raise Decline
        if integers.dtype not in BYTES or parameters[0].sizes() not in ONE:
            raise Decline("{} is not quantized to 8 bits per tensor", node.operand(0).name)
        if not any(_is_multiplied(user, each) for each in node.results for user in each.users):
            raise Decline("{} is not an operand of a product of dequantized values", node.result.name)
        if node.op == "MaxPool":
            check_largest(node, dequantized(node.operand(0)))
        made = rw.outputs(len(node.outputs), node.op_type, integers, *node.inputs[1:], **node.attrs)
        return rw.replace(node, [rw.again(dequantize, each, *parameters, axis=None) for each in made])


_PRODUCTS = ("Conv", "Gemm", "MatMul")


class MoveQuantizeBeforeReshape(OnIntegers):
    """Move `QuantizeLinear` before reshapes, `Transpose` and `MaxPool` that follow a product of quantized values.

    Training with quantized operands quantizes what a layer reads, such as joined heads of attention or pooled images,
    not what the layer before computes. That becomes a product of bytes.
    """

    # No pattern: any of these operators.
    ops = ("QuantizeLinear",)
    sources = MONOTONIC
    numerics = Numerics.EXACT
    finite = True
    """The kernel of `MaxPool` for floats may ignore NaN."""
    peers = {"onnxruntime": "QDQPropagationTransformer"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        move, output = node.operand(0).sole_source(*MONOTONIC, reader=node), quantized(node)
        check_monotonic(move, output)
        if not _is_product_of_bytes(move.operand(0)):
            raise Decline("{} is not computed by a product of dequantized values alone", node.operand(0).name)
        made = rw.again(node, move.operand(0), *node.inputs[1:], axis=None)
        return rw.replace(node, [rw.again(move, made, *move.inputs[1:])])


def _is_product_of_bytes(value: Value, most: int = _MOST_MOVES) -> bool:
    """Whether a product of dequantized values computes a value, which operators in between may move or limit."""
    maker = value.made_by(*_PRODUCTS, *MONOTONIC, *LIMITS) if value.one_use else None
    if maker is None or maker.op in _PRODUCTS:
        return maker is not None and all(map(_is_dequantized, maker.operands[:2])) and may_be_of_bytes(maker)
    return most > 0 and _is_product_of_bytes(maker.operand(0), most - 1)


class MoveMaxBeforeDequantize(OnIntegers):
    """Move `ReduceMax` or `ReduceMin` over the last axes before the `DequantizeLinear` of its operand.

    The larger integer stands for the larger float. Quantizers leave `ReduceMax`, as over the points of a cloud, to
    floats: on 128 rows of 1024 bytes the reduction of integers took a third of the time.
    """

    # No pattern: the axes have several forms.
    ops = ("ReduceMax", "ReduceMin")
    opsets = f"12-{NEWEST_OF_BYTES}"
    sources = ("DequantizeLinear",)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        dequantize, reduction = node.operand(0).source("DequantizeLinear", reader=node), Reduction.of(node)
        x = dequantized(node.operand(0))
        check_per_tensor([x])
        if x.dtype not in BYTES or not x.ordered or x.value.is_const:
            raise Decline("{} is not quantized to 8 bits with a positive scale", node.operand(0).name)
        sizes = x.value.dims()
        behind = tuple(range(len(sizes) - len(reduction.axes), len(sizes)))
        if reduction.axes != behind or not all(isinstance(sizes[axis], int) and sizes[axis] for axis in behind):
            raise Decline("{} is not a reduction of the last axes, or these may be empty", node.result.name)
        made = rw.again(node, x.value, *node.inputs[1:])
        return rw.replace(node, [rw.again(dequantize, made, *dequantize.inputs[1:], axis=None)])


def _is_multiplied(user: Node, value: Value, most: int = _MOST_MOVES) -> bool:
    """Whether an operator multiplies a value, possibly after moves, with dequantized values."""
    if user.op in ("Gemm", "MatMul"):
        others = [each for each in user.operands[:2] if each is not value]
        return all(_is_dequantized(each) for each in others) and value in user.operands[:2]
    if user.op == "Conv":
        return user.operand(0) is value and _is_dequantized(user.operand(1)) and is_quantized(user.result)
    moves_it = user.op in _SAME_NUMBERS and user.operand(0) is value
    behind = [(each, result) for result in user.results for each in result.users] if moves_it and most > 0 else []
    return any(_is_multiplied(each, result, most - 1) for each, result in behind)


def _is_dequantized(value: Value) -> bool:
    for _ in range(_MOST_MOVES):
        maker = value.made_by("DequantizeLinear", *_SAME_NUMBERS)
        if maker is None or maker.op == "DequantizeLinear":
            return maker is not None
        value = maker.operand(0)
    return False
