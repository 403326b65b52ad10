"""Random convolutional graphs."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import strategies as st

from tests.passes.layout_models import Builder, Image

ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "HardSwish", "LeakyRelu", "HardSigmoid", "Elu", "Softplus", "Neg", "Exp")


def _conv(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    kind = draw(st.sampled_from(["dense", "depthwise", "grouped", "multiplier"]))
    outputs, group = draw(st.integers(1, 70)), 1
    if kind == "depthwise":
        outputs = group = x.channels
    elif kind == "multiplier":
        group, outputs = x.channels, x.channels * 2
    elif kind == "grouped":
        group = draw(st.sampled_from([g for g in (2, 3, 4, 8, 16) if x.channels % g == 0] or [1]))
        outputs = group * draw(st.integers(1, 16))
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    strides, dilations = draw(st.tuples(st.integers(1, 2), st.integers(1, 2))), draw(st.integers(1, 2))
    pads = draw(st.lists(st.integers(0, 2), min_size=4, max_size=4))
    sides = [
        (size + pads[i] + pads[i + 2] - (kernel[i] - 1) * dilations - 1) // strides[i] + 1
        for i, size in enumerate((x.height, x.width))
    ]
    if min(sides) < 1:
        return x
    fan = x.channels // group * kernel[0] * kernel[1]
    inputs = [x.name, b.random(outputs, x.channels // group, *kernel, scale=fan**-0.5)]
    if draw(st.booleans()):
        inputs.append(b.random(outputs))
    (name,) = b.op("Conv", *inputs, group=group, strides=strides, dilations=[dilations] * 2, pads=pads)
    return b.image(name, outputs, *sides)


def _activation(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    op = draw(st.sampled_from([*ACTIVATIONS, "Clip", "silu", "root", "Sinh", "Asinh"]))
    if op == "Clip":
        names = b.op("Clip", x.name, b.weight(np.float32(-0.5)), b.weight(np.float32(2)))
    elif op == "silu":
        names = b.op("Mul", x.name, *b.op("Sigmoid", x.name))
    elif op == "root":
        names = b.op("Sqrt", *b.op(draw(st.sampled_from(["Abs", "Relu"])), x.name))
    elif op in ("Exp", "Sinh"):
        names = b.op(op, *b.op("Clip", x.name, b.weight(np.float32(-2)), b.weight(np.float32(2))))
    else:
        names = b.op(op, x.name)
    return b.image(names[0], x.channels, x.height, x.width)


def _number(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    """With a number for all: a constant, one that comes at run time, or one computed from an image."""
    how = draw(st.sampled_from(["constant", "input", "reduced", "bounded"]))
    if how == "constant":
        other = b.weight(
            np.array(draw(st.sampled_from([0.5, -2.0, 3.0, 1e10])), np.float32).reshape([1] * draw(st.integers(0, 4)))
        )
    elif how == "reduced":
        (other,) = b.op(
            draw(st.sampled_from(["ReduceMean", "ReduceMax"])), draw(st.sampled_from(b.images)).name, keepdims=0
        )
    else:
        other = b.number()
        if how == "bounded":
            (other,) = b.op("Tanh", other)
    op = draw(st.sampled_from(["Add", "Sub", "Mul", "Max", "Min", "Div", "Clip", "Sum", "Mean"]))
    if op == "Clip":
        if b.nodes and how == "constant":
            other = b.weight(np.float32(0.25))
        (name,) = b.op("Clip", x.name, *draw(st.sampled_from([(other,), ("", other)])))
    else:
        # ONNX's reference evaluator cannot add an image to the number that a mean begins with.
        operands = [x.name, other] if op == "Mean" else draw(st.permutations([x.name, other]))
        (name,) = b.op(op, *operands)
    return _tamed(b, name, x)


def _tamed(b: Builder, name: str, x: Image) -> Image:
    """What may be large or undefined, brought back to a narrow range without hiding what padding lanes hold."""
    (name,) = b.op("Softsign", name)
    return b.image(name, x.channels, x.height, x.width)


def _steep(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    """Functions that give infinities or NaN of zeros, of halves or of what other operators make of these."""
    op = draw(st.sampled_from(["Reciprocal", "Log", "Sqrt", "Pow", "Div", "Exp", "Cosh", "Acosh", "Atanh", "Asin"]))
    (name,) = b.op("Sigmoid", x.name)
    if op == "Acosh":
        (name,) = b.op("Add", name, b.weight(np.float32(1.25)))
    elif op in ("Atanh", "Asin"):
        (name,) = b.op("Mul", name, b.weight(np.float32(0.75)))
    elif op in ("Exp", "Cosh"):
        (name,) = b.op("Mul", name, b.weight(np.float32(10)))
    else:
        (name,) = b.op("Add", name, b.weight(np.float32(0.125)))
    extra = {"Pow": [b.weight(np.float32(-1.5))], "Div": [name]}.get(op, [])
    if op == "Div":
        (name,) = b.op("Cos", name)
    (name,) = b.op(op, name, *extra)
    return b.image(name, x.channels, x.height, x.width)


def _softmax(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    (name,) = b.op("Softmax", x.name, axis=draw(st.sampled_from([1, 3])))
    return b.image(name, x.channels, x.height, x.width)


def _normalize(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    """A layer normalization along channels, spelled out, or an instance normalization."""
    if draw(st.booleans()):
        c = x.channels
        (name,) = b.op("InstanceNormalization", x.name, b.random(c), b.random(c))
        return b.image(name, c, x.height, x.width)
    axes = draw(st.sampled_from([[1], [1, 2, 3], [2, 3]]))
    (centered,) = b.op("Sub", x.name, _reduced(b, x.name, axes))
    squares = draw(st.sampled_from([("Mul", centered), ("Pow", b.weight(np.float32(2)))]))
    (square,) = b.op(squares[0], centered, squares[1])
    (variance,) = b.op("Add", _reduced(b, square, axes), b.weight(np.float32(1e-2)))
    (root,) = b.op("Sqrt", variance)
    (name,) = b.op("Div", centered, root)
    return b.image(name, x.channels, x.height, x.width)


def _reduced(b: Builder, name: str, axes: list[int]) -> str:
    if b.opset >= 18:
        return b.op("ReduceMean", name, b.weight(np.array(axes, np.int64)))[0]
    return b.op("ReduceMean", name, axes=axes)[0]


def _shuffle(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    group = next((g for g in (2, 3, 4) if x.channels % g == 0), 0)
    if not group:
        return x
    shape = [0, group, x.channels // group, x.height, x.width]
    (name,) = b.op("Reshape", x.name, b.weight(np.array(shape, np.int64)))
    (name,) = b.op("Transpose", name, perm=[0, 2, 1, 3, 4])
    (name,) = b.op("Reshape", name, b.weight(np.array([0, x.channels, x.height, x.width], np.int64)))
    return b.image(name, x.channels, x.height, x.width)


def _pixels(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    """Depth to space and back."""
    if x.channels % 4:
        return x
    (name,) = b.op("DepthToSpace", x.name, blocksize=2, mode=draw(st.sampled_from(["DCR", "CRD"])))
    (name,) = b.op("SpaceToDepth", *b.op("Relu", name), blocksize=2)
    return b.image(name, x.channels, x.height, x.width)


def _combine(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    alike = [i for i in b.images if (i.channels, i.height, i.width) == (x.channels, x.height, x.width)]
    other = draw(st.sampled_from(alike))
    (name,) = b.op(draw(st.sampled_from(["Add", "Add", "Sum", "Mul", "Sub", "Max", "Min"])), x.name, other.name)
    if draw(st.booleans()):
        (name,) = b.op("Tanh", name)
    return b.image(name, x.channels, x.height, x.width)


def _concat(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    alike = [i for i in b.images if (i.height, i.width) == (x.height, x.width)]
    others = draw(st.lists(st.sampled_from(alike), min_size=1, max_size=2))
    channels = x.channels + sum(o.channels for o in others)
    if channels > 160:
        return x
    (name,) = b.op("Concat", x.name, *(o.name for o in others), axis=1)
    return b.image(name, channels, x.height, x.width)


def _uneven(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    """Pieces that end inside blocks, each with other numbers in its padding lanes."""
    ops = draw(st.lists(st.sampled_from(["Exp", "Cos", "Sigmoid", "Neg", "Relu"]), min_size=1, max_size=3))
    if x.channels * (len(ops) + 1) > 160:
        return x
    (bounded,) = b.op("Tanh", x.name)
    names = [x.name, *(b.op(op, bounded)[0] for op in ops)]
    (name,) = b.op("Concat", *draw(st.permutations(names)), axis=draw(st.sampled_from([1, -3])))
    return b.image(name, x.channels * len(names), x.height, x.width)


def _split(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    if x.channels < 2:
        return x
    at = draw(st.sampled_from([c for c in (8, 16, 32) if c < x.channels] or [1]))
    sizes = [at, x.channels - at]
    names = b.op("Split", x.name, b.weight(np.array(sizes, np.int64)), outputs=2, axis=1)
    b.image(names[0], sizes[0], x.height, x.width)
    return b.image(names[1], sizes[1], x.height, x.width)


def _divide(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    """Pieces of a Concat, taken apart again where they were joined."""
    alike = [i for i in b.images if (i.height, i.width) == (x.height, x.width)]
    first, last = draw(st.sampled_from(alike)), draw(st.sampled_from(alike))
    sizes = [first.channels, x.channels, last.channels]
    if sum(sizes) > 160:
        return x
    (joined,) = b.op("Concat", first.name, x.name, last.name, axis=1)
    (joined,) = b.op("Tanh", joined)
    if draw(st.booleans()):
        _, name, other = b.op("Split", joined, b.weight(np.array(sizes, np.int64)), outputs=3, axis=1)
        b.image(other, sizes[2], x.height, x.width)
    else:
        bounds = [b.weight(np.array([n], np.int64)) for n in (sizes[0], sizes[0] + sizes[1], 1)]
        (name,) = b.op("Slice", joined, *bounds)
    return b.image(name, sizes[1], x.height, x.width)


def _pool(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    op = draw(st.sampled_from(["MaxPool", "AveragePool"]))
    kernel, strides = (draw(st.tuples(*[st.integers(1, 3)] * 2)) for _ in range(2))
    pads = [draw(st.integers(0, kernel[side % 2] - 1)) for side in range(4)]
    attrs: dict[str, object] = {"count_include_pad": draw(st.integers(0, 1))} if op == "AveragePool" else {}
    dilations = (1, 1)
    if draw(st.integers(0, 3)) == 0 and (op == "MaxPool" or b.opset >= 19):
        attrs["dilations"] = dilations = draw(st.tuples(*[st.integers(1, 2)] * 2))
    sides = [
        size + pads[i] + pads[i + 2] - (kernel[i] - 1) * dilations[i] - 1 for i, size in enumerate((x.height, x.width))
    ]
    if min(sides) < 0:
        return x
    ceil = all(over % step == 0 for over, step in zip(sides, strides, strict=True)) and draw(st.booleans())
    if ceil and not attrs.get("count_include_pad"):
        attrs["ceil_mode"] = 1
    (name,) = b.op(op, x.name, kernel_shape=kernel, strides=strides, pads=pads, **attrs)
    return b.image(name, x.channels, *(over // step + 1 for over, step in zip(sides, strides, strict=True)))


def _mean(draw: st.DrawFn, b: Builder, x: Image) -> str:
    """The mean of each channel, [N, C, 1, 1], in one of its spellings, or that of the whole batch, [1, C, 1, 1]."""
    how = draw(st.sampled_from(["pool", "pool", "reduce", "row", "batch"]))
    if how == "pool":
        return b.op(draw(st.sampled_from(["GlobalAveragePool", "GlobalMaxPool"])), x.name)[0]
    axes = [0, 2, 3] if how == "batch" else draw(st.sampled_from([[2, 3], [-1, -2]]))
    by_operand = b.opset >= 18
    inputs = [x.name, b.weight(np.array(axes, np.int64))] if by_operand else [x.name]
    attrs = {} if by_operand else {"axes": axes}
    (mean,) = b.op("ReduceMean", *inputs, keepdims=int(how != "row"), **attrs)
    if how == "row":
        (mean,) = b.op("Unsqueeze", mean, b.weight(np.array([2, 3], np.int64)))
    return mean


def _gate(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    (squeezed,) = b.op("Conv", _mean(draw, b, x), b.random(4, x.channels, 1, 1, scale=0.2))
    (gate,) = b.op("Sigmoid", *b.op("Conv", *b.op("Relu", squeezed), b.random(x.channels, 4, 1, 1)))
    op = draw(st.sampled_from(["Mul", "Mul", "Mul", "Add", "Sub", "Max"]))
    (name,) = b.op(op, *draw(st.permutations([x.name, gate])))
    return b.image(name, x.channels, x.height, x.width)


def _attend(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    """One number for each pixel, as spatial attention has it."""
    how = draw(st.sampled_from(["conv", "mean"]))
    if how == "conv":
        (gate,) = b.op("Conv", x.name, b.random(1, x.channels, 3, 3, scale=0.2), pads=[1] * 4)
    elif b.opset >= 18:
        (gate,) = b.op("ReduceMean", x.name, b.weight(np.array([1], np.int64)))
    else:
        (gate,) = b.op("ReduceMean", x.name, axes=[1])
    (gate,) = b.op("Sigmoid", gate)
    (name,) = b.op(draw(st.sampled_from(["Mul", "Mul", "Add", "Sub"])), *draw(st.permutations([x.name, gate])))
    return b.image(name, x.channels, x.height, x.width)


def _centered(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    (name,) = b.op(draw(st.sampled_from(["Sub", "Add", "Mul"])), x.name, _mean(draw, b, x))
    return b.image(name, x.channels, x.height, x.width)


def _pad(draw: st.DrawFn, b: Builder, x: Image, least: int = 0) -> Image:
    mode = draw(st.sampled_from(["constant", "constant", "reflect", "edge"])) if not least else "constant"
    top, left, bottom, right = (draw(st.integers(least, 2)) for _ in range(4))
    if min(x.height, x.width) < 3 or x.height * x.width > 200:
        return x
    filler = b.weight(np.float32(draw(st.sampled_from([0, -1.5, 3e38])))) if mode == "constant" else ""
    pads = [0, 0, top, left, 0, 0, bottom, right]
    (name,) = b.op("Pad", x.name, b.weight(np.array(pads, np.int64)), filler, mode=mode)
    if filler and abs(b.weights[filler]) > 10:
        (name,) = b.op("Clip", name, "", b.weight(np.float32(2)))
    return b.image(name, x.channels, x.height + top + bottom, x.width + left + right)


def _trim(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    """Padding below zero, which cuts off."""
    return _pad(draw, b, x, -1)


def _crop(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    axes = draw(st.sampled_from([[2], [3], [-1], [2, 3], [-1, -2]]))
    sides = [x.height, x.width]
    starts, ends, steps = [], [], []
    for axis in axes:
        size = sides[axis % 4 - 2]
        start, step = draw(st.integers(0, size - 1)), draw(st.sampled_from([1, 1, 2]))
        end = draw(st.sampled_from([size, 2**31, -1 if start < size - 1 else size]))
        sides[axis % 4 - 2] = len(range(size)[start:end:step])
        starts, ends, steps = [*starts, start], [*ends, end], [*steps, step]
    operands = [b.weight(np.array(values, np.int64)) for values in (starts, ends, axes, steps)]
    (name,) = b.op("Slice", x.name, *operands)
    return b.image(name, x.channels, *sides)


def _prelu(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    (name,) = b.op("PRelu", x.name, b.random(*draw(st.sampled_from([(x.channels, 1, 1), (1, x.channels, 1, 1), (1,)]))))
    return b.image(name, x.channels, x.height, x.width)


def _transposed(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    if x.height * x.width > 100:
        return x
    channels = draw(st.integers(1, 40))
    kernel, stride, pad = draw(st.sampled_from([(2, 2, 0), (3, 2, 1), (4, 2, 1), (3, 1, 1)]))
    weight = b.random(x.channels, channels, kernel, kernel, scale=x.channels**-0.5)
    (name,) = b.op("ConvTranspose", x.name, weight, strides=[stride] * 2, pads=[pad] * 4)
    return b.image(name, channels, *((side - 1) * stride - 2 * pad + kernel for side in (x.height, x.width)))


def _affine(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    if draw(st.booleans()):
        variance = b.weight(np.abs(b.rng.standard_normal(x.channels)).astype(np.float32) + 0.5)
        c = x.channels
        (name,) = b.op("BatchNormalization", x.name, b.random(c), b.random(c), b.random(c), variance)
    else:
        op = draw(st.sampled_from(["Mul", "Add", "Sub"]))
        (name,) = b.op(op, x.name, b.random(1, x.channels, 1, 1))
    return b.image(name, x.channels, x.height, x.width)


RESIZES = (
    {}, {"mode": "linear"}, {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, {"nearest_mode": "round_prefer_ceil"},
    {"coordinate_transformation_mode": "asymmetric"}, {"nearest_mode": "floor"}, {"nearest_mode": "ceil"},
    {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
    {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
    {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "round_prefer_ceil"}, {"mode": "cubic"},
)  # fmt: skip


def _resize(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    if x.height * x.width > 100:
        return x
    factors = draw(st.sampled_from([(2, 2), (2, 3), (1, 2), (3, 3), (4, 4)]))
    how = dict(draw(st.sampled_from(RESIZES)))
    if b.opset >= 19 and draw(st.booleans()):
        how["coordinate_transformation_mode"] = "half_pixel_symmetric"
    scales = [1, 1, *factors]
    if b.opset >= 18 and how.get("mode") != "cubic" and draw(st.booleans()):
        how["axes"], scales = draw(st.sampled_from([([2, 3], scales[2:]), ([3, 2], scales[:1:-1])]))
    (name,) = b.op("Resize", x.name, "", b.weight(np.array(scales, np.float32)), **how)
    return b.image(name, x.channels, x.height * factors[0], x.width * factors[1])


def _nhwc(draw: st.DrawFn, b: Builder, x: Image) -> Image:
    (last,) = b.op("Neg", *b.op("Transpose", x.name, perm=[0, 2, 3, 1]))
    (name,) = b.op("Transpose", last, perm=[0, 3, 1, 2])
    return b.image(name, x.channels, x.height, x.width)


STEPS = (
    _conv, _conv, _conv, _conv, _activation, _activation, _combine, _combine, _concat, _split, _divide, _pool, _gate,
    _centered, _attend, _affine, _prelu, _pad, _trim, _crop, _resize, _nhwc, _transposed, _number, _number, _steep,
    _steep, _softmax, _normalize, _shuffle, _pixels, _uneven,
)  # fmt: skip
OPSETS = (14, 17, 18, 19, 22)


@st.composite
def graphs(draw: st.DrawFn, steps: tuple = STEPS) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model, and inputs for it."""
    b = Builder(draw(st.integers(0, 2**16)), draw(st.sampled_from(OPSETS)))
    batch = draw(st.integers(1, 2))
    x = b.image("x", draw(st.integers(1, 70)), draw(st.integers(4, 9)), draw(st.integers(4, 9)))
    x = _conv(draw, b, x)
    if len(b.images) == 1:
        (name,) = b.op("Conv", "x", b.random(3, x.channels, 1, 1))
        x = b.image(name, 3, x.height, x.width)
    for _ in range(draw(st.integers(1, 6))):
        x = draw(st.sampled_from(steps))(draw, b, draw(st.sampled_from(b.images[-3:])) if draw(st.booleans()) else x)
    made = b.images[1:]
    outputs = {i.name: i for i in (made[-1], draw(st.sampled_from(made)))}
    model = b.model(list(outputs.values()), batch, dynamic=draw(st.booleans()))
    first = b.images[0]
    feed = b.rng.standard_normal((batch, first.channels, first.height, first.width)).astype(np.float32)
    feed[b.rng.random(feed.shape) < draw(st.sampled_from([0, 0.25, 1]))] = draw(st.sampled_from([0, -1, 4]))
    numbers = {f"number{n + 1}": draw(st.sampled_from([0.0, -1.5, 0.5, 1e-30, 1e25])) for n in range(b.numbers)}
    return model, {"x": feed} | {name: np.array(number, np.float32) for name, number in numbers.items()}
