"""Padding lanes, operator by operator: whatever stands before a node, and whatever numbers its lanes may hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from graphopt.system.machine import host
from graphopt_passes.layout import forms
from graphopt_passes.layout.forms import FORMS
from graphopt_passes.layout.lanes import UNARY
from tests.passes.layout_lanes import assert_lanes_do_not_matter, converted
from tests.passes.layout_models import Builder, run, run_if_finite

pytestmark = pytest.mark.skipif(host().block == 1, reason="no blocked kernels on this machine")

SIDE = 6
OPSET = 24


def scalar(b: Builder, number: float) -> str:
    return b.weight(np.float32(number))


def integers(b: Builder, *numbers: int) -> str:
    return b.weight(np.array(numbers, np.int64))


def uneven(b: Builder, x: str, c: int) -> str:
    """As many channels in two pieces, of which the first ends inside a block."""
    first = b.op("Sigmoid", *b.op("Conv", x, b.random(c // 3, c, 1, 1, scale=c**-0.5)))
    rest = b.op("Exp", *b.op("Tanh", *b.op("Conv", x, b.random(c - c // 3, c, 1, 1, scale=c**-0.5))))
    return b.op("Concat", *first, *rest, axis=1)[0]


# What may stand between the first convolution and the operator: it decides what the lanes hold.
BEFORE: dict[str, Callable[[Builder, str, int], str]] = {
    "nothing": lambda b, x, c: x,
    "a half": lambda b, x, c: b.op("Sigmoid", x)[0],
    "below zero": lambda b, x, c: b.op("Sub", x, scalar(b, 3))[0],
    "many": lambda b, x, c: b.op("Mul", *b.op("Add", x, scalar(b, -2)), scalar(b, 1e20))[0],
    "runtime sum": lambda b, x, c: b.op("Add", x, "s")[0],
    "runtime product": lambda b, x, c: b.op("Mul", "s", x)[0],
    "pieces": uneven,
    "infinite": lambda b, x, c: b.op("Exp", *b.op("Neg", *b.op("Log", x)))[0],
}


def pieces(b: Builder, x: str, c: int) -> str:
    """Channels that are no whole blocks, one behind the other."""
    (other,) = b.op("Cos", x)
    return b.op("Concat", x, other, x, axis=1)[0]


def unary(op: str, *extra: float | str, domain: str = "", **attrs: Any) -> Callable[[Builder, str, int], str]:
    def build(b: Builder, x: str, c: int) -> str:
        inputs = [e if isinstance(e, str) else scalar(b, e) for e in extra]
        return b.op(op, x, *inputs, **({"domain": domain} if domain else {}), **attrs)[0]

    return build


def binary(op: str, *, first: bool = True) -> Callable[[Builder, str, int], str]:
    """With another image, whose lanes are others."""

    def build(b: Builder, x: str, c: int) -> str:
        (other,) = b.op("Cos", x)
        return b.op(op, *((x, other) if first else (other, x)))[0]

    return build


def with_number(op: str, number: float | str, *, first: bool = True) -> Callable[[Builder, str, int], str]:
    def build(b: Builder, x: str, c: int) -> str:
        other = number if isinstance(number, str) else scalar(b, number)
        return b.op(op, *((x, other) if first else (other, x)))[0]

    return build


def gate(op: str, *, batch: bool = False, first: bool = True) -> Callable[[Builder, str, int], str]:
    """One number for each channel, for each image or for all."""

    def build(b: Builder, x: str, c: int) -> str:
        (mean,) = b.op("ReduceMean", x, integers(b, *([0, 2, 3] if batch else [2, 3])))
        return b.op(op, *((x, mean) if first else (mean, x)))[0]

    return build


def pixel_gate(op: str, through: str = "", *, first: bool = True) -> Callable[[Builder, str, int], str]:
    """One number for each pixel."""

    def build(b: Builder, x: str, c: int) -> str:
        (mean,) = b.op("ReduceMean", x, integers(b, 1))
        if through:
            (mean,) = b.op(through, mean)
        return b.op(op, *((x, mean) if first else (mean, x)))[0]

    return build


def reduced(op: str) -> Callable[[Builder, str, int], str]:
    """With one number for all, computed from the image."""

    def build(b: Builder, x: str, c: int) -> str:
        (mean,) = b.op("ReduceMean", x, keepdims=0)
        return b.op(op, x, mean)[0]

    return build


def conv(outputs: int | None = None, group: Callable[[int], int] = lambda c: 1, **attrs: Any) -> Callable[..., str]:
    def build(b: Builder, x: str, c: int) -> str:
        groups = group(c)
        made = outputs or c
        return b.op("Conv", x, b.random(made, c // groups, 3, 3), group=groups, pads=[1] * 4, **attrs)[0]

    return build


def grouped(b: Builder, x: str, c: int) -> str:
    return conv(group=lambda c: 2)(b, *b.op("Conv", x, b.random(64, c, 1, 1)), 64)


def grouped_unevenly(b: Builder, x: str, c: int) -> str:
    """Five groups of half a block's channels: the last of three blocks has one of them."""
    channels = 5 * host().block // 2
    return conv(group=lambda c: 5)(b, *b.op("Conv", x, b.random(channels, c, 1, 1)), channels)


def groups_of_padding(b: Builder, x: str, c: int) -> str:
    """As many groups as fill whole blocks, of what the case before left in padding lanes."""
    return conv(group=lambda c: c // 8 if c % 8 == 0 else 1)(b, x, c)


def fused(activation: str, *params: float, depthwise: bool = False) -> Callable[[Builder, str, int], str]:
    def build(b: Builder, x: str, c: int) -> str:
        weight = b.random(c, 1 if depthwise else c, 1, 1, scale=0.1)
        attrs: dict[str, Any] = {"activation_params": params} if params else {}
        (residual,) = b.op("Cos", x)
        return b.op(
            "FusedConv", x, weight, b.random(c), residual, domain="com.microsoft", activation=activation,
            group=c if depthwise else 1, **attrs,
        )[0]  # fmt: skip

    return build


def transposed(kernel: int, stride: int) -> Callable[[Builder, str, int], str]:
    def build(b: Builder, x: str, c: int) -> str:
        (name,) = b.op("ConvTranspose", x, b.random(c, 5, kernel, kernel), strides=[stride] * 2)
        return b.op("Sigmoid", name)[0]

    return build


def silu(b: Builder, x: str, c: int) -> str:
    return b.op("Mul", x, *b.op("Sigmoid", x))[0]


def normalized(b: Builder, x: str, c: int) -> str:
    ones = [b.weight(np.linspace(0.5, 2, c, dtype=np.float32)) for _ in range(4)]
    return b.op("BatchNormalization", x, *ones)[0]


def per_channel(op: str, first: bool = True) -> Callable[[Builder, str, int], str]:
    def build(b: Builder, x: str, c: int) -> str:
        numbers = b.weight(np.linspace(0.5, 2, c, dtype=np.float32).reshape(1, c, 1, 1))
        return b.op(op, *((x, numbers) if first else (numbers, x)))[0]

    return build


def row(b: Builder, x: str, c: int) -> str:
    (mean,) = b.op("ReduceMean", x, integers(b, 2, 3), keepdims=0)
    return b.op("Unsqueeze", mean, integers(b, 2, 3))[0]


def last(b: Builder, x: str, c: int) -> str:
    (moved,) = b.op("Transpose", x, perm=[0, 2, 3, 1])
    return b.op("Transpose", *b.op("Neg", moved), perm=[0, 3, 1, 2])[0]


def split(b: Builder, x: str, c: int) -> str:
    (other,) = b.op("Cos", x)
    (joined,) = b.op("Concat", other, x, axis=1)
    parts = b.op("Split", *b.op("Tanh", joined), integers(b, c, c), axis=1, outputs=2)
    return b.op("Add", *parts)[0]


def piece(b: Builder, x: str, c: int) -> str:
    (joined,) = b.op("Concat", x, *b.op("Cos", x), axis=1)
    return b.op("Slice", *b.op("Tanh", joined), *(integers(b, n) for n in (c, 2 * c, 1)))[0]


def crop(b: Builder, x: str, c: int) -> str:
    return b.op("Slice", x, *(integers(b, *n) for n in ((1, 0), (5, 4), (2, 3))))[0]


def pad(filler: float, mode: str = "constant") -> Callable[[Builder, str, int], str]:
    def build(b: Builder, x: str, c: int) -> str:
        pads = integers(b, 0, 0, 1, 2, 0, 0, 1, 0)
        (name,) = b.op("Pad", x, pads, scalar(b, filler) if mode == "constant" else "", mode=mode)
        return b.op("MaxPool", name, kernel_shape=[3, 3])[0] if abs(filler) > 1e6 else name

    return build


def upsample(mode: str) -> Callable[[Builder, str, int], str]:
    scales = np.array([1, 1, 2, 3], np.float32)
    return lambda b, x, c: b.op("Resize", x, "", b.weight(scales), mode=mode)[0]


def quantized(dtype: Any, scale: float, zero: int, domain: str = "") -> Callable[[Builder, str, int], str]:
    """Quantized, and dequantized with another scale."""

    def build(b: Builder, x: str, c: int) -> str:
        point, more = b.weight(np.array(zero, dtype)), {"domain": domain} if domain else {}
        (integers,) = b.op("QuantizeLinear", x, scalar(b, scale), point, **more)
        return b.op("DequantizeLinear", integers, scalar(b, scale * 1.5), point, **more)[0]

    return build


CASES: dict[str, list[Callable[[Builder, str, int], str]]] = {
    **{op: [unary(op)] for op in UNARY if "::" not in op},
    "Acosh": [unary("Acosh"), lambda b, x, c: b.op("Acosh", *b.op("Add", x, scalar(b, 4)))[0]],
    "com.microsoft::FastGelu": [unary("FastGelu", domain="com.microsoft")],
    "com.microsoft::Gelu": [unary("Gelu", domain="com.microsoft")],
    "com.microsoft::QuickGelu": [unary("QuickGelu", domain="com.microsoft", alpha=1.7)],
    "Celu": [unary("Celu", alpha=2.0), unary("Celu", alpha=0.01), unary("Celu", alpha=-1.0)],
    "Clip": [
        unary("Clip", -1.0, 0.5), unary("Clip", 2.0, 3e38), unary("Clip", 0.25), unary("Clip", "s"),
        unary("Clip", "", "s"), unary("Clip", "s", 1.0), unary("Clip"),
    ],
    "Elu": [unary("Elu", alpha=3.0), unary("Elu", alpha=-3.0)],
    "HardSigmoid": [unary("HardSigmoid", alpha=0.5, beta=0.25), unary("HardSigmoid", alpha=-2.0)],
    "LeakyRelu": [unary("LeakyRelu"), unary("LeakyRelu", alpha=-20.0)],
    "Selu": [unary("Selu"), unary("Selu", alpha=-2.0, gamma=-3.0)],
    "Shrink": [unary("Shrink", lambd=0.3, bias=-1e5), unary("Shrink")],
    "Swish": [unary("Swish"), unary("Swish", alpha=-4.0)],
    "ThresholdedRelu": [unary("ThresholdedRelu", alpha=0.1), unary("ThresholdedRelu", alpha=-5.0)],
    "Add": [
        binary("Add"), with_number("Add", 2.5), with_number("Add", "s"), lambda b, x, c: pieces(b, b.op("Add", x, "t")[0], c), reduced("Add"),
        gate("Add"), gate("Add", batch=True), pixel_gate("Add"), pixel_gate("Add", "Sigmoid"), per_channel("Add"),
    ],
    "Sub": [
        binary("Sub"), binary("Sub", first=False), with_number("Sub", 4.0, first=False), with_number("Sub", "s"),
        reduced("Sub"), gate("Sub"), gate("Sub", batch=True), gate("Sub", first=False), pixel_gate("Sub", "Exp"),
        pixel_gate("Sub", first=False), per_channel("Sub"),
    ],
    "Mul": [
        binary("Mul"), with_number("Mul", 1e9), with_number("Mul", "s"), with_number("Mul", "t"), reduced("Mul"),
        gate("Mul"), gate("Mul", batch=True), pixel_gate("Mul"), pixel_gate("Mul", "Sigmoid"), per_channel("Mul"),
        silu,
    ],
    "Div": [
        binary("Div"), with_number("Div", 0.5), with_number("Div", 1e-30), with_number("Div", "s"),
        with_number("Div", 1.0, first=False), with_number("Div", "s", first=False), reduced("Div"),
        per_channel("Div"), lambda b, x, c: b.op("Div", x, *b.op("Add", *b.op("Abs", x), scalar(b, 0.125)))[0],
    ],
    "Pow": [
        binary("Pow"), *(with_number("Pow", n) for n in (0.0, 0.5, 2.0, 3.0, -1.0, 40.0, "s")),
        with_number("Pow", 2.0, first=False), with_number("Pow", 0.0, first=False),
    ],
    "Max": [binary("Max"), with_number("Max", 2.0), with_number("Max", "s"), gate("Max"), pixel_gate("Max")],
    "Min": [binary("Min"), with_number("Min", -2.0), with_number("Min", "s"), gate("Min"), pixel_gate("Min", "Tanh")],
    "Sum": [binary("Sum"), lambda b, x, c: b.op("Sum", x, x, *b.op("Cos", x), scalar(b, 3), "s")[0]],
    "Mean": [binary("Mean"), lambda b, x, c: b.op("Mean", x, x, *b.op("Cos", x), scalar(b, 3))[0]],
    "Conv": [
        conv(), conv(40), conv(3), conv(group=lambda c: c), conv(96, lambda c: 2 if c % 2 == 0 else 1),
        grouped, grouped_unevenly, groups_of_padding,
    ],
    "com.microsoft::FusedConv": [
        fused("Sigmoid"), fused("Clip", 0.5, 2.0), fused("HardSigmoid", 0.2, 0.75), fused("LeakyRelu", -3.0),
        fused("Relu", depthwise=True), fused("Tanh"),
    ],
    "ConvTranspose": [transposed(2, 2), transposed(3, 2), transposed(3, 1), transposed(4, 2)],
    "DequantizeLinear": [quantized(np.uint8, 0.02, 100), quantized(np.int8, 0.1, -3), quantized(np.uint8, 0.3, 255)],
    "com.microsoft::DequantizeLinear": [
        quantized(np.uint16, 2e-4, 30000, "com.microsoft"), quantized(np.int16, 1e-3, 0, "com.microsoft"),
    ],
    "MaxPool": [
        unary("MaxPool", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 2, 1]),
        unary("MaxPool", kernel_shape=[2, 2], dilations=[3, 7], pads=[0, 1, 0, 1], strides=[1, 1]),
        unary("MaxPool", kernel_shape=[2, 2], strides=[2, 3], ceil_mode=1),
    ],
    "AveragePool": [
        unary("AveragePool", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 2, 1]),
        unary("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    ],
    "GlobalMaxPool": [unary("GlobalMaxPool")],
    "GlobalAveragePool": [unary("GlobalAveragePool")],
    "ReduceMean": [row, lambda b, x, c: b.op("ReduceMean", x, integers(b, -1, 2))[0]],
    "BatchNormalization": [normalized],
    "Concat": [pieces],
    "Pad": [pad(0.0), pad(-7.0), pad(3e38), pad(-np.inf), pad(0.0, "reflect")],
    "PRelu": [lambda b, x, c: b.op("PRelu", x, b.random(c, 1, 1))[0], lambda b, x, c: b.op("PRelu", x, b.random(1))[0]],
    "Split": [split],
    "Slice": [piece, crop],
    "Resize": [upsample("nearest"), upsample("linear")],
    "Transpose": [last],
    "Upsample": [],
}  # fmt: skip
"""Ways to use each operator that has blocked forms."""

OLD: dict[str, Callable[[Builder, str, int], str]] = {
    "Upsample": lambda b, x, c: b.op("Upsample", x, b.weight(np.array([1, 1, 2, 2], np.float32)))[0],
}
"""Operators of opset 9."""


def network(
    case: Callable[[Builder, str, int], str], before: str, channels: int, seed: int, opset: int = OPSET
) -> onnx.ModelProto:
    """A convolution, what decides its lanes, the operator, and a convolution over all that is left."""
    b = Builder(seed, opset)
    x = b.image("x", channels, SIDE, SIDE)
    weight = b.weight(np.full((channels, 1, 1, 1), 0.75, np.float32))
    (name,) = b.op("Conv", x.name, weight, group=channels)
    name = case(b, BEFORE[before](b, name, channels), channels)
    made = run(finished(b, name), next(feeds(channels, seed)))[0].shape[1]
    (dense,) = b.op("Conv", name, b.random(7, made, 1, 1, scale=0.125))
    (read,) = b.op("Tanh", *b.op("Neg", dense))
    return finished(b, name, read)


def finished(b: Builder, *outputs: str) -> onnx.ModelProto:
    """The model, with the operators of com.microsoft and two scalars among its inputs."""
    model = b.model([b.image(name, 0, 0, 0) for name in outputs], 1, dynamic=False)
    model.graph.input.extend(helper.make_tensor_value_info(s, TensorProto.FLOAT, []) for s in "st")
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def feeds(channels: int, seed: int) -> Iterator[dict[str, np.ndarray]]:
    """Images for the domains of all operators, and runtime scalars with extremes."""
    rng = np.random.default_rng(seed)
    for low, high, s, t in ((0.2, 1.2, 0.25, 4.0), (1.5, 2.5, 1.5, 1e-30), (-3, 3, 0.0, 1e25)):
        image = rng.uniform(low, high, (1, channels, SIDE, SIDE)).astype(np.float32)
        yield {"x": image, "s": np.array(s, np.float32), "t": np.array(t, np.float32)}


def check(case: Callable[[Builder, str, int], str], before: str, channels: int, monkeypatch: Any, opset: int) -> tuple:
    """What was built, and how many inputs give finite numbers all over the model, of which the plan speaks."""
    model = network(case, before, channels, channels, opset)
    blocked, built = converted(model, monkeypatch)
    checked = 0
    for given in feeds(channels, channels):
        expected = run_if_finite(model, given)
        if expected is not None:
            checked += 1
            assert_lanes_do_not_matter(blocked, built, expected, given, channels)
    return built.kinds, checked


AT_ONCE = 2
"""How many of `BEFORE` are tried with each case."""


@pytest.mark.parametrize("op", sorted(CASES))
def test_results_do_not_depend_on_padding_lanes(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases, opset = (CASES[op], OPSET) if CASES[op] else ([OLD[op]], 9)
    first = sorted(CASES).index(op)
    checked, seen = 0, set()
    for number, case in enumerate(cases):
        for step in range(AT_ONCE):
            before = list(BEFORE)[(first + 3 * number + step) % len(BEFORE)]
            channels = (14, 24, 3, 40, 5)[(first + number + step) % 5]
            try:
                kinds, found = check(case, before, channels, monkeypatch, opset)
            except Exception as error:
                error.add_note(f"{op} case {number}, before it {before}, {channels} channels")
                raise
            seen.update(name for name, _ in kinds)
            checked += found
    assert checked, f"{op} gives numbers for no input"
    assert op in seen, f"no {op} was blocked"


def test_every_form_has_a_case() -> None:
    never = {"GlobalLpPool", "LpPool", "MaxRoiPool"}
    assert set(CASES) == set(FORMS) - never


KINDS: dict[str, Callable[[Builder, str, int], str]] = {
    "conv": conv(), "2 groups": grouped, "3 groups": grouped_unevenly, "transposed": transposed(2, 2), "depthwise": unary("Neg"),
    "1x1 depthwise": normalized, "gate as weight": gate("Mul"), "gate as bias": gate("Add"),
    "gate spread out": gate("Max"), "gate of pixels": pixel_gate("Mul"),
    "elementwise": unary("Neg"), "prelu": CASES["PRelu"][0], "silu": silu,
    "pool": CASES["MaxPool"][0], "global pool": unary("GlobalMaxPool"), "global row": row,
    "upsample": upsample("linear"), "concat": pieces, "split": split, "slice": piece, "pad": pad(1.0),
    "crop": crop, "to nhwc": last, "from nhwc": last, "quantized": quantized(np.uint8, 0.02, 100),
}  # fmt: skip
"""One of the cases for each kind of form, by what it is called in plans."""


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_among_the_cases(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, built = converted(network(KINDS[kind], "nothing", 24, 0), monkeypatch)
    assert kind in {kind for _, kind in built.kinds}


def test_every_form_is_among_the_kinds() -> None:
    folder = Path(forms.__file__).parent
    source = "".join(file.read_text() for file in folder.glob("*.py"))
    written = re.findall(r'name="([^"]*)"', source)
    titles = {*written, *re.findall(r'label = "([^"]*)"', source)} - {"grouped"}
    assert len(written) == source.count("return Written(") + source.count("= Written(")
    assert titles == set(KINDS) - {"2 groups", "3 groups", "gate as weight", "gate as bias"}
