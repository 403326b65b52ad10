"""Kernels on quantized values, each alone, as the rates of `graphopt_passes.algorithm.work` are measured by."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

_DOMAIN = "com.microsoft"
_NUMBERS = {"s": np.float32(0.02), "t": np.float32(0.03), "z": np.uint8(120), "u": np.uint8(100), "o": np.int8(0)}
"""Scales and zero points: of an operand, of the result; and of weights."""


_STANDARD = ("Concat", "MaxPool", "QLinearMatMul", "Transpose")
"""Operators that are not the runtime's own."""


@dataclass(frozen=True, slots=True)
class ByteProbe:
    """One operator on unsigned bytes that does one kind of work, or that and others whose rates come before.

    Attributes:
        kind: the kind.
        dims: shape of its operand, `x`.
        inputs: names of its inputs: `x`, `w` for weights, and numbers.
        op: its type.
        weights: shape of its signed weights, where there are some.
        amount: how much work there is; one for each element of the operand when 0.
        less: amounts of other kinds that are in its time.
        attrs: its attributes.
    """

    kind: str
    dims: tuple[int, ...]
    op: str
    inputs: str
    weights: tuple[int, ...] = ()
    amount: float = 0
    less: tuple[tuple[str, float], ...] = ()
    attrs: tuple[tuple[str, Any], ...] = ()

    def model(self) -> ModelProto:
        """The model of the operator."""
        random = np.random.default_rng(0)
        constants = {name: np.asarray(number) for name, number in _NUMBERS.items()}
        if self.weights:
            constants["w"] = random.integers(-60, 60, self.weights).astype(np.int8)
        names = ["" if name == "-" else name for name in self.inputs.split()]
        own = self.op in _STANDARD
        node = helper.make_node(self.op, names, ["y"], "probe", domain="" if own else _DOMAIN, **dict(self.attrs))
        graph = helper.make_graph(
            [node], "g",
            [helper.make_tensor_value_info("x", TensorProto.UINT8, self.dims)],
            [helper.make_empty_tensor_value_info("y")],
            [numpy_helper.from_array(array, name) for name, array in constants.items() if name in names],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid(_DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)

    def feed(self) -> dict[str, np.ndarray]:
        """Its operand."""
        return {"x": np.random.default_rng(0).integers(0, 255, self.dims).astype(np.uint8)}


def _convolution(
    kind: str, channels: tuple[int, int], side: int, window: int, *, group: int = 1, amount: float,
    less: tuple[tuple[str, float], ...] = (),
) -> ByteProbe:  # fmt: skip
    inputs, outputs = channels
    attrs = (("channels_last", 1), ("group", group), ("pads", (window // 2,) * 4), ("kernel_shape", (window, window)))
    weights = (outputs, inputs // group, window, window)
    return ByteProbe(kind, (1, side, side, inputs), "QLinearConv", "x s z w s o t u", weights, amount, less, attrs)


def _depthwise(kind: str, channels: int) -> ByteProbe:
    return _convolution(kind, (channels, channels), 28, 3, group=channels, amount=9 * 28 * 28 * channels)


def _products(side: int, inputs: int, outputs: int, window: int = 3) -> int:
    return side * side * window**2 * inputs * outputs


def _pool(kind: str, op: str, inputs: str, dims: tuple[int, ...], *, last: bool = False) -> ByteProbe:
    """A pool of 3x3 that moves by two; with channels last where the operator has an attribute for that."""
    attrs: tuple[tuple[str, Any], ...] = (("kernel_shape", (3, 3)), ("strides", (2, 2)), ("pads", (1, 1, 1, 1)))
    attrs += (("channels_last", 1),) if last else ()
    return ByteProbe(kind, dims, op, inputs, amount=prod(dims) // 4, attrs=attrs)


_LAST = (1, 56, 56, 64)
_WHOLE, _ROWS, _WIDE = (1, 64, 56, 56), (512, 32), 256
_CUT = (1, 56, 56, 40)
_GEMM = (("byte product", prod(_ROWS) * _WIDE),)
PROBES = (
    ByteProbe("bytes", _WHOLE, "Concat", "x x", amount=2 * prod(_WHOLE), attrs=(("axis", 1),)),
    ByteProbe("bytes cut", _CUT, "Concat", "x x", amount=2 * prod(_CUT), attrs=(("axis", 3),)),
    ByteProbe(
        "bytes looked up", _WHOLE, "QLinearConcat", "t u x s z x s z", amount=2 * prod(_WHOLE),
        less=(("bytes", 2 * prod(_WHOLE)),), attrs=(("axis", 1),),
    ),
    ByteProbe("bytes scaled", _WHOLE, "QLinearAdd", "x s z z s z t u"),
    _convolution("byte product", (128, 128), 28, 3, amount=_products(28, 128, 128)),
    _convolution("byte part", (32, 32), 28, 3, amount=28 * 28, less=(("byte product", _products(28, 32, 32)),)),
    _convolution("byte product of group", (128, 128), 28, 3, group=2, amount=_products(28, 64, 128)),
    _convolution(
        "byte group", (128, 128), 28, 3, group=16, amount=16 * 28 * 28,
        less=(("byte product of group", _products(28, 8, 128)),),
    ),
    _convolution(
        "taps of three", (3, 16), 112, 3, amount=9 * 112 * 112,
        less=(("byte product", _products(112, 4, 16)), ("byte part", 112 * 112)),
    ),
    _depthwise("taps of lanes", 96),
    _depthwise("taps of eights", 104),
    _depthwise("taps of odd channels", 100),
    ByteProbe(
        "bytes of gemm", _ROWS, "QGemm", "x s z w s o - t u", (_ROWS[1], _WIDE), _ROWS[0] * _WIDE, _GEMM,
        (("alpha", 1.0),),
    ),
    ByteProbe(
        "bytes of product", _ROWS, "QLinearMatMul", "x s z w s o t u", (_ROWS[1], _WIDE), _ROWS[0] * _WIDE, _GEMM
    ),
    ByteProbe("bytes between orders", _WHOLE, "Transpose", "x", attrs=(("perm", (0, 2, 3, 1)),)),
    ByteProbe("image pass", _WHOLE, "Concat", "x x", amount=2 * prod(_WHOLE), attrs=(("axis", 1),)),
    ByteProbe("image pass last", _LAST, "Concat", "x x", amount=2 * prod(_LAST), attrs=(("axis", 3),)),
    _pool("maximum of bytes", "MaxPool", "x", _WHOLE),
    _pool("maximum of bytes last", "NhwcMaxPool", "x", _LAST),
    _pool("average of bytes", "QLinearAveragePool", "x s z t u", _WHOLE),
    _pool("average of bytes last", "QLinearAveragePool", "x s z t u", _LAST, last=True),
)  # fmt: skip
"""Sizes that fit the cache, as the built-in rates have it."""
