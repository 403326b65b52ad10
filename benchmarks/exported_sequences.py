"""Sequence networks that the skeletons lack, with random weights: large for measurements, small for tests."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, numpy_helper

from benchmarks.exported import Exported
from benchmarks.exported_images import Feed, Network


class Decoder:
    """A decoder like LLaMA and Qwen with grouped-query attention, rotary embedding and a KV cache."""

    def __init__(self, *, tokens: int, past: int, small: bool = False, symbolic: bool = False) -> None:
        self.hidden, self.heads, self.groups, self.inner = (64, 4, 2, 96) if small else (896, 14, 2, 4864)
        self.each, self.layers, self.words = self.hidden // self.heads, 1 if small else 2, 50 if small else 4096
        self.tokens, self.past, self.symbolic = tokens, past, symbolic
        self.b = Exported()

    def network(self) -> Network:
        """The model, with symbolic dimensions if `symbolic`, else static ones."""
        b, past, tokens = self.b, self.past, self.tokens
        spelled = {size: name if self.symbolic else size for size, name in ((tokens, "tokens"), (past, "past"))}
        whole = "past + tokens" if self.symbolic else past + tokens
        ids = b.operand("input_ids", (1, spelled[tokens]), TensorProto.INT64)
        mask = b.operand("attention_mask", (1, whole), TensorProto.INT64)
        places = b.operand("position_ids", (1, spelled[tokens]), TensorProto.INT64)
        cached = (1, self.groups, spelled[past], self.each)
        names = [
            b.input(f"past_key_values.{at}.{kind}", cached)
            for at in range(self.layers * bool(past))
            for kind in ("key", "value")
        ]
        self.waves, self.mask = self._waves(places), self._mask(mask)
        x = b.node("Gather", b.noise(self.words, self.hidden), ids)
        for at in range(self.layers):
            x = self._layer(x, names[2 * at : 2 * at + 2], at)
        x = b.linear(b.rms_norm(x, self.hidden), self.hidden, self.words, bias=False)
        b.output(x, (1, spelled[tokens], self.words))
        random = np.random.default_rng(0)
        feed: Feed = {
            "input_ids": random.integers(0, self.words, (1, tokens)),
            "attention_mask": np.ones((1, past + tokens), int),
            "position_ids": np.arange(past, past + tokens)[None],
        }
        feed |= {name: random.standard_normal((1, self.groups, past, self.each), np.float32) for name in names}
        return b.finish(), feed

    def _waves(self, places: str) -> list[str]:
        b, half = self.b, self.each // 2
        rates = b.weight((1e4 ** (-np.arange(half) / half)).reshape(1, half, 1))
        numbers = b.node("Cast", b.node("Unsqueeze", places, b.sizes(1)), to=int(TensorProto.FLOAT))
        angles = b.turned(b.node("MatMul", rates, numbers), 0, 2, 1)
        twice = b.node("Concat", angles, angles, axis=-1)
        return [b.node("Unsqueeze", b.node(op, twice), b.sizes(1)) for op in ("Cos", "Sin")]

    def _mask(self, mask: str) -> str:
        """The addend of the scores: nothing, or the least number where the mask or causality forbids attention."""
        b = self.b
        least = float(np.finfo(np.float32).min)
        rows, columns = np.arange(self.tokens)[:, None] + self.past, np.arange(self.past + self.tokens)
        if self.symbolic:
            ends = b.node("Range", b.index(0), b.size(mask, 1), b.index(1))
            own = b.node("Unsqueeze", b.node("Squeeze", "position_ids", b.sizes(0)), b.sizes(1))
            forbidden = b.node("Unsqueeze", b.node("Greater", ends, own), b.sizes(0, 1))
        else:
            forbidden = "causal"
            b.graph.initializer.append(numpy_helper.from_array((columns > rows)[None, None], forbidden))
        absent = b.node("Equal", b.node("Unsqueeze", mask, b.sizes(1, 2)), b.sizes(0))
        either = b.node("Or", forbidden, absent)
        return b.node("Where", either, b.number(least), b.number(0.0))

    def _layer(self, x: str, cached: list[str], at: int) -> str:
        b, hidden = self.b, self.hidden
        normal = b.rms_norm(x, hidden)
        q = self._rotated(self._parted(b.linear(normal, hidden, hidden), self.heads))
        k = self._rotated(self._parted(b.linear(normal, hidden, self.groups * self.each), self.groups))
        v = self._parted(b.linear(normal, hidden, self.groups * self.each), self.groups)
        whole = "past + tokens" if self.symbolic else self.past + self.tokens
        if cached:
            k, v = (b.node("Concat", old, new, axis=2) for old, new in zip(cached, (k, v), strict=True))
        for kind, value in (("key", k), ("value", v)):
            self._result(value, f"present.{at}.{kind}", (1, self.groups, whole, self.each))
        mixed = b.attention(q, self._repeated(k), self._repeated(v), self.each, self.mask)
        tokens = b.size(x, 1) if self.symbolic else self.tokens
        joined = b.view(b.turned(mixed, 0, 2, 1, 3), 1, tokens, hidden)
        x = b.node("Add", x, b.linear(joined, hidden, hidden, bias=False))
        normal = b.rms_norm(x, hidden)
        gated = b.node(
            "Mul",
            b.silu(b.linear(normal, hidden, self.inner, bias=False)),
            b.linear(normal, hidden, self.inner, bias=False),
        )
        return b.node("Add", x, b.linear(gated, self.inner, hidden, bias=False))

    def _result(self, value: str, name: str, dims: tuple[int | str, ...]) -> None:
        self.b.node("Identity", value)
        self.b.nodes[-1].output[0] = name
        self.b.output(name, dims)

    def _parted(self, x: str, heads: int) -> str:
        b = self.b
        shape = (1, b.size(x, 1), heads, self.each) if self.symbolic else (1, self.tokens, heads, self.each)
        return b.turned(b.view(x, *shape), 0, 2, 1, 3)

    def _rotated(self, x: str) -> str:
        b, half = self.b, self.each // 2
        turned = b.node("Concat", b.node("Neg", b.cut(x, half, 2**63 - 1, 3)), b.cut(x, 0, half, 3), axis=-1)
        return b.node("Add", b.node("Mul", x, self.waves[0]), b.node("Mul", turned, self.waves[1]))

    def _repeated(self, x: str) -> str:
        """`repeat_kv`."""
        b, times = self.b, self.heads // self.groups
        whole = b.size(x, 2) if self.symbolic else self.past + self.tokens
        five = (1, self.groups, times, whole, self.each)
        shape = (
            b.together(five) if self.symbolic else b.sizes(1, self.groups, times, self.past + self.tokens, self.each)
        )
        apart = b.node("Expand", b.node("Unsqueeze", x, b.sizes(2)), shape)
        return b.view(apart, 1, self.heads, whole, self.each)


def decoder_step(*, small: bool = False) -> Network:
    """One token with a long cache."""
    return Decoder(tokens=1, past=12 if small else 2047, small=small).network()


def decoder_step_symbolic(*, small: bool = False) -> Network:
    """The same with symbolic dimensions."""
    return Decoder(tokens=1, past=12 if small else 2047, small=small, symbolic=True).network()


def prefill(*, small: bool = False) -> Network:
    """Many tokens without a cache."""
    return Decoder(tokens=8 if small else 256, past=0, small=small).network()


def experts(*, small: bool = False) -> Network:
    """A mixture-of-experts layer like Mixtral and Qwen: each expert computes the tokens routed to it."""
    tokens, hidden, inner, count = (6, 32, 48, 4) if small else (64, 512, 1024, 8)
    b = Exported()
    x = b.input("hidden_states", (1, tokens, hidden))
    flat = b.view(x, -1, hidden)
    chances = b.node("Softmax", b.linear(flat, hidden, count, bias=False), axis=1)
    weights, chosen = b.nodes_of("TopK", 2, chances, b.sizes(2), axis=-1, largest=1, sorted=1)
    weights = b.node("Div", weights, b.node("ReduceSum", weights, b.sizes(-1), keepdims=1))
    values = b.node("OneHot", chosen, b.index(count), b.sizes(0, 1), axis=-1)
    marked = b.turned(values, 2, 1, 0)
    made = b.node("ConstantOfShape", b.node("Shape", flat))
    for expert in range(count):
        places = b.node("Transpose", b.node("NonZero", b.node("Gather", marked, b.index(expert), axis=0)), perm=(1, 0))
        rank, token = (b.node("Squeeze", each, b.sizes(1)) for each in b.nodes_of("Split", 2, places, axis=1))
        own = b.node("Gather", flat, token, axis=0)
        gated = b.node(
            "Mul", b.silu(b.linear(own, hidden, inner, bias=False)), b.linear(own, hidden, inner, bias=False)
        )
        pairs = [b.node("Unsqueeze", each, b.sizes(-1)) for each in (token, rank)]
        factor = b.node("GatherND", weights, b.node("Concat", *pairs, axis=-1))
        answer = b.node("Mul", b.linear(gated, inner, hidden, bias=False), b.node("Unsqueeze", factor, b.sizes(-1)))
        index = b.node("Expand", b.node("Unsqueeze", token, b.sizes(1)), b.node("Shape", answer))
        made = b.node("ScatterElements", made, index, answer, axis=0, reduction="add")
    b.output(b.view(made, 1, tokens, hidden), (1, tokens, hidden))
    return b.finish(), {"hidden_states": np.random.default_rng(0).standard_normal((1, tokens, hidden), np.float32)}


def vocoder(*, small: bool = False) -> Network:
    """HiFi-GAN: transposed convolutions, each followed by residual blocks of dilated convolutions with LeakyRelu."""
    frames, width, factors = (8, 16, (2,)) if small else (32, 256, (8, 8, 2))
    b = Exported()
    x = b.conv(b.input("mel", (1, 80, frames)), 80, width, (7,))
    for factor in factors:
        x = b.node("LeakyRelu", x, alpha=0.1)
        x, width = b.upsampled(x, width, width // 2, (2 * factor,), factor), width // 2
        blocks = [_dilated(b, x, width, kernel) for kernel in (3, 7, 11)]
        total = b.node("Add", b.node("Add", blocks[0], blocks[1]), blocks[2])
        x = b.node("Div", total, b.number(3.0))
    x = b.node("Tanh", b.conv(b.node("LeakyRelu", x, alpha=0.01), width, 1, (7,)))
    b.output(x, (1, 1, "samples"))
    return b.finish(), {"mel": np.random.default_rng(0).standard_normal((1, 80, frames), np.float32)}


def _dilated(b: Exported, x: str, width: int, kernel: int) -> str:
    for dilation in (1, 3, 5):
        y = b.conv(b.node("LeakyRelu", x, alpha=0.1), width, width, (kernel,), dilations=(dilation,))
        x = b.node("Add", b.conv(b.node("LeakyRelu", y, alpha=0.1), width, width, (kernel,)), x)
    return x


def codec(*, small: bool = False) -> Network:
    """The decoder of a neural codec: transposed convolutions and residual units with Snake, as in DAC and BigVGAN."""
    frames, width, factors = (8, 16, (2,)) if small else (32, 256, (8, 4, 2))
    b = Exported()
    x = b.conv(b.input("codes", (1, 64, frames)), 64, width, (7,))
    for factor in factors:
        x, width = b.upsampled(_snake(b, x, width), width, width // 2, (2 * factor,), factor), width // 2
        for dilation in (1, 3, 9):
            y = b.conv(_snake(b, x, width), width, width, (7,), dilations=(dilation,))
            x = b.node("Add", x, b.conv(_snake(b, y, width), width, width, (1,)))
    x = b.node("Tanh", b.conv(_snake(b, x, width), width, 1, (7,)))
    b.output(x, (1, 1, "samples"))
    return b.finish(), {"codes": np.random.default_rng(0).standard_normal((1, 64, frames), np.float32)}


def _snake(b: Exported, x: str, width: int) -> str:
    """`x + sin(a x)^2 / a`."""
    alpha = b.weight(b.random.uniform(0.5, 2, (1, width, 1)))
    wave = b.node("Pow", b.node("Sin", b.node("Mul", alpha, x)), b.number(2.0))
    inverse = b.node("Reciprocal", b.node("Add", alpha, b.number(1e-9)))
    return b.node("Add", x, b.node("Mul", inverse, wave))


def separator(*, small: bool = False) -> Network:
    """Conv-TasNet: an encoder, dilated depthwise convolutions with global normalizations, masks, a decoder."""
    samples, basis, narrow, wide, repeats, depth = (160, 16, 8, 16, 1, 2) if small else (16000, 512, 128, 512, 1, 8)
    b = Exported()
    x = b.input("mixture", (1, 1, samples))
    waves = b.node("Relu", b.conv(x, 1, basis, (16,), strides=(8,), pads=(0, 0), bias=False))
    y = b.conv(_global_norm(b, waves, basis), basis, narrow, (1,), bias=False)
    skips = ""
    for at in range(repeats * depth):
        z = _global_norm(b, b.node("PRelu", b.conv(y, narrow, wide, (1,)), b.weight(np.full((1, 1), 0.25))), wide)
        dilation = 2 ** (at % depth)
        z = b.conv(z, wide, wide, (3,), group=wide, dilations=(dilation,))
        z = _global_norm(b, b.node("PRelu", z, b.weight(np.full((1, 1), 0.25))), wide)
        skip = b.conv(z, wide, narrow, (1,))
        skips = b.node("Add", skips, skip) if skips else skip
        y = b.node("Add", y, b.conv(z, wide, narrow, (1,)))
    masks = b.node("Relu", b.conv(b.node("PRelu", skips, b.weight(np.full((1, 1), 0.25))), narrow, 2 * basis, (1,)))
    frames = (samples - 16) // 8 + 1
    parts = b.node("Mul", b.node("Unsqueeze", waves, b.sizes(1)), b.view(masks, 1, 2, basis, frames))
    weight = b.noise(basis, 1, 16, scale=0.1)
    voices = b.node(
        "ConvTranspose", b.view(parts, 2, basis, frames), weight, dilations=(1,), group=1, kernel_shape=(16,),
        pads=(0, 0), strides=(8,),
    )  # fmt: skip
    b.output(voices, (2, 1, "samples"))
    return b.finish(), {"mixture": np.random.default_rng(0).standard_normal((1, 1, samples), np.float32)}


def _global_norm(b: Exported, x: str, width: int) -> str:
    """A normalization over channels and time together, written out."""
    apart = b.node("Sub", x, b.node("ReduceMean", x, axes=(1, 2), keepdims=1))
    variance = b.node("ReduceMean", b.node("Pow", apart, b.number(2.0)), axes=(1, 2), keepdims=1)
    root = b.node("Sqrt", b.node("Add", variance, b.number(1e-8)))
    scaled = b.node("Mul", b.about_one(1, width, 1), apart)
    return b.node("Add", b.node("Div", scaled, root), b.noise(1, width, 1, scale=0.1))
