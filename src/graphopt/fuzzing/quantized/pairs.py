"""Random quantized networks of quantize and dequantize operators.

With `exact` all scales are powers of two and all operators are exact on their operands: every sum and product fits
into a float, so that float and integer computations must agree bit for bit. Otherwise scales are arbitrary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from graphopt.fuzzing.quantized.growing import TYPES, Grown, Parameters, QuantizedBuilder, Shape, model


def convolution(b: QuantizedBuilder) -> None:
    """A convolution with one or two spatial axes, grouped or not."""
    x, shape, p = b.pick(4)
    if len(shape) not in (3, 4):
        return
    channels, spatial = shape[1], len(shape) - 2
    group = channels if b.sometimes(0.25) else 1
    made = channels * b.rng.choice([1, 2]) if group > 1 else b.rng.choice([1, 3, 4, 8, 16])
    size = b.rng.choice([1, 1, 2, 3])
    pad, stride = b.rng.choice([0, 1]), b.rng.choice([1, 1, 2])
    if min(shape[2:]) + 2 * pad < size:
        return
    weight, scales = b.weight((made, channels // group, *[size] * spatial), 0)
    after = [(d + 2 * pad - size) // stride + 1 for d in shape[2:]]
    bias = b.bias(made, p, scales)
    y = b.op("Conv", [x, weight, bias], group=group, pads=[pad] * 2 * spatial, strides=[stride] * spatial)
    follow(b, y, (shape[0], made, *after))


def follow(b: QuantizedBuilder, y: str, shape: Shape) -> None:
    """An activation before the result is quantized, or none."""
    kind = b.rng.randrange(6)
    if kind == 0:
        y = b.op("Relu", [y])
    elif kind == 1:
        y = clipped(b, y, *b.rng.choice([(0.0, 6.0), (-1.0, 1.0), (0.5, 4.0)]))
    b.finish(y, shape)


def clipped(b: QuantizedBuilder, x: str, low: float, high: float) -> str:
    """`Clip` in the form of the opset."""
    if b.opset < 11:
        return b.op("Clip", [x], min=low, max=high)
    return b.op("Clip", [x, b.const(np.float32(low)), b.const(np.float32(high))])


def gemm(b: QuantizedBuilder, of: tuple[str, Shape, Parameters | None] | None = None) -> None:
    """A product with a constant matrix and a bias."""
    x, shape, p = of or b.pick(2)
    if len(shape) != 2:
        return
    made, trans = b.rng.choice([1, 3, 8]), b.sometimes()
    weight, scales = b.weight((made, shape[1]) if trans else (shape[1], made), 0 if trans else 1)
    bias = b.bias(made, p, scales)
    if not bias and b.opset < 11:
        bias = b.const(np.zeros(made, np.float32))
    extra: dict[str, Any] = {"alpha": 0.5} if b.sometimes(0.1) else {}
    follow(b, b.op("Gemm", [x, weight, bias], transB=int(trans), **extra), (shape[0], made))


def head(b: QuantizedBuilder) -> None:
    """The classifier of an image: a product with its pooled channels, or with all its elements, as a row."""
    x, shape, p = b.pick(4)
    if len(shape) != 4 or int(np.prod(shape[1:])) > 128:
        return
    y, flat = x, (shape[0], int(np.prod(shape[1:])))
    if b.sometimes():
        y, flat = b.op("GlobalMaxPool", [x]), shape[:2]
        if b.sometimes() and p is not None:
            y = b.dequantize(b.quantize(y, p), p)
    b.finish(b.op("Flatten", [y]), flat, p)
    gemm(b, b.values[-1])


def matmul(b: QuantizedBuilder) -> None:
    """A matrix product with a constant, or of the value with its own transpose."""
    x, shape, _ = b.pick()
    if len(shape) < 2:
        return
    if b.sometimes(0.3):
        perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        other, made = b.op("Transpose", [x], perm=perm), shape[-2]
        if b.sometimes():
            p = b.parameters()
            other = b.dequantize(b.quantize(other, p), p)
    else:
        made = b.rng.choice([1, 3, 8])
        batch = shape[:-2] if b.sometimes(0.2) else ()
        other, _ = b.weight((*batch, shape[-1], made), len(batch) + 1)
    follow(b, b.op("MatMul", [x, other]), (*shape[:-1], made))


def constant_operand(b: QuantizedBuilder, shape: Shape) -> str:
    """A dequantized constant: one number, a row, or an image."""
    kind = b.rng.randrange(3)
    form = () if kind == 0 else (1,) * (len(shape) - 1) + shape[-1:] if kind == 1 else shape
    p = b.parameters()
    info = np.iinfo(TYPES[p.dtype])
    if info.max > 255:
        p = Parameters(b.scale(), None, "uint8")
        info = np.iinfo(np.uint8)
    return b.dequantize(b.const(b.numbers(form, info.min, info.max, TYPES[p.dtype])), p)


def binary(b: QuantizedBuilder) -> None:
    """An operator of two values, or of a value and a constant."""
    x, shape, _ = b.pick()
    same = [v for v in b.values[-6:] if v[1] == shape]
    other = b.rng.choice(same)[0] if b.sometimes(0.6) else constant_operand(b, shape)
    inputs = [x, other] if b.sometimes() else [other, x]
    kinds = ["Add", "Mul"] if b.opset < 12 else ["Add", "Add", "Mul", "Sub", "Max", "Min"]
    follow(b, b.op(b.rng.choice(kinds), inputs), shape)


def where(b: QuantizedBuilder) -> None:
    """`Where` with a constant condition."""
    x, shape, p = b.pick()
    same = [v for v in b.values[-6:] if v[1] == shape]
    condition = b.const(np.array([b.sometimes() for _ in range(shape[-1])]))
    b.finish(b.op("Where", [condition, x, b.rng.choice(same)[0]]), shape, p)


def concat(b: QuantizedBuilder) -> None:
    """The concatenation of some values."""
    x, shape, p = b.pick()
    axis = b.rng.randrange(len(shape))
    like = [
        v
        for v in b.values[-6:]
        if len(v[1]) == len(shape)
        and all(d == e for a, (d, e) in enumerate(zip(v[1], shape, strict=True)) if a != axis)
    ]
    parts = [(x, shape, p)] + [b.rng.choice(like) for _ in range(b.rng.randint(0, 2))]
    if b.sometimes(0.3):
        parts.append(parts[0])
    result = (*shape[:axis], sum(part[1][axis] for part in parts), *shape[axis + 1 :])
    if result[axis] > 48:
        return
    b.finish(b.op("Concat", [part[0] for part in parts], axis=axis), result, p)


def pool(b: QuantizedBuilder) -> None:
    """A pool of windows or of the whole image."""
    x, shape, p = b.pick(4)
    if len(shape) != 4:
        return
    kind = b.rng.choice(["MaxPool", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"])
    if kind.startswith("Global"):
        if b.exact and kind == "GlobalAveragePool" and shape[2:] not in ((4, 4), (2, 2), (1, 1)):
            return
        b.finish(b.op(kind, [x]), (*shape[:2], 1, 1), b.unlike(p) if kind == "GlobalAveragePool" else p)
        return
    size, stride = 2, b.rng.choice([1, 2])
    attrs: dict[str, Any] = {"kernel_shape": [size, size], "strides": [stride, stride]}
    pad = 0
    if b.sometimes(0.4) and not (b.exact and kind == "AveragePool"):
        size, pad = 3, 1
        attrs |= {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        if kind == "AveragePool":
            attrs["count_include_pad"] = b.rng.randrange(2)
    after = [(d + 2 * pad - size) // stride + 1 for d in shape[2:]]
    if min(after) < 1:
        return
    b.finish(b.op(kind, [x], **attrs), (*shape[:2], *after), b.unlike(p) if kind == "AveragePool" else p)


def unary(b: QuantizedBuilder) -> None:
    """An operator of one value."""
    x, shape, p = b.pick()
    kinds = ["Relu", "LeakyRelu", "Clip", "PRelu", "Neg", "Abs", "Identity"]
    if not b.exact:
        kinds += ["Sigmoid", "Softmax", "Tanh", "HardSigmoid"]
    kind = b.rng.choice(kinds)
    if kind == "Clip":
        y = clipped(b, x, *b.rng.choice([(0.0, 6.0), (-1.0, 1.0), (0.0, 1.0)]))
    elif kind == "PRelu":
        form = b.rng.choice([(), (1,), (shape[1], *[1] * (len(shape) - 2))]) if len(shape) > 1 else ()
        y = b.op("PRelu", [x, b.const(np.asarray(b.numbers(form, -2, 2, np.float32) / 4, np.float32))])
    elif kind == "LeakyRelu":
        y = b.op(kind, [x], alpha=b.rng.choice([0.125, 0.25]))
    elif kind == "Softmax":
        y = b.op(kind, [x], axis=b.rng.randrange(len(shape)) if b.opset >= 13 else 1)
    else:
        y = b.op(kind, [x])
    b.finish(y, shape, p)


def transpose(b: QuantizedBuilder) -> None:
    """A transpose."""
    x, shape, p = b.pick()
    rank = len(shape)
    perm = b.rng.choice([[0, 2, 3, 1], [0, 3, 1, 2]]) if rank == 4 else b.rng.sample(range(rank), rank)
    b.finish(b.op("Transpose", [x], perm=perm), tuple(shape[a] for a in perm), p)


def reshape(b: QuantizedBuilder) -> None:
    """A reshape."""
    x, shape, p = b.pick()
    flat = (shape[0], int(np.prod(shape[1:])))
    if b.sometimes(0.3):
        b.finish(b.op("Flatten", [x]), flat, p)
        return
    target = b.rng.choice([flat, (*shape, 1), (1, *shape)])
    if len(target) < 5:
        b.finish(b.op("Reshape", [x, b.const(np.array(target, np.int64))]), target, p)


def unsqueeze(b: QuantizedBuilder) -> None:
    """An inserted axis."""
    x, shape, p = b.pick()
    if len(shape) < 4:
        lists: dict[str, Any] = {"axes": [1]} if b.opset < 13 else {}
        y = b.op("Unsqueeze", [x] if lists else [x, b.const(np.array([1], np.int64))], **lists)
        b.finish(y, (shape[0], 1, *shape[1:]), p)


def split(b: QuantizedBuilder) -> None:
    """A split into halves."""
    x, shape, p = b.pick()
    axis = b.rng.randrange(len(shape))
    if shape[axis] % 2 == 0:
        first = b.op("Split", [x], 2, axis=axis, **({"num_outputs": 2} if b.opset >= 18 else {}))
        half = (*shape[:axis], shape[axis] // 2, *shape[axis + 1 :])
        for name in (first, b.nodes[-1].output[1]):
            b.finish(name, half, p)


def part(b: QuantizedBuilder) -> None:
    """A part of an axis, by `Slice` or `Gather`."""
    x, shape, p = b.pick()
    axis = b.rng.randrange(len(shape))
    if b.sometimes():
        end = max(1, shape[axis] - 1)
        lists = [b.const(np.array([v], np.int64)) for v in (0, end, axis)]
        b.finish(b.op("Slice", [x, *lists]), (*shape[:axis], end, *shape[axis + 1 :]), p)
    else:
        picked = np.array([b.rng.randrange(shape[axis]) for _ in range(2)], np.int64)
        b.finish(b.op("Gather", [x, b.const(picked)], axis=axis), (*shape[:axis], 2, *shape[axis + 1 :]), p)


def larger(b: QuantizedBuilder) -> None:
    """An enlarged value: padded, resized, tiled or expanded."""
    x, shape, p = b.pick()
    kind = b.rng.choice(["Pad", "Resize", "Tile", "Expand"])
    if kind == "Pad" and len(shape) == 4:
        pads = [0, 0, 1, 0, 0, 0, 0, 1]
        y = b.op(kind, [x], pads=pads) if b.opset < 11 else b.op(kind, [x, b.const(np.array(pads, np.int64))])
        b.finish(y, (*shape[:2], shape[2] + 1, shape[3] + 1), p)
    elif kind == "Resize" and len(shape) == 4 and b.opset >= 11 and max(shape) < 12:
        scales = b.const(np.array([1, 1, 2, 2], np.float32))
        region = b.const(np.zeros(0, np.float32)) if b.opset < 13 else ""
        attrs: dict[str, Any] = {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        }
        b.finish(b.op(kind, [x, region, scales], **attrs), (*shape[:2], shape[2] * 2, shape[3] * 2), p)
    elif kind == "Tile" and int(np.prod(shape)) < 200:
        repeats = np.array([1] * (len(shape) - 1) + [2], np.int64)
        b.finish(b.op(kind, [x, b.const(repeats)]), (*shape[:-1], shape[-1] * 2), p)
    elif kind == "Expand":
        b.finish(b.op(kind, [x, b.const(np.array(shape, np.int64))]), shape, p)


def reduction(b: QuantizedBuilder) -> None:
    """A reduction, or the position of an extreme."""
    x, shape, p = b.pick()
    axis = b.rng.randrange(len(shape))
    keep = b.rng.randrange(2) if len(shape) > 2 else 1
    after = shape[:axis] + ((1,) if keep else ()) + shape[axis + 1 :]
    kind = b.rng.choice(["ReduceMax", "ReduceMin", "ReduceMean", "ArgMax", "ArgMin", "TopK"])
    if kind.startswith("Arg"):
        b.output(b.op(kind, [x], axis=axis, keepdims=keep), len(after), TensorProto.INT64)
    elif kind == "TopK":
        if b.opset >= 11:
            y = b.op(kind, [x, b.const(np.array([1], np.int64))], 2, axis=axis)
            b.finish(y, (*shape[:axis], 1, *shape[axis + 1 :]), p)
    elif kind != "ReduceMean" or not b.exact or shape[axis] in (1, 2, 4):
        lists: dict[str, Any] = {"axes": [axis]} if b.opset < 18 else {}
        inputs = [x] if lists else [x, b.const(np.array([axis], np.int64))]
        b.finish(b.op(kind, inputs, keepdims=keep, **lists), after, b.unlike(p) if kind == "ReduceMean" else p)


def mean(b: QuantizedBuilder) -> None:
    """The mean of each image, as exporters write a global average pool."""
    x, shape, p = b.pick(4)
    if len(shape) != 4 or (b.exact and shape[2:] not in ((4, 4), (2, 2), (1, 1))):
        return
    keep, axes = b.rng.randrange(2), b.rng.choice([[2, 3], [-1, -2]])
    lists: dict[str, Any] = {"axes": axes} if b.opset < 18 else {}
    y = b.op("ReduceMean", [x] if lists else [x, b.const(np.array(axes, np.int64))], keepdims=keep, **lists)
    b.finish(y, (*shape[:2], 1, 1) if keep else shape[:2], b.unlike(p))


def residual(b: QuantizedBuilder) -> None:
    """A convolution with a residual connection."""
    x, shape, p = b.pick(4)
    if len(shape) != 4:
        return
    weight, _ = b.weight((shape[1], shape[1], 3, 3), 0)
    b.finish(b.op("Conv", [x, weight], pads=[1, 1, 1, 1]), shape)
    b.finish(b.op("Add", [b.values[-1][0], x]), shape, p)


def last_channels(b: QuantizedBuilder) -> None:
    """An operator between transposes, as exporters of networks with channels last write it."""
    x, shape, p = b.pick(4)
    if len(shape) != 4:
        return
    y = b.op("Transpose", [x], perm=[0, 2, 3, 1])
    p2 = b.parameters(p)
    y = b.dequantize(b.quantize(y, p2), p2) if b.sometimes() else y
    y = b.op(b.rng.choice(["Relu", "Abs", "Neg"]), [y])
    y = b.dequantize(b.quantize(y, p2), p2) if b.sometimes() else y
    b.finish(b.op("Transpose", [y], perm=[0, 3, 1, 2]), shape, p2)


STEPS: Sequence[Callable[[QuantizedBuilder], None]] = (
    convolution, convolution, gemm, head, matmul, binary, binary, where, concat, concat, pool, pool, unary, transpose,
    reshape, unsqueeze, split, part, larger, reduction, mean, residual, last_channels,
)  # fmt: skip


def _start(b: QuantizedBuilder) -> None:
    """One input, or two, sometimes with channels last."""
    for _ in range(b.rng.choice([1, 1, 2])):
        kind, size = b.rng.randrange(6), b.rng.choice([4, 5, 6])
        batch, channels = b.rng.choice([1, 2]), b.rng.choice([2, 3, 4, 8])
        if kind < 4:
            last = b.sometimes(0.3)
            shape: Shape = (batch, size, size, channels) if last else (batch, channels, size, size)
        else:
            last = False
            shape = (b.rng.randint(1, 4), 8) if kind == 4 else (batch, 4, 8)
        x, p = b.input(shape), b.parameters()
        if last and b.sometimes():
            shape = (batch, channels, size, size)
            x, last = b.op("Transpose", [x], perm=[0, 3, 1, 2]), False
        x = b.dequantize(b.quantize(x, p), p)
        if last:
            shape = (batch, channels, size, size)
            x = b.op("Transpose", [x], perm=[0, 3, 1, 2])
        b.values.append((x, shape, p))


def random_qdq(seed: int, exact: bool, steps: int = 6) -> Grown:
    """A network of quantize and dequantize operators; equal seeds give equal models.

    Args:
        seed: the seed.
        exact: whether float and integer computations must agree bit for bit.
        steps: how many values it computes.
    """
    b = QuantizedBuilder(seed, exact)
    _start(b)
    b.grow(STEPS, steps, attempts=4)
    read = {name for node in b.nodes for name in node.input}
    for name, shape, _ in b.values:
        if name not in read or b.sometimes(0.05):
            b.output(name, len(shape))
    return model(b)


def random_single(seed: int) -> Grown:
    """One operator on quantized values with a quantized result; arbitrary scales. Equal seeds give equal models.

    Args:
        seed: the seed.
    """
    b = QuantizedBuilder(seed, exact=False)
    _start(b)
    given = len(b.values)
    while len(b.outputs) == 0:
        b.rng.choice(SINGLE)(b)
        for name, shape, p in b.values[given:]:
            quantize = next(node for node in b.nodes if name in node.output)
            if p is not None and p.dtype in ("uint8", "int8") and quantize.op_type == "DequantizeLinear":
                dtype = helper.np_dtype_to_tensor_dtype(np.dtype(TYPES[p.dtype]))
                b.output(quantize.input[0], len(shape), dtype)
        del b.values[given:]
    return model(b)


SINGLE: Sequence[Callable[[QuantizedBuilder], None]] = (
    convolution, gemm, matmul, binary, where, concat, pool, unary, larger, reduction, mean,
)  # fmt: skip
