"""Real structures: building blocks of networks, with small sizes and random variations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphopt.fuzzing.building import Builder

_FLOAT = np.dtype(np.float32)


class _Stopped(Exception):  # noqa: N818 -- a structure that does not run is no error
    """The rest of a structure cannot be built."""


class Writer:
    """Adds constants, and operators that must run.

    Args:
        b: the model.
    """

    def __init__(self, b: Builder) -> None:
        self.b, self.draw = b, b.draw

    def op(self, op: str, *inputs: str, outputs: int = 1, domain: str = "", **attrs: Any) -> str:
        """An operator; returns its first output."""
        return self.ops(op, *inputs, outputs=outputs, domain=domain, **attrs)[0]

    def ops(self, op: str, *inputs: str, outputs: int = 1, domain: str = "", **attrs: Any) -> list[str]:
        """An operator; returns its outputs."""
        made = self.b.emit(op, inputs, attrs, outputs=outputs, domain=domain)
        if made is None:
            raise _Stopped
        return made

    def weight(self, *shape: int) -> str:
        """Weights, scaled so that values stay in range."""
        array = self.draw.array(_FLOAT, shape)
        return self.b.constant((array / max(np.sqrt(max(shape[-1:], default=1)), 1)).astype(np.float32))

    def const(self, value: Any, dtype: Any = np.float32) -> str:
        """A constant."""
        return self.b.constant(np.asarray(value, dtype))

    def ints(self, *values: int) -> str:
        """A list of integers."""
        return self.const(list(values), np.int64)

    def shape(self, x: str) -> tuple[int, ...]:
        """The shape of a value."""
        return tuple(self.b.held[x].shape)

    def one(self, *choices: Any) -> Any:
        """One of several."""
        return self.draw.one(choices)

    def chance(self, part: float = 0.5) -> bool:
        """True with this probability."""
        return self.draw.chance(part)

    def axes(self, op: str, x: str, *axes: int, since: int = 13, **attrs: Any) -> str:
        """An operator whose axes are an operand from this opset on."""
        if self.b.opset < since:
            return self.op(op, x, axes=list(axes), **attrs)
        return self.op(op, x, self.ints(*axes), **attrs)

    def activation(self, x: str) -> str:
        """An activation, written as exporters do, or none."""
        kind = self.one("", "Relu", "LeakyRelu", "Sigmoid", "HardSigmoid", "Clip", "silu", "gelu", "Tanh", "hardswish")
        if kind == "Clip":
            bounds = (self.const(0.0), self.const(6.0))
            return self.op("Clip", x, *bounds) if self.b.opset >= 11 else self.op("Clip", x, min=0.0, max=6.0)
        if kind == "silu":
            return self.op("Mul", x, self.op("Sigmoid", x))
        if kind == "hardswish":
            return self.op("Mul", x, self.op("HardSigmoid", x, alpha=1 / 6, beta=0.5))
        if kind == "gelu" and self.b.opset >= 9:
            inner = self.op("Erf", self.op("Div", x, self.const(np.sqrt(2.0))))
            return self.op("Mul", self.op("Mul", x, self.op("Add", inner, self.const(1.0))), self.const(0.5))
        return self.op(kind, x) if kind and kind != "gelu" else x

    def normalized(self, x: str, axis: int = -1) -> str:
        """Layer normalization written out."""
        mean = self._mean(x, axis)
        centered = self.op("Sub", x, mean)
        square = self.op("Pow", centered, self.const(2.0)) if self.chance() else self.op("Mul", centered, centered)
        deviation = self.op("Sqrt", self.op("Add", self._mean(square, axis), self.const(1e-5)))
        made = self.op("Div", centered, deviation)
        size = self.shape(x)[axis]
        return self.op("Add", self.op("Mul", made, self.weight(size)), self.weight(size))

    def _mean(self, x: str, axis: int) -> str:
        rank = len(self.shape(x))
        return self.axes("ReduceMean", x, axis if self.b.opset >= 11 else axis % rank, since=18, keepdims=1)


def image(w: Writer) -> str:
    """An image."""
    size = w.one(6, 8, 9)
    return w.b.input(w.draw.array(_FLOAT, (w.one(1, 1, 2), w.one(3, 4, 8, 16), size, size)))


def conv(w: Writer, x: str, filters: int, kernel: int = 3, **attrs: Any) -> str:
    """A convolution that keeps the size, with a batch normalization or a bias, or neither."""
    channels = w.shape(x)[1]
    weight = w.weight(filters, channels // attrs.get("group", 1), kernel, kernel)
    bias = [w.weight(filters)] if w.chance(0.4) else []
    made = w.op("Conv", x, weight, *bias, pads=[kernel // 2] * 4, **attrs)
    if w.chance():
        variance = w.const(np.abs(w.draw.array(_FLOAT, (filters,))) + 0.5)
        made = w.op("BatchNormalization", made, w.weight(filters), w.weight(filters), w.weight(filters), variance)
    return made


def residual(w: Writer) -> str:
    """A residual block: two convolutions with a skip connection."""
    x = image(w)
    filters = w.shape(x)[1]
    inner = w.activation(conv(w, x, w.one(4, filters)))
    made = conv(w, inner, filters)
    past = x if w.chance(0.7) else conv(w, x, filters, 1)
    made = w.activation(w.op("Add", *(w.draw.rng.sample([made, past], 2))))
    return head(w, made) if w.chance() else made


def separable(w: Writer) -> str:
    """An inverted residual block: expansion, depthwise convolution, squeeze and excitation, projection."""
    x = image(w)
    channels = w.shape(x)[1]
    made = w.activation(conv(w, x, 2 * channels, 1))
    made = w.activation(conv(w, made, 2 * channels, 3, group=2 * channels))
    if w.chance():
        pooled = w.op("GlobalAveragePool", made)
        gate = w.op("Sigmoid", conv(w, w.activation(conv(w, pooled, 4, 1)), 2 * channels, 1))
        made = w.op("Mul", made, gate)
    made = conv(w, made, channels, 1)
    return w.op("Add", made, x) if w.chance() else made


def head(w: Writer, x: str) -> str:
    """Pooling and a linear layer."""
    channels = w.shape(x)[1]
    pooled = w.op("GlobalAveragePool", x)
    flat = w.op("Flatten", pooled) if w.chance() else w.op("Reshape", pooled, w.ints(w.one(0, -1), channels))
    classes = 5
    if w.chance():
        return w.op("Gemm", flat, w.weight(classes, channels), w.weight(classes), transB=1)
    return w.op("Add", w.op("MatMul", flat, w.weight(channels, classes)), w.weight(classes))


def attention(w: Writer) -> str:
    """Self-attention with its normalization and the following layers, written out as exporters do."""
    batch, length, heads, width = w.one(1, 2), w.one(3, 5), w.one(1, 2), w.one(2, 4)
    size = heads * width
    x = w.b.input(w.draw.array(_FLOAT, (batch, length, size)))
    given = w.normalized(x) if w.chance(0.6) else x

    def projected(order: Sequence[int]) -> str:
        made = w.op("MatMul", given, w.weight(size, size))
        made = w.op("Add", made, w.weight(size)) if w.chance(0.7) else made
        split = w.op("Reshape", made, w.ints(w.one(0, batch), w.one(0, -1), heads, width))
        return w.op("Transpose", split, perm=list(order))

    query, key, value = projected((0, 2, 1, 3)), projected((0, 2, 3, 1)), projected((0, 2, 1, 3))
    scores = w.op("MatMul", query, key)
    scores = w.op("Div", scores, w.const(np.sqrt(width))) if w.chance() else w.op("Mul", scores, w.const(0.5))
    if w.chance(0.4):
        scores = w.op("Add", scores, w.const(np.where(np.tri(length), 0, -1e9)))
    context = w.op("MatMul", w.op("Softmax", scores, axis=3), value)
    merged = w.op("Reshape", w.op("Transpose", context, perm=[0, 2, 1, 3]), w.ints(batch, length, size))
    made = w.op("Add", w.op("MatMul", merged, w.weight(size, size)), w.weight(size))
    made = w.op("Add", made, x)
    if w.chance():
        inner = w.activation(w.op("Add", w.op("MatMul", made, w.weight(size, 2 * size)), w.weight(2 * size)))
        made = w.op("Add", w.op("MatMul", inner, w.weight(2 * size, size)), made)
    return w.normalized(made) if w.chance() else made


def recurrent(w: Writer) -> str:
    """A recurrence whose axis of directions is then removed."""
    length, batch, width, hidden = w.one(1, 3, 4), w.one(1, 2), w.one(2, 3), w.one(2, 3)
    op = w.one("LSTM", "GRU", "RNN")
    gates, ways = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], w.one(1, 1, 2)
    x = w.b.input(w.draw.array(_FLOAT, (batch, length, width)))
    turned = w.op("Transpose", x, perm=[1, 0, 2])
    weights = w.weight(ways, gates * hidden, width), w.weight(ways, gates * hidden, hidden)
    bias = [w.weight(ways, 2 * gates * hidden)] if w.chance() else []
    direction = "bidirectional" if ways == 2 else w.one("forward", "reverse")
    state = ["", w.const(np.zeros((ways, batch, hidden)))] if bias and w.chance() else []
    made = w.op(op, turned, *weights, *bias, *state, hidden_size=hidden, direction=direction, outputs=w.one(1, 2))
    if ways == 1:
        return w.op("Transpose", w.axes("Squeeze", made, 1), perm=[1, 0, 2])
    joined = w.op("Transpose", made, perm=[2, 0, 1, 3])
    return w.op("Reshape", joined, w.ints(batch, length, ways * hidden))


def detection(w: Writer) -> str:
    """A detection head: boxes and scores of two scales, concatenated, decoded and split."""
    x = image(w)
    parts = []
    for scale in (1, 2):
        given = w.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]) if scale == 2 else x
        made = conv(w, given, 6, 1)
        batch, channels, high, wide = w.shape(made)
        rows = w.op("Transpose", w.op("Reshape", made, w.ints(batch, channels, high * wide)), perm=[0, 2, 1])
        parts.append(rows)
    joined = w.op("Concat", *parts, axis=1)
    if w.b.opset < 10:
        return joined
    far = 1 << 62
    boxes = w.op("Slice", joined, w.ints(0), w.ints(4), w.ints(2))
    last = -1 if w.b.opset > 10 else 2
    scores = w.op("Sigmoid", w.op("Slice", joined, w.ints(4), w.ints(w.one(far, 6)), w.ints(last)))
    grid = w.const(np.arange(w.shape(joined)[1])[:, None] % 3)
    decoded = w.op("Mul", w.op("Add", w.op("Sigmoid", boxes), grid), w.const([8.0, 8, 4, 4]))
    return w.op("Concat", decoded, scores, axis=last)


TEMPLATES: dict[str, Callable[[Writer], str]] = {
    "residual": residual, "separable": separable, "attention": attention, "recurrent": recurrent,
    "detection": detection,
}  # fmt: skip
"""The structures by name."""


def norm(w: Writer) -> str:
    """Rows divided by their norms, with or without an epsilon."""
    x = w.b.input(w.draw.array(_FLOAT, w.draw.shape(w.one(2, 3, 4))))
    axis = w.one(1, len(w.shape(x)) - 1)
    kind = w.one("ReduceL2", "ReduceL2", "ReduceL1", "ReduceSumSquare")
    length = w.axes(kind, x, axis, since=18, keepdims=1)
    length = w.op("Sqrt", length) if kind == "ReduceSumSquare" else length
    bound = w.one("", "", "Max", "Add")
    length = w.op(bound, length, w.const(1e-6)) if bound else length
    if w.chance(0.2):
        length = w.op("Expand", length, w.op("Shape", x)) if w.b.opset >= 8 else length
    made = w.op("Div", x, length) if w.chance(0.7) else w.op("Mul", x, w.op("Reciprocal", length))
    return w.activation(made)


FOR_PEERS: dict[str, Callable[[Writer], str]] = {"norm": norm}
"""Structures that passes of other optimizers match, and no pass of graphopt."""


def plant(b: Builder, name: str) -> bool:
    """Build a structure into an empty model; whether any nodes were added."""
    with contextlib.suppress(_Stopped):
        {**TEMPLATES, **FOR_PEERS}[name](Writer(b))
    return bool(b.nodes)
