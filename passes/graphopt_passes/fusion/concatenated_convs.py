"""Scales and shifts behind a Concat, taken into the convolutions that it joins."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.ir import Node, Value
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.fusion.batchnorm import Affine, read_batchnorm
from graphopt_passes.fusion.convolution import Convolution, per_channel, sole_convolution

Parts = list[tuple[Convolution | Value, int]]
"""What is joined and its channels, convolutions as such, and at most one other value."""


class FuseAffineIntoConcatenatedConvs(OpRule):
    """Let convolutions that are joined along channels do the normalization, scale or shift behind the `Concat`.

    `BatchNormalization`, and `Mul`, `Div`, `Add` and `Sub` of a constant for each channel: each convolution takes in
    its share. A single other operand keeps a smaller operator of the same kind; with two there would be more nodes
    than before.
    """

    name = "fuse_affine_into_concatenated_convs"
    ops = ("Add", "BatchNormalization", "Div", "Mul", "Sub")
    numerics = Numerics.ROUNDING
    peers: ClassVar[dict[str, str]] = {}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Divide the channels among the operands of the `Concat`."""
        value = _joined(node)
        concat = value.producer if value is not None else None
        if value is None or concat is None:
            return None
        if node.op != "BatchNormalization" and node.graph.opset() < _BROADCASTING:
            return None
        parts = _parts(concat, node)
        if not isinstance(parts, list):
            return parts
        if not value.one_use:
            return Mismatch("{} has other readers", value.name)
        channels = sum(size for _, size in parts)
        affine = _affine(node, value, channels)
        if not isinstance(affine, tuple):
            return affine
        made: list[Value] = []
        start = 0
        for part, size in parts:
            share = slice(start, start + size)
            start += size
            if isinstance(part, Value):
                made.append(_smaller(node, part, share, channels, rw))
                continue
            piece = _taken_in(part, affine, share, node, rw)
            if isinstance(piece, Mismatch):
                return piece
            made.append(piece)
        return rw.replace(node, [rw.op("Concat", *made, **concat.attrs)])


_BROADCASTING = 7
"""The opset that made operands broadcast by their shapes."""


def _joined(node: Node) -> Value | None:
    """The operand of a node that a Concat makes."""
    operands = node.inputs[:1] if node.op == "BatchNormalization" else node.inputs[:2]
    for value in operands:
        producer = value.producer if value is not None else None
        if producer is not None and producer.op == "Concat" and producer.graph is node.graph:
            return value
    return None


def _parts(concat: Node, reader: Node) -> Parts | Mismatch | None:
    """The operands of a Concat along channels, if all but one are convolutions that nothing else reads."""
    convs = [sole_convolution(value, reader) for value in concat.inputs]
    ranks = [conv.rank for conv in convs if isinstance(conv, Convolution)]
    if not ranks or concat.attr("axis") not in (1, 1 - ranks[0]):
        return None
    if len(ranks) < len(convs) - 1:
        return Mismatch("{} of what is joined are not convolutions of one reader", len(convs) - len(ranks))
    found: Parts = []
    for value, conv in zip(concat.inputs, convs, strict=True):
        if isinstance(conv, Convolution):
            found.append((conv, conv.channels))
            continue
        shape = value.shape if value is not None else None
        size = shape[1] if shape is not None and len(shape) == ranks[0] else None
        if value is None or not isinstance(size, int):
            return Mismatch("the channels of {} are not known", value.name if value is not None else "an operand")
        found.append((value, size))
    return found


def _affine(node: Node, value: Value, channels: int) -> Affine | Mismatch | None:
    """Scale and shift of each channel."""
    if node.op == "BatchNormalization":
        affine = read_batchnorm(node)
        if isinstance(affine, tuple) and len(affine[0]) != channels:
            return Mismatch("{} statistics for {} channels", len(affine[0]), channels)
        return affine
    is_left = node.inputs[0] is value
    other = node.inputs[1] if is_left else node.inputs[0]
    constant = other.const() if other is not None else None
    if other is None or constant is None:
        return None
    row = per_channel(constant, value.rank or 0, channels)
    if row is None or not np.isfinite(row).all():
        return Mismatch("{} has shape {}, not one finite number per channel", other.name, constant.shape)
    ones, zeros = np.ones(channels), np.zeros(channels)
    if node.op in ("Add", "Sub"):
        if node.op == "Sub" and not is_left:
            return Mismatch("the convolutions are what is subtracted")
        return ones, row if node.op == "Add" else -row
    if node.op == "Div":
        if not is_left or not row.all():
            return Mismatch("the convolutions are what is divided by" if not is_left else "{} holds zeros", other.name)
        row = 1.0 / row
    return row, zeros


def _taken_in(conv: Convolution, affine: Affine, share: slice, node: Node, rw: Rewriter) -> Value | Mismatch:
    """The convolution with its share of the scales and shifts in its weights."""
    factor, offset = affine[0][share], affine[1][share]
    scales, shifts = node.op not in ("Add", "Sub"), node.op not in ("Mul", "Div")
    weight, bias = conv.weight if scales else None, conv.bias()
    if scales and weight is None:
        return Mismatch("the weight of a convolution is not constant")
    if isinstance(bias, Mismatch):
        return bias
    kernel = conv.scaled(weight, factor) if weight is not None else None
    return conv.rebuilt(rw, kernel, bias * factor + offset if shifts or conv.has_bias else None)


def _smaller(node: Node, part: Value, share: slice, channels: int, rw: Rewriter) -> Value:
    """The same operator on the channels of one operand."""
    if node.op == "BatchNormalization":
        statistics = [rw.constant(_contents(v)[share], like=v) for v in node.inputs[1:5]]
        result: Value = rw.op("BatchNormalization", part, *statistics, **node.attrs)
        return result
    index = next(i for i, v in enumerate(node.inputs[:2]) if v is not None and v.is_const)
    constant = node.inputs[index]
    array = _contents(constant)
    if array.size == channels and channels > 1:
        axis = array.shape.index(channels)
        array = np.take(array, np.arange(channels)[share], axis=axis)
        constant = rw.constant(np.ascontiguousarray(array), like=constant)
    operands = [constant, part] if index == 0 else [part, constant]
    made: Value = rw.op(node.op_type, *operands, **node.attrs)
    return made


def _contents(value: Value | None) -> np.ndarray:
    array = value.const() if value is not None else None
    assert array is not None
    return array
