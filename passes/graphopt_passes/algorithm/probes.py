"""Measures the rates of `graphopt_passes.algorithm.work` on this machine: each kind of work alone, by its kernel."""

from __future__ import annotations

import re
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

from graphopt.pipeline.tuning import Progress
from graphopt.records import dataclass
from graphopt.system.machine import Target
from graphopt_passes.algorithm.work import RATES
from graphopt_passes.layout.tuning import check_is_here, profiled

_ROUNDS = 12
_WARM = 2
_IMAGE = (1, 64, 56, 56)
_ROWS = (1, 128, 768)


@dataclass(frozen=True, slots=True)
class Probe:
    """A model whose timed operator does one kind of work, possibly besides kinds measured before.

    Attributes:
        kind: the kind.
        dims: shape of its operand, `x`.
        body: the operators, the timed one last.
        amount: amount of work; 0 for one unit per element.
        less: amounts of other kinds, whose time is subtracted.
        constants: constants of the text form.
        opset: the opset.
        other: shape of a second operand, `u`, if any.
        weights: shape of weights in bytes, `w`, if any.
        unsigned: whether the weights are unsigned.
        dtype: element type of the operands.
    """

    kind: str
    dims: tuple[int, ...]
    body: str
    amount: float = 0
    less: tuple[tuple[str, float], ...] = ()
    constants: str = ""
    opset: int = 18
    other: tuple[int, ...] = ()
    weights: tuple[int, ...] = ()
    unsigned: bool = False
    dtype: str = "float"

    def model(self) -> onnx.ModelProto:
        operands = [f"{self.dtype}[{','.join(map(str, self.dims))}] x"]
        operands += [f"{self.dtype}[{','.join(map(str, self.other))}] u"] if self.other else []
        model = parser.parse_model(
            f'<ir_version: 9, opset_import: ["" : {self.opset}, "com.microsoft" : 1]> '
            f"g ({', '.join(operands)}) => (float y) <{self.constants}> {{ {self.body} }}"
        )
        model.graph.output[0].ClearField("type")
        if self.weights:
            weights = np.random.default_rng(0).integers(-60, 60, self.weights).astype(np.int8)
            weights = (weights.astype(np.int16) + 128).astype(np.uint8) if self.unsigned else weights
            model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
        return model


def nanoseconds(probe: Probe) -> float:
    """The minimum time of the timed operator: other load on the machine only adds to it."""
    model = probe.model()
    (events,) = profiled([model], _ROUNDS + _WARM, lambda what, part: None, probe.kind)
    times = [event["dur"] for event in events if event["args"]["op_name"] == model.graph.node[-1].op_type]
    return 1e3 * float(min(times[_WARM:]))


def _reduction(kind: str, op: str, dims: tuple[int, ...], axes: str) -> Probe:
    return Probe(kind, dims, f"y = {op} (x, a)", constants=f"int64[{axes.count(',') + 1}] a = {{{axes}}}")


def _resize(kind: str, settings: str, scale: str, amount: float, dims: tuple[int, ...] = (1, 64, 28, 28)) -> Probe:
    return Probe(kind, dims, f"y = Resize <{settings}> (x, , s)", amount, constants=f"float[4] s = {{{scale}}}")


_NUMBERS = {
    "s": "float s = {0.02}", "t": "float t = {0.03}", "z": "uint8 z = {120}", "v": "uint8 v = {100}",
    "o": "int8 o = {0}",
}  # fmt: skip
"""Scales and zero points of an operand, the result, and weights."""

_Less = tuple[tuple[str, float], ...]


def _bytes(
    kind: str,
    dims: tuple[int, ...],
    body: str,
    amount: float = 0,
    less: _Less = (),
    *,
    weights: tuple[int, ...] = (),
    unsigned: bool = False,
) -> Probe:
    """A probe on unsigned bytes, whose operators may read `_NUMBERS`."""
    constants = ", ".join(text for name, text in _NUMBERS.items() if re.search(rf"\b{name}\b", body))
    return Probe(kind, dims, f"y = {body}", amount, less, constants, weights=weights, unsigned=unsigned, dtype="uint8")


def _convolution(
    kind: str, channels: tuple[int, int], side: int, amount: float, less: _Less = (), *, group: int = 1,
    unsigned: bool = False,
) -> Probe:  # fmt: skip
    """A 3x3 convolution with channels last."""
    inputs, outputs = channels
    attrs = f"channels_last = 1, group = {group}, pads = [1, 1, 1, 1], kernel_shape = [3, 3]"
    body = f"com.microsoft.QLinearConv <{attrs}> (x, s, z, w, s, {'z' if unsigned else 'o'}, t, v)"
    weights = (outputs, inputs // group, 3, 3)
    return _bytes(kind, (1, side, side, inputs), body, amount, less, weights=weights, unsigned=unsigned)


def _depthwise(kind: str, channels: int) -> Probe:
    return _convolution(kind, (channels, channels), 28, 9 * 28 * 28 * channels, group=channels)


def _products(side: int, inputs: int, outputs: int) -> int:
    return side * side * 9 * inputs * outputs


def _product(kind: str, body: str) -> Probe:
    """A product of rows of 32 elements with a matrix of 256 columns."""
    return _bytes(kind, (512, 32), body, 512 * 256, (("byte product", 512 * 32 * 256),), weights=(32, 256))


def _masked(number: float) -> str:
    """A constant mask with `number` for every second value of a row, and 0 for the others."""
    return f"float[768] m = {{{', '.join(['0', str(number)] * 384)}}}"


_SOFTMAX: _Less = (("softmax", 128 * 768), ("softmax row", 128))
_LAST, _CUT = (1, 56, 56, 64), (1, 56, 56, 40)
_WINDOW = "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]"
_AVERAGE = "com.microsoft.QLinearAveragePool"
_PAIRS, _LARGE = 8192, 4 * prod((1, 64, 28, 28))
_FLOOR = 'coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"'
PROBES = (
    Probe("kernel", (1,), "y = Relu (x)"),
    Probe("element", _IMAGE, "y = Relu (x)"),
    Probe("move", _IMAGE, "y = Transpose <perm = [0, 2, 3, 1]> (x)"),
    Probe("softmax", _ROWS, "y = Softmax (x)"),
    Probe("softmax row", (_PAIRS, 2), "y = Softmax (x)", _PAIRS, (("softmax", 2 * _PAIRS),)),
    Probe("softmax apart", (1, 64, 28, 28), "y = Softmax <axis = 1> (x)"),
    _reduction("reduce", "ReduceSum", _IMAGE, "2, 3"),
    _reduction("reduce rows", "ReduceSum", (128, 768), "0"),
    _reduction("reduce leading", "ReduceSum", _IMAGE, "1"),
    _reduction("reduce powers", "ReduceSumSquare", _ROWS, "2"),
    _reduction("reduce logarithms", "ReduceLogSumExp", _ROWS, "2"),
    Probe("log", _IMAGE, "a = Abs (x) y = Log (a)"),
    Probe("power", _IMAGE, "a = Abs (x) y = Pow (a, e)", constants="float e = {0.5}"),
    Probe("square", _IMAGE, "y = Pow (x, e)", constants="float e = {2}"),
    Probe("softplus", _IMAGE, "y = Softplus (x)"),
    Probe("elu", _IMAGE, "y = Elu (x)"),
    Probe("celu", _IMAGE, "y = Celu (x)"),
    Probe("read", (64, 3136), "y = MatMul (u, x)", other=(1, 64)),
    Probe("column", (784, 64), "y = MatMul (x, c)", constants=f"float[64,1] c = {{{', '.join(['1'] * 64)}}}"),
    Probe("product apart", (16, 4096), "y = MatMul (x, u)", other=(4096,)),
    Probe("product row", (8400, 16), "y = MatMul (x, u)", 8400, (("product apart", 8400 * 16),), other=(16,)),
    Probe("product", (128, 128), "y = MatMul (x, u)", 128 * 128 * 64, other=(128, 64)),
    Probe(
        "matrix", (1024, 2, 8), "y = MatMul (u, x)", 1024, (("product", 1024 * 8 * 2 * 8), ("read", 1024 * 8 * 8)),
        other=(8, 2),
    ),
    Probe("underflow", (128, 768), "s = Add (x, m) y = Softmax (s)", 64 * 768, _SOFTMAX, _masked(-1000)),
    Probe(
        "denormal product", (128, 768), "s = Add (x, m) p = Softmax (s) y = MatMul (p, u)", 64 * 768 * 64,
        (("product", 128 * 768 * 64),), _masked(-95), other=(768, 64),
    ),
    Probe("sum apart", (1, 12, 128, 128), "y = CumSum (x, a)", constants="int64 a = {3}"),
    Probe(
        "einsum", (1, 128, 12, 64), 'y = Einsum <equation = "bqhd,bkhd->bhqk"> (x, u)', 393216,
        (("product", 128 * 128 * 768),), other=(1, 128, 12, 64),
    ),
    Probe("depth to space", _IMAGE, "y = DepthToSpace <blocksize = 2> (x)"),
    Probe(
        "gather apart", (1, 900, 256), "i = Expand (p, s) y = GatherElements <axis = 1> (x, i)", 300 * 256,
        constants="int64[1,1,1] p = {3}, int64[3] s = {1, 300, 256}",
    ),
    Probe(
        "gather last", _IMAGE, "y = Gather <axis = 3> (x, i)", prod(_IMAGE) // 14,
        constants="int64[4] i = {0, 9, 30, 7}",
    ),
    Probe("average", _IMAGE, "y = AveragePool <kernel_shape = [3, 3]> (x)", 9 * 64 * 54 * 54, opset=19),
    Probe("global pool", _IMAGE, "y = GlobalAveragePool (x)"),
    _resize("resize nearest", 'mode = "nearest"', "1, 1, 2, 2", _LARGE),
    _resize("resize doubled", f'mode = "nearest", {_FLOOR}', "1, 1, 2, 2", _LARGE),
    _resize("resize linear", 'mode = "linear"', "1, 1, 2, 2", 4 * 8 * 56 * 56, (1, 8, 56, 56)),
    _resize("resize cubic", 'mode = "cubic"', "1, 1, 2, 2", 4 * 16 * 16 * 16, (1, 16, 16, 16)),
    _resize("resize filtered", 'mode = "linear", antialias = 1', "1, 1, 2, 2", 5 * prod((1, 64, 28, 28))),
    _resize("resize last", 'mode = "cubic"', "1, 2, 2, 1", 4 * 16 * 16 * 64, (1, 16, 16, 64)),
    Probe("normalize", _ROWS, "y = LayerNormalization (x, u)", other=(768,)),
    Probe("position", (1, 128, 1000), "y = ArgMax <axis = 2> (x)"),
    Probe("position of few", (1, 2, 128, 128), "y = ArgMax <axis = 1> (x)"),
    Probe("first of many", (1, 16, 8192), "y, i = TopK (x, k)", constants="int64[1] k = {1}"),
    Probe(
        "first", (_PAIRS, 4), "y, i = TopK (x, k)", _PAIRS, (("first of many", 4 * _PAIRS),),
        constants="int64[1] k = {1}",
    ),
    Probe("taps", _IMAGE, "y = Conv <group = 64> (x, u)", 9 * 64 * 54 * 54, other=(64, 1, 3, 3)),
    Probe(
        "strided taps", _IMAGE, "y = Conv <group = 64, strides = [2, 2]> (x, u)", prod(_IMAGE), other=(64, 1, 2, 2)
    ),
    Probe("prelu", _IMAGE, "y = PRelu (x, u)", other=(64, 1, 1)),
    Probe("selu", _IMAGE, "y = Selu (x)"),
    Probe("shrink", _IMAGE, "y = Shrink <bias = 0.5> (x)"),
    Probe("lrn", (1, 96, 27, 27), "y = LRN <size = 5> (x)"),
    Probe("channel taps", (1, 1, 96, 729), "y = AveragePool <kernel_shape = [5, 1]> (x)", 5 * 92 * 729),
    Probe("lp normalization", _ROWS, "y = LpNormalization (x)"),
    Probe(
        "where", (12, 128, 128), "m = Greater (u, z) y = Where (m, x, z)", constants="float z = {0}", other=(128, 128)
    ),
    Probe("bound", (12, 128, 128), "y = Min (x, u)", other=(128, 128)),
    Probe(
        "columns of volumes", (1, 32, 8, 16, 16), "y = ConvTranspose <strides = [2, 2, 2]> (x, u)", 8 * 16 * 2048,
        (("product", 32 * 2048 * 128),), other=(32, 16, 2, 2, 2),
    ),
    Probe(
        "columns of images", (8, 32, 16, 16), "y = ConvTranspose <strides = [2, 2]> (x, u)", 8 * 16 * 2048,
        (("product", 32 * 2048 * 128),), other=(32, 32, 2, 2),
    ),
    Probe(
        "transposed taps", (1, 64, 28, 28), "y = ConvTranspose <strides = [2, 2], group = 64> (x, u)", 16 * 64 * 784,
        other=(64, 1, 4, 4),
    ),
    Probe("spectrum", (64, 512, 1), "y = DFT <axis = 1, onesided = 1> (x)"),
    Probe("spectrum of any length", (16, 400, 1), "y = DFT <axis = 1, onesided = 1> (x)"),
    _resize("resize linear last", 'mode = "linear"', "1, 2, 2, 1", _LARGE, (1, 28, 28, 64)),
    Probe("expand last", (64, 56, 1), "y = Expand (x, s)", prod(_IMAGE), constants="int64[3] s = {64, 56, 56}"),
    Probe("tile last", (64, 56, 1), "y = Tile (x, s)", prod(_IMAGE), constants="int64[3] s = {1, 1, 56}"),
    Probe("move apart", _IMAGE, "y = Transpose <perm = [0, 3, 2, 1]> (x)"),
    Probe(
        "gathered row", (4096, 4), "y = Gather (x, i)", 4096, (("element", 4 * 4096),),
        constants=f"int64[4096] i = {{{', '.join(str(at * 65 % 4096) for at in range(4096))}}}",
    ),
    Probe(
        "rotate", (1, 12, 128, 64), "y = com.microsoft.RotaryEmbedding (x, p, u, u)", constants="int64[1] p = {0}",
        other=(128, 32),
    ),
    Probe(
        "rotate pairs", (1, 12, 128, 64), "y = com.microsoft.RotaryEmbedding <interleaved = 1> (x, p, u, u)",
        constants="int64[1] p = {0}", other=(128, 32),
    ),
    Probe("floats between orders", _IMAGE, "y = Transpose <perm = [0, 2, 3, 1]> (x)"),
    _bytes("bytes", _IMAGE, "Concat <axis = 1> (x, x)", 2 * prod(_IMAGE)),
    _bytes("bytes cut", _CUT, "Concat <axis = 3> (x, x)", 2 * prod(_CUT)),
    _bytes(
        "bytes looked up", _IMAGE, "com.microsoft.QLinearConcat <axis = 1> (t, v, x, s, z, x, s, z)", 2 * prod(_IMAGE),
        (("bytes", 2 * prod(_IMAGE)),),
    ),
    _bytes("bytes scaled", _IMAGE, "com.microsoft.QLinearAdd (x, s, z, z, s, z, t, v)"),
    _convolution("byte product", (128, 128), 28, _products(28, 128, 128)),
    _convolution("byte part", (32, 32), 28, 28 * 28, (("byte product", _products(28, 32, 32)),)),
    _convolution("byte product of group", (128, 128), 28, _products(28, 64, 128), group=2),
    _convolution(
        "byte group", (128, 128), 28, 16 * 28 * 28, (("byte product of group", _products(28, 8, 128)),), group=16
    ),
    _convolution(
        "taps of three", (3, 16), 112, 9 * 112 * 112,
        (("byte product", _products(112, 4, 16)), ("byte part", 112 * 112)),
    ),
    _depthwise("taps of lanes", 96),
    _depthwise("taps of eights", 104),
    _depthwise("taps of odd channels", 100),
    _product("bytes of gemm", "com.microsoft.QGemm <alpha = 1.0> (x, s, z, w, s, o, , t, v)"),
    _product("bytes of product", "QLinearMatMul (x, s, z, w, s, o, t, v)"),
    _convolution("byte sixteen", (32, 16), 56, _products(56, 32, 1)),
    _convolution("byte rest", (32, 12), 56, _products(56, 32, 1), (("byte sixteen", _products(56, 32, 1)),)),
    _convolution("unsigned eight", (32, 8), 56, _products(56, 32, 1), unsigned=True),
    _convolution("unsigned sixteen", (32, 16), 56, _products(56, 32, 1), unsigned=True),
    _bytes(
        "byte rest written", (1, 112, 112, 16),
        "com.microsoft.QLinearConv <channels_last = 1> (x, s, z, w, s, o, t, v)", 112 * 112 * 63,
        (("byte product", 112 * 112 * 16 * 63), ("byte rest", 112 * 112 * 16)), weights=(63, 16, 1, 1),
    ),
    Probe(
        "row cut", (12544, 64), "y = Slice (x, b, e, a)", 12544, dtype="uint8",
        constants="int64[1] b = {0}, int64[1] e = {63}, int64[1] a = {1}",
    ),
    _bytes(
        "softmax of bytes", (3, 197, 197), "com.microsoft.QLinearSoftmax <axis = -1, opset = 13> (x, s, z, t, v)"
    ),
    _bytes("bytes multiplied", _IMAGE, "com.microsoft.QLinearMul (x, s, z, z, s, v, t, v)"),
    Probe(
        "short row", (1, 56, 56, 16), "y = Mul (x, c)", 56 * 56, (("element", 56 * 56 * 16),),
        constants=f"float[16] c = {{{', '.join(['0.5'] * 16)}}}",
    ),
    _bytes(
        "bytes row", (1, 28, 28, 64), "com.microsoft.QLinearAdd (x, s, z, w, s, z, t, v)", 28 * 28,
        (("bytes scaled", 28 * 28 * 64),), weights=(64,), unsigned=True,
    ),
    _bytes("bytes to floats", _IMAGE, "DequantizeLinear (x, s, z)"),
    Probe("floats to bytes", _IMAGE, "y = QuantizeLinear (x, s, z)", constants="float s = {0.03}, uint8 z = {120}"),
    Probe(
        "halves to bytes", _IMAGE, "h = Cast <to = 10> (x) y = QuantizeLinear (h, s, z)", opset=21,
        constants="float16 s = {10158}, uint8 z = {120}",  # the bits of 0.03
    ),
    Probe(
        "resize linear of bytes", (1, 64, 28, 28), 'y = Resize <mode = "linear"> (x, , s)', 4 * 64 * 28 * 28,
        constants="float[4] s = {1, 1, 2, 2}", dtype="uint8",
    ),
    _bytes("bytes between orders", _IMAGE, "Transpose <perm = [0, 2, 3, 1]> (x)"),
    _bytes("image pass", _IMAGE, "Concat <axis = 1> (x, x)", 2 * prod(_IMAGE)),
    _bytes("image pass last", _LAST, "Concat <axis = 3> (x, x)", 2 * prod(_LAST)),
    _bytes("maximum of bytes", _IMAGE, f"MaxPool <{_WINDOW}> (x)", prod(_IMAGE) // 4),
    _bytes("maximum of bytes last", _LAST, f"com.microsoft.NhwcMaxPool <{_WINDOW}> (x)", prod(_LAST) // 4),
    _bytes("average of bytes", _IMAGE, f"{_AVERAGE} <{_WINDOW}> (x, s, z, t, v)", prod(_IMAGE) // 4),
    _bytes(
        "average of bytes last", _LAST, f"{_AVERAGE} <{_WINDOW}, channels_last = 1> (x, s, z, t, v)", prod(_LAST) // 4
    ),
)  # fmt: skip
"""Probes of sizes that fit the cache, as the built-in rates assume."""


class RatesTuner:
    """Measures the rates for all passes that write faster forms of operators."""

    def measure(self, target: Target, progress: Progress) -> dict[str, Any]:
        check_is_here(target)
        rates: dict[str, float] = {}
        for number, probe in enumerate(PROBES):
            progress(probe.kind, number / len(PROBES))
            others = rates.get("kernel", 0.0) + sum(rates[kind] * amount for kind, amount in probe.less)
            own = nanoseconds(probe) - others
            rates[probe.kind] = max(own / (probe.amount or prod(probe.dims)), _LEAST)
        return {"rates": rates}

    def rows(self, figures: dict[str, Any] | None, target: Target) -> list[tuple[str, ...]]:
        stated = (figures or {}).get("rates", {})
        return [("kind of work", "nanoseconds"), *((kind, f"{stated.get(kind, RATES[kind]):.3g}") for kind in RATES)]


_LEAST = 0.001
"""Lower bound of a rate in nanoseconds: no kernel is faster per element, and no rate is 0."""
