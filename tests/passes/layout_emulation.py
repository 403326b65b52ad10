"""The blocked operators in NumPy, for any block size, so that models for other machines can be run."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

Array = np.ndarray


def plain(x: Array, block: int) -> Array:
    """The NCHW tensor whose blocked memory `x` holds."""
    n, c, h, w = x.shape
    return x.reshape(n, c // block, h, w, block).transpose(0, 1, 4, 2, 3).reshape(n, c, h, w)


def blocked(x: Array, block: int) -> Array:
    n, c, h, w = x.shape
    assert c % block == 0
    return np.ascontiguousarray(x.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2)).reshape(n, c, h, w)


def weight_both(w: Array, block: int) -> Array:
    """OIHW from OIHWBiBo."""
    o, i, kh, kw = w.shape
    parts = w.reshape(o // block, i // block, kh, kw, block, block)
    return parts.transpose(0, 5, 1, 4, 2, 3).reshape(o, i, kh, kw)


def weight_outputs(w: Array, block: int) -> Array:
    """OIHW from OIHWBo."""
    o, i, kh, kw = w.shape
    return w.reshape(o // block, i, kh, kw, block).transpose(0, 4, 1, 2, 3).reshape(o, i, kh, kw)


def activate(x: Array, name: str | None, params: list[float]) -> Array:
    if not name:
        return x
    return {
        "Relu": lambda: np.maximum(x, 0),
        "Sigmoid": lambda: 1 / (1 + np.exp(-x)),
        "Tanh": lambda: np.tanh(x),
        "LeakyRelu": lambda: np.where(x < 0, params[0] * x, x),
        "Clip": lambda: np.clip(x, params[0], params[1]),
        "HardSigmoid": lambda: np.clip(params[0] * x + params[1], 0, 1),
        "HardSwish": lambda: x * np.clip(x / 6 + 0.5, 0, 1),
    }[name]().astype(np.float32)


def _windows(x: Array, kernel: list[int], op: Any, fill: float) -> Array:
    """[N, C, OH, OW, KH, KW]."""
    pads = list(getattr(op, "pads", None) or [0] * 4)
    strides = list(getattr(op, "strides", None) or [1, 1])
    dilations = list(getattr(op, "dilations", None) or [1, 1])
    assert getattr(op, "auto_pad", None) in (None, "NOTSET")
    wide = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])), constant_values=fill)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    view = sliding_window_view(wide, spans, axis=(2, 3))
    return view[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]


class Base(OpRun):
    op_domain = "com.microsoft.nchwc"
    block = 0


class ReorderInput(Base):
    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        if getattr(self, "channels_last", 0):
            x = x.transpose(0, 3, 1, 2)
        assert x.shape[1] % 4 == 0, "ReorderInput takes a multiple of four channels"
        return (blocked(np.pad(x, ((0, 0), (0, -x.shape[1] % self.block), (0, 0), (0, 0))), self.block),)


class ReorderOutput(Base):
    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        assert x.shape[1] % self.block == 0
        assert x.shape[1] - self.block < self.channels <= x.shape[1]
        y = plain(x, self.block)[:, : self.channels]
        return (np.ascontiguousarray(y.transpose(0, 2, 3, 1) if getattr(self, "channels_last", 0) else y),)


class Conv(Base):
    def _run(self, x: Array, w: Array, b: Array | None = None, s: Array | None = None, **_: Any) -> tuple[Array]:
        group = getattr(self, "group", None) or 1
        assert w.shape[0] % self.block == 0
        if group == 1 and x.shape[1] < self.block:
            image, weight = x, weight_outputs(w, self.block)
        else:
            image = plain(x, self.block)
            weight = weight_outputs(w, self.block) if w.shape[1] == 1 else weight_both(w, self.block)
        windows = _windows(image, list(w.shape[2:]), self, 0.0)
        n, c, oh, ow, kh, kw = windows.shape
        assert c == weight.shape[1] * group
        split = windows.reshape(n, group, c // group, oh, ow, kh, kw)
        filters = weight.reshape(group, -1, *weight.shape[1:])
        y = np.einsum("ngihwkl,goikl->ngohw", split, filters, optimize=True).reshape(n, -1, oh, ow)
        if b is not None:
            assert len(b) == w.shape[0]
            y = y + b.reshape(1, -1, 1, 1)
        if s is not None:
            assert s.shape == y.shape
            y = y + plain(s, self.block)
        y = activate(y, getattr(self, "activation", None), list(getattr(self, "activation_params", None) or []))
        return (blocked(y.astype(np.float32), self.block),)


class MaxPool(Base):
    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        windows = _windows(plain(x, self.block), list(self.kernel_shape), self, -np.inf)
        return (blocked(windows.max(axis=(4, 5)), self.block),)


class AveragePool(Base):
    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        image = plain(x, self.block)
        total = _windows(image, list(self.kernel_shape), self, 0.0).sum(axis=(4, 5))
        padding = 1.0 if getattr(self, "count_include_pad", 0) else 0.0
        count = _windows(np.ones_like(image), list(self.kernel_shape), self, padding).sum(axis=(4, 5))
        return (blocked((total / count).astype(np.float32), self.block),)


class GlobalAveragePool(Base):
    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        return (blocked(plain(x, self.block).mean(axis=(2, 3), keepdims=True), self.block),)


class GlobalMaxPool(Base):
    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        return (blocked(plain(x, self.block).max(axis=(2, 3), keepdims=True), self.block),)


class Upsample(Base):
    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        assert getattr(self, "mode", "nearest") == "nearest"
        y = plain(x, self.block).repeat(self.scales[2], axis=2).repeat(self.scales[3], axis=3)
        return (blocked(y, self.block),)


class QuickGelu(OpRun):
    op_domain = "com.microsoft"

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        return (x / (1 + np.exp(-x)),)


OPERATORS = (
    ReorderInput, ReorderOutput, Conv, MaxPool, AveragePool, GlobalAveragePool, GlobalMaxPool, Upsample, QuickGelu,
)  # fmt: skip


def operators(block: int) -> list[type[OpRun]]:
    """The operators for one block size."""
    return [type(op.__name__, (op,), {"block": block}) for op in OPERATORS]


def emulate(model: onnx.ModelProto, block: int, feeds: dict[str, Array]) -> list[Array]:
    """Run a model whose blocked operators work on blocks of `block` channels."""
    with np.errstate(all="ignore"):  # padding lanes may hold anything
        return list(ReferenceEvaluator(model, new_ops=operators(block)).run(None, feeds))
