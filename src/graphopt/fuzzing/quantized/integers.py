"""Random networks of integer operators, and of operators with dynamic scales."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from graphopt.fuzzing.quantized.growing import Grown, Parameters, QuantizedBuilder, Shape, model

_CONTRIB = "com.microsoft::"
_OF_TYPE = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}


class Integers(QuantizedBuilder):
    """Grows a network whose `values` are integers."""

    def of(self, scalars: bool = True) -> Parameters:
        """Eight-bit parameters with both scale and zero point, which the operators demand."""
        dtype = "int8" if self.signed else "uint8"
        scale = np.abs(self.scale())
        scale = scale.reshape(()) if scalars else scale
        zero = self.rng.choice([0, 4, 100])
        return Parameters(scale, np.array(zero, dtype).reshape(scale.shape), dtype)

    def read(self, x: str, p: Parameters, scalars: bool = True) -> list[str]:
        """A value, its scale and its zero point, as operands."""
        assert p.zero is not None
        form = () if scalars else p.scale.shape
        return [x, self.const(p.scale.reshape(form)), self.const(p.zero.reshape(form))]

    def weights(self, shape: Shape, axis: int, alike: bool = False) -> list[str]:
        """A constant weight with its parameters; `alike` gives scale and zero point the same shape."""
        dtype = np.int8 if self.signed or self.sometimes(0.7) else np.uint8
        low, high = (-64, 64) if dtype is np.int8 else (0, 255)
        scale = self.scale(shape[axis] if self.sometimes() else 0)
        zero = np.full(scale.shape if alike or self.sometimes() else (), 0 if self.sometimes() else 3, dtype)
        return [self.const(self.numbers(shape, low, high, dtype)), self.const(scale), self.const(zero)]

    def made(self, op: str, inputs: list[str], shape: Shape, p: Parameters, **attrs: Any) -> None:
        """Add an operator whose result has these parameters."""
        self.values.append((self.op(op, inputs, **attrs), shape, p))

    def chosen(self, rank: int | None = None) -> tuple[str, Shape, Parameters]:
        """One of the latest values, with its parameters."""
        x, shape, p = self.pick(rank)
        assert p is not None
        return x, shape, p


def convolution(b: Integers) -> None:
    """A quantized convolution, sometimes with channels last."""
    x, shape, p = b.chosen(4)
    if len(shape) != 4:
        return
    made, size, after = b.rng.choice([1, 3, 4, 16]), b.rng.choice([1, 3]), b.of(scalars=False)
    weights, pad = b.weights((made, shape[1], size, size), 0), b.rng.choice([0, 1])
    extent = [d + 2 * pad - size + 1 for d in shape[2:]]
    if min(extent) < 1:
        return
    bias = [b.const(b.numbers((made,), -4000, 4000, np.int32))] if b.sometimes() else []
    inputs = [*b.read(x, p, scalars=False), *weights, *b.read("", after, scalars=False)[1:], *bias]
    if b.sometimes(0.15):
        y = b.op("Transpose", [x], perm=[0, 2, 3, 1])
        y = b.op(f"{_CONTRIB}QLinearConv", [y, *inputs[1:]], pads=[pad] * 4, channels_last=1)
        b.made("Transpose", [y], (shape[0], made, *extent), after, perm=[0, 3, 1, 2])
        return
    domain = _CONTRIB if b.sometimes(0.1) else ""
    b.made(f"{domain}QLinearConv", inputs, (shape[0], made, *extent), after, pads=[pad] * 4)


def product(b: Integers) -> None:
    """A quantized product."""
    x, shape, p = b.chosen()
    made, after = b.rng.choice([1, 3, 8]), b.of(scalars=False)
    if len(shape) == 2 and b.sometimes():
        trans = b.sometimes()
        weights = b.weights((made, shape[1]) if trans else (shape[1], made), 0 if trans else 1, alike=True)
        bias = b.const(b.numbers((made,), -4000, 4000, np.int32)) if b.sometimes() else ""
        inputs = [*b.read(x, p), *weights, bias, *b.read("", after)[1:]]
        b.made(f"{_CONTRIB}QGemm", inputs, (shape[0], made), after, transB=int(trans))
    elif len(shape) >= 2:
        inputs = [*b.read(x, p), *b.weights((shape[-1], made), 1), *b.read("", after, scalars=False)[1:]]
        b.made("QLinearMatMul", inputs, (*shape[:-1], made), after)


def whole_sums(b: Integers) -> None:
    """A convolution or a matrix product with an integer result, of signed or unsigned operands."""
    x, shape, p = b.chosen()
    assert p.zero is not None
    made, size = b.rng.choice([1, 3, 8]), b.rng.choice([1, 3])
    points = [b.const(p.zero.reshape(()))] if b.sometimes() else []
    result: Shape = (*shape[:-1], made)
    if len(shape) == 4:
        weight, result = b.weights((made, shape[1], size, size), 0)[0], (shape[0], made, *shape[2:])
        y = b.op("ConvInteger", [x, weight, *points], pads=[size // 2] * 4)
    else:
        weight = b.weights((shape[-1], made), 1)[0]
        y = b.op("MatMulInteger", [x, weight, *points])
    after = b.of()
    scaled = b.op("Mul", [b.op("Cast", [y], to=TensorProto.FLOAT), b.const(np.array(2.0**-9, np.float32))])
    b.values.append((b.quantize(scaled, after), result, after))


def binary(b: Integers) -> None:
    """A quantized sum or product of two values."""
    x, shape, p = b.chosen()
    y, _, q = b.rng.choice([v for v in b.values[-6:] if v[1] == shape])
    after = b.of()
    assert q is not None
    kind = b.rng.choice(["QLinearAdd", "QLinearMul"])
    b.made(_CONTRIB + kind, [*b.read(x, p), *b.read(y, q), *b.read("", after)[1:]], shape, after)


def concat(b: Integers) -> None:
    """The concatenation of two values."""
    x, shape, p = b.chosen()
    y, _, q = b.rng.choice([(x, shape, p), *[v for v in b.values[-6:] if v[1] == shape]])
    axis, after = b.rng.randrange(len(shape)), b.of()
    assert q is not None
    result = (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])
    if max(result) > 32:
        return
    if p == q and b.sometimes():
        b.made("Concat", [x, y], result, p, axis=axis)
        return
    inputs = [*b.read("", after)[1:], *b.read(x, p), *b.read(y, q)]
    b.made(f"{_CONTRIB}QLinearConcat", inputs, result, after, axis=axis)


def unary(b: Integers) -> None:
    """A quantized activation."""
    x, shape, p = b.chosen()
    after = b.of()
    kinds = ["QLinearLeakyRelu"] if b.exact else ["QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax"]
    kind = b.rng.choice(kinds)
    own: dict[str, dict[str, Any]] = {
        "QLinearLeakyRelu": {"alpha": 0.25}, "QLinearSoftmax": {"axis": -1, "opset": b.opset},
    }  # fmt: skip
    attrs = own.get(kind, {})
    b.made(_CONTRIB + kind, [*b.read(x, p), *b.read("", after)[1:]], shape, after, **attrs)


def pool(b: Integers) -> None:
    """A pool of eight-bit integers."""
    x, shape, p = b.chosen(4)
    if len(shape) != 4 or min(shape[2:]) < 2:
        return
    kind, extent = b.rng.choice(["MaxPool", "QLinearAveragePool", "QLinearGlobalAveragePool"]), (
        shape[2] // 2, shape[3] // 2)  # fmt: skip
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    after = b.of()
    if kind == "MaxPool":
        if b.opset >= 12:
            b.made("MaxPool", [x], (*shape[:2], *extent), p, **window)
    elif kind == "QLinearAveragePool":
        inputs = [*b.read(x, p), *b.read("", after)[1:]]
        b.made(_CONTRIB + kind, inputs, (*shape[:2], *extent), after, **window)
    elif not b.exact or shape[2:] in ((4, 4), (2, 2)):
        inputs = [*b.read(x, p), *b.read("", after)[1:]]
        b.made(_CONTRIB + kind, inputs, (*shape[:2], 1, 1), after, channels_last=0)


def movement(b: Integers) -> None:
    """An operator that moves or clips eight-bit integers."""
    x, shape, p = b.chosen()
    rank, kind = len(shape), b.rng.randrange(4)
    if kind < 2:
        perm = b.rng.choice([[0, 2, 3, 1], [0, 3, 1, 2]]) if rank == 4 else b.rng.sample(range(rank), rank)
        b.made("Transpose", [x], tuple(shape[a] for a in perm), p, perm=perm)
    elif kind == 2:
        flat = (shape[0], int(np.prod(shape[1:])))
        b.made("Reshape", [x, b.const(np.array(flat, np.int64))], flat, p)
    elif b.opset >= 12:
        low, high = (-5, 90) if b.signed else (5, 200)
        limits = [b.const(np.array(v, p.dtype)) for v in (low, high)]
        b.made("Clip", [x, *limits], shape, p)


def through_floats(b: Integers) -> None:
    """A float operator between dequantize and quantize."""
    x, shape, p = b.chosen()
    y = b.op(b.rng.choice(["Relu", "Abs", "Neg"]), [b.dequantize(x, p)])
    after = b.of(scalars=False)
    b.values.append((b.quantize(y, after), shape, after))


INTEGERS: Sequence[Callable[[Integers], None]] = (
    convolution, convolution, product, whole_sums, binary, binary, concat, unary, pool, movement, movement,
    through_floats,
)  # fmt: skip


def random_operators(seed: int, exact: bool, steps: int = 7) -> Grown:
    """A network of operators on integers; equal seeds give equal models.

    Args:
        seed: the seed.
        exact: whether float and integer computations must agree bit for bit.
        steps: how many values it computes.
    """
    b = Integers(seed, exact)
    size, channels = b.rng.choice([4, 5, 8]), b.rng.choice([2, 3, 4, 16])
    shape = b.rng.choice([(1, channels, size, size), (2, channels, size, size), (2, 8), (2, 3, 8)])
    p = b.of()
    x = b.input(shape, _OF_TYPE[p.dtype]) if b.sometimes() else b.quantize(b.input(shape), p)
    if len(shape) == 4 and b.sometimes(0.3):  # a network that starts with channels last
        x, shape = b.op("Transpose", [x], perm=[0, 3, 1, 2]), (shape[0], shape[3], shape[1], shape[2])
    b.values.append((x, shape, p))
    b.grow(INTEGERS, steps, attempts=3)
    for name, made, q in b.values[-2:]:
        assert q is not None
        if b.sometimes():
            b.output(b.dequantize(name, q), len(made))
        else:
            b.output(name, len(made), _OF_TYPE[q.dtype])
    if not b.outputs:
        b.output(b.op("Identity", [x]), len(shape), _OF_TYPE[p.dtype])
    return model(b)


def _quantized_at_run_time(b: QuantizedBuilder, x: str) -> list[str]:
    if not hasattr(b, "found"):
        b.found = {}  # type: ignore[attr-defined]
    found: dict[str, list[str]] = b.found  # type: ignore[attr-defined]
    if x not in found or b.sometimes(0.3):
        b.op("DynamicQuantizeLinear", [x], 3)
        found[x] = list(b.nodes[-1].output)
    return found[x]


def _weight(b: QuantizedBuilder, shape: Shape, columns: int) -> tuple[list[str], int]:
    """An eight-bit weight, an optional zero point, and the number of scales."""
    dtype: Any = b.rng.choice([np.int8, np.uint8])
    low, high = (-128, 127) if dtype is np.int8 else (0, 255)
    count = columns if b.sometimes() else 0
    kind = b.rng.randrange(4)
    form = () if kind == 0 else (1,) if kind == 1 else (columns,) if count else ()
    zero = "" if kind == 3 else b.const(np.full(form, b.rng.choice([0, 7]), dtype))
    return [b.const(b.numbers(shape, low, high, dtype)), zero], count


def dynamic_product(b: QuantizedBuilder) -> None:
    """A product of a dynamically quantized operand."""
    x, shape, _ = b.pick()
    if len(shape) < 2:
        return
    made = b.rng.choice([1, 3, 8])
    (weight, zero), count = _weight(b, (shape[-1], made), made)
    q, scale, point = _quantized_at_run_time(b, x)
    y = b.op("Cast", [b.op("MatMulInteger", [q, weight, point, zero])], to=TensorProto.FLOAT)
    own = b.scale(count)
    own = own.reshape(1, -1) if count and b.sometimes(0.2) else own
    both = [scale, b.const(own)] if b.sometimes() else [b.const(own), scale]
    scales = b.op("Mul", both)
    y = b.op("Mul", [y, scales] if b.sometimes() else [scales, y])
    if b.sometimes(0.7):
        form = b.rng.choice([(made,), (1, made), (), (1,)])
        bias = b.const(np.asarray(b.numbers(form, -9, 9, np.float32) / 7, np.float32))
        y = b.op("Add", [y, bias] if b.sometimes() else [bias, y])
    b.values.append((b.op("Relu", [y]) if b.sometimes(0.3) else y, (*shape[:-1], made), None))


def dynamic_convolution(b: QuantizedBuilder) -> None:
    """A convolution of a dynamically quantized operand."""
    x, shape, _ = b.pick(4)
    if len(shape) != 4:
        return
    made, size = b.rng.choice([1, 4, 8]), b.rng.choice([1, 3])
    (weight, zero), count = _weight(b, (made, shape[1], size, size), 0)
    q, scale, point = _quantized_at_run_time(b, x)
    pads = [size // 2] * 4
    y = b.op("Cast", [b.op("ConvInteger", [q, weight, point, zero], pads=pads)], to=TensorProto.FLOAT)
    y = b.op("Mul", [y, b.op("Mul", [scale, b.const(b.scale(count))])])
    if b.sometimes():
        y = b.op("Add", [y, b.const(b.numbers((1, made, 1, 1), -9, 9, np.float32) / 7)])
    b.values.append((y, (shape[0], made, *shape[2:]), None))


def between(b: QuantizedBuilder) -> None:
    """A float operator between dynamically quantized ones."""
    x, shape, _ = b.pick()
    kind = b.rng.randrange(4)
    if kind == 0:
        perm = [0, 3, 1, 2] if len(shape) == 4 else [*range(len(shape))[:-2], len(shape) - 1, len(shape) - 2]
        b.values.append((b.op("Transpose", [x], perm=perm), tuple(shape[a] for a in perm), None))
    elif kind == 1:
        b.values.append((b.op(b.rng.choice(["Relu", "Tanh", "Neg", "Abs"]), [x]), shape, None))
    elif kind == 2:
        other = b.rng.choice([v for v in b.values[-5:] if v[1] == shape])[0]
        b.values.append((b.op("Add", [x, other]), shape, None))
    elif len(shape) > 2:
        flat = (shape[0], int(np.prod(shape[1:])))
        b.values.append((b.op("Reshape", [x, b.const(np.array(flat, np.int64))]), flat, None))


def random_dynamic(seed: int, steps: int = 4) -> Grown:
    """A network that quantizes at run time; equal seeds give equal models.

    Args:
        seed: the seed.
        steps: how many values it computes.
    """
    b = QuantizedBuilder(seed, exact=False, opset=[11, 13, 17, 21][seed % 4])
    shape = b.rng.choice([(2, 8), (1, 8), (2, 3, 8), (1, 2, 3, 4), (2, 4, 5, 5)])
    b.values.append((b.input(shape), shape, None))
    b.grow((dynamic_product, dynamic_product, dynamic_convolution, between), steps, attempts=3)
    for name, made, _ in b.values[-2:]:
        b.output(name, len(made))
    return model(b)
