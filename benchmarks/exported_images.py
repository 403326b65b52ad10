"""Image networks that the skeletons lack, with random weights: large for measurements, small for tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from benchmarks.exported import Exported

Feed = dict[str, np.ndarray]
Network = tuple[onnx.ModelProto, Feed]


def diffusion(*, small: bool = False) -> Network:
    """A U-Net of latent diffusion: residual blocks with a time embedding, self-attention and attention to a text."""
    side, width, context, words = (8, 32, 16, 5) if small else (32, 128, 256, 77)
    return _Diffusion(side, width, context, words, groups=8 if small else 32).network()


@dataclass
class _Diffusion:
    side: int
    width: int
    context: int
    words: int
    groups: int

    def network(self) -> Network:
        side, width = self.side, self.width
        self.b = b = Exported()
        x = b.input("sample", (1, 4, side, side))
        time = b.input("timestep", (1,))
        self.text = b.input("encoder_hidden_states", (1, self.words, self.context))
        half = width // 2
        waves = b.weight(np.exp(-np.log(1e4) * np.arange(half) / half)[None])
        angles = b.node("Mul", b.node("Unsqueeze", time, b.sizes(1)), waves)
        embedded = b.node("Concat", b.node("Cos", angles), b.node("Sin", angles), axis=-1)
        self.time = self._dense(b.silu(self._dense(embedded, width, 4 * width)), 4 * width, 4 * width)
        kept = [b.conv(x, 4, width, (3, 3))]
        kept.append(self._attended(self._residual(kept[0], side, width, width), side, width))
        kept.append(b.conv(kept[1], width, width, (3, 3), strides=(2, 2)))
        kept.append(self._attended(self._residual(kept[2], side // 2, width, 2 * width), side // 2, 2 * width))
        x = self._residual(kept[3], side // 2, 2 * width, 2 * width)
        x = self._residual(self._attended(x, side // 2, 2 * width), side // 2, 2 * width, 2 * width)
        for skip in (2 * width, width):
            x = self._residual(b.node("Concat", x, kept.pop(), axis=1), side // 2, 2 * width + skip, 2 * width)
            x = self._attended(x, side // 2, 2 * width)
        x = b.node(
            "Resize", x, "", b.weight(np.array([1.0, 1, 2, 2])),
            coordinate_transformation_mode="asymmetric", cubic_coeff_a=-0.75, mode="nearest", nearest_mode="floor",
        )  # fmt: skip
        x = b.conv(x, 2 * width, 2 * width, (3, 3))
        for before in (3 * width, 2 * width):
            x = self._attended(
                self._residual(b.node("Concat", x, kept.pop(), axis=1), side, before, width), side, width
            )
        x = b.conv(b.silu(b.group_norm(x, (1, width, side, side), self.groups)), width, 4, (3, 3))
        b.output(x, (1, 4, side, side))
        random = np.random.default_rng(0)
        feed = {
            "sample": random.standard_normal((1, 4, side, side), np.float32), "timestep": np.array([500], np.float32),
            "encoder_hidden_states": random.standard_normal((1, self.words, self.context), np.float32),
        }  # fmt: skip
        return b.finish(), feed

    def _dense(self, x: str, before: int, after: int) -> str:
        return self.b.node("Gemm", x, self.b.kernel(after, before), self.b.noise(after, scale=0.1), transB=1)

    def _residual(self, x: str, side: int, before: int, after: int) -> str:
        b = self.b
        y = b.conv(b.silu(b.group_norm(x, (1, before, side, side), self.groups)), before, after, (3, 3))
        time = self._dense(b.silu(self.time), 4 * self.width, after)
        y = b.node("Add", y, b.node("Unsqueeze", b.node("Unsqueeze", time, b.sizes(2)), b.sizes(3)))
        y = b.conv(b.silu(b.group_norm(y, (1, after, side, side), self.groups)), after, after, (3, 3))
        through = x if before == after else b.conv(x, before, after, (1, 1))
        return b.node("Div", b.node("Add", through, y), b.number(1.0))

    def _attended(self, x: str, side: int, width: int) -> str:
        b = self.b
        y = b.conv(b.group_norm(x, (1, width, side, side), self.groups), width, width, (1, 1))
        y = b.view(b.turned(y, 0, 2, 3, 1), 1, side * side, width)
        for source, size in (("", width), (self.text, self.context)):
            normal = b.layer_norm(y, width)
            y = b.node("Add", self._heads(normal, source or normal, width, size), y)
        gate, value = b.nodes_of("Split", 2, b.linear(b.layer_norm(y, width), width, 8 * width), axis=-1)
        y = b.node("Add", b.linear(b.node("Mul", gate, b.gelu(value)), 4 * width, width), y)
        image = b.turned(b.view(y, 1, side, side, width), 0, 3, 1, 2)
        return b.node("Add", b.conv(image, width, width, (1, 1)), x)

    def _heads(self, x: str, source: str, width: int, size: int) -> str:
        b, each = self.b, 8 if self.width < 64 else 64
        heads = width // each
        q, k, v = (
            b.turned(b.view(b.linear(of, before, width, bias=False), 1, -1, heads, each), 0, 2, 1, 3)
            for of, before in ((x, width), (source, size), (source, size))
        )
        joined = b.view(b.turned(b.attention(q, k, v, each), 0, 2, 1, 3), 1, -1, width)
        return b.linear(joined, width, width)


def vision(*, small: bool = False) -> Network:
    """A vision transformer for images of any size, whose position embeddings are interpolated by a cubic resize."""
    grid, width, depth, side = (5, 32, 1, 42) if small else (37, 384, 3, 224)
    b, patch, heads = Exported(), 14, width // 16 if small else width // 64
    x = b.input("pixel_values", (1, 3, "height", "width"))
    rows, columns = (b.node("Div", b.size(x, axis), b.index(patch)) for axis in (2, 3))
    y = b.conv(x, 3, width, (patch, patch), strides=(patch, patch), pads=(0, 0, 0, 0))
    shape = b.cut(b.node("Shape", y), 0, 2, 0)
    y = b.turned(b.node("Reshape", y, b.node("Concat", shape, b.sizes(-1), axis=0)), 0, 2, 1)
    y = b.node("Concat", b.noise(1, 1, width, scale=0.1), y, axis=1)
    table = b.noise(1, 1 + grid * grid, width, scale=0.1)
    places = b.turned(b.view(b.cut(table, 1, 2**63 - 1, 1), 1, grid, grid, width), 0, 3, 1, 2)
    start = b.cut(b.node("Shape", places), 0, 2, 0)
    ends = [b.node("Unsqueeze", each, b.sizes(0)) for each in (rows, columns)]
    places = b.node(
        "Resize", places, "", "", b.node("Concat", start, *ends, axis=0),
        coordinate_transformation_mode="pytorch_half_pixel", cubic_coeff_a=-0.75, mode="cubic", nearest_mode="floor",
    )  # fmt: skip
    places = b.view(b.turned(places, 0, 2, 3, 1), 1, -1, width)
    y = b.node("Add", y, b.node("Concat", b.cut(table, 0, 1, 1), places, axis=1))
    for _ in range(depth):
        y = _transformer(b, y, width, heads)
    b.output(b.layer_norm(y, width), (1, "tokens", width))
    random = np.random.default_rng(0)
    return b.finish(), {"pixel_values": random.standard_normal((1, 3, side, side), np.float32)}


def _transformer(b: Exported, x: str, width: int, heads: int) -> str:
    """A transformer block with layer scales."""
    normal = b.layer_norm(x, width)
    batch, tokens = b.size(normal, 0), b.size(normal, 1)
    q, k, v = (
        b.turned(b.view(b.linear(normal, width, width), batch, tokens, heads, width // heads), 0, 2, 1, 3)
        for _ in range(3)
    )
    mixed = b.view(b.turned(b.attention(q, k, v, width // heads), 0, 2, 1, 3), batch, tokens, width)
    x = b.node("Add", b.node("Mul", b.linear(mixed, width, width), b.about_one(width)), x)
    y = b.linear(b.gelu(b.linear(b.layer_norm(x, width), width, 4 * width)), 4 * width, width)
    return b.node("Add", b.node("Mul", y, b.about_one(width)), x)


def convnext(*, small: bool = False) -> Network:
    """A ConvNeXt: depthwise 7x7 convolutions, normalizations over channels, pointwise layers on the last axis."""
    widths, depths, side = ((16, 32), (1, 1), 32) if small else ((96, 192, 384), (2, 2, 3), 224)
    b = Exported()
    x = b.conv(b.input("x", (1, 3, side, side)), 3, widths[0], (4, 4), strides=(4, 4), pads=(0, 0, 0, 0))
    x, before = _channel_norm(b, x, widths[0]), widths[0]
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        if stage:
            x = b.conv(_channel_norm(b, x, before), before, width, (2, 2), strides=(2, 2), pads=(0, 0, 0, 0))
        for _ in range(depth):
            y = b.turned(b.conv(x, width, width, (7, 7), group=width), 0, 2, 3, 1)
            y = b.linear(b.gelu(b.linear(b.layer_norm(y, width), width, 4 * width)), 4 * width, width)
            x = b.node("Add", x, b.turned(b.node("Mul", b.about_one(width), y), 0, 3, 1, 2))
        before = width
    b.output(b.node("GlobalAveragePool", x), (1, before, 1, 1))
    random = np.random.default_rng(0)
    return b.finish(), {"x": random.standard_normal((1, 3, side, side), np.float32)}


def _channel_norm(b: Exported, x: str, width: int) -> str:
    """ConvNeXt's normalization over channels, which is written out in Python."""
    mean = b.node("ReduceMean", x, axes=(1,), keepdims=1)
    apart = b.node("Sub", x, mean)
    variance = b.node("ReduceMean", b.node("Pow", apart, b.number(2.0)), axes=(1,), keepdims=1)
    root = b.node("Sqrt", b.node("Add", variance, b.number(1e-6)))
    scaled = b.node("Mul", b.about_one(width, 1, 1), b.node("Div", b.node("Sub", x, mean), root))
    return b.node("Add", scaled, b.noise(width, 1, 1, scale=0.1))


def volumes(*, small: bool = False) -> Network:
    """A U-Net for volumes: convolutions, instance normalizations, LeakyRelu, transposed convolutions upwards."""
    widths, sides = ((8, 16), (8, 8, 8)) if small else ((32, 64, 128), (32, 64, 64))
    b = Exported()
    x, before, kept = b.input("x", (1, 1, *sides)), 1, []
    for level, width in enumerate(widths):
        x = _cube(b, _cube(b, x, before, width, 2 if level else 1), width, width, 1)
        kept.append(x)
        before = width
    kept.pop()
    for width in widths[-2::-1]:
        x = b.node("Concat", b.upsampled(x, before, width, (2, 2, 2), 2), kept.pop(), axis=1)
        x = _cube(b, _cube(b, x, 2 * width, width, 1), width, width, 1)
        before = width
    b.output(b.conv(x, before, 4, (1, 1, 1)), (1, 4, *sides))
    return b.finish(), {"x": np.random.default_rng(0).standard_normal((1, 1, *sides), np.float32)}


def _cube(b: Exported, x: str, before: int, after: int, stride: int) -> str:
    y = b.conv(x, before, after, (3, 3, 3), strides=(stride,) * 3)
    y = b.node("InstanceNormalization", y, b.about_one(after), b.noise(after, scale=0.1), epsilon=1e-5)
    return b.node("LeakyRelu", y, alpha=0.01)


def segmenter(*, small: bool = False) -> Network:
    """SegFormer's head on a pyramid of tokens: linear layers, linear resizes to one size, classes per pixel."""
    side, widths, wide = (8, (8, 16), 16) if small else (64, (32, 64, 160, 256), 256)
    b, levels, feed = Exported(), [], {}
    random = np.random.default_rng(0)
    for at, width in enumerate(widths):
        here = side >> at
        name = b.input(f"features_{at}", (1, width, here, here))
        feed[name] = random.standard_normal((1, width, here, here), np.float32)
        y = b.linear(b.turned(b.view(name, 1, width, -1), 0, 2, 1), width, wide)
        y = b.view(b.turned(y, 0, 2, 1), 1, wide, here, here)
        levels.append(
            b.node(
                "Resize",
                y,
                "",
                "",
                b.sizes(1, wide, side, side),
                coordinate_transformation_mode="pytorch_half_pixel",
                cubic_coeff_a=-0.75,
                mode="linear",
                nearest_mode="floor",
            )
        )
    x = b.conv(b.node("Concat", *levels[::-1], axis=1), wide * len(widths), wide, (1, 1), bias=False)
    x = b.node(
        "BatchNormalization", x, b.about_one(wide), b.noise(wide), b.noise(wide), b.weight(np.ones(wide)), epsilon=1e-5
    )
    x = b.conv(b.node("Relu", x), wide, 19, (1, 1))
    x = b.node(
        "Resize", x, "", b.weight(np.array([1.0, 1, 4, 4])), coordinate_transformation_mode="pytorch_half_pixel",
        cubic_coeff_a=-0.75, mode="linear", nearest_mode="floor",
    )  # fmt: skip
    b.output(b.node("Softmax", x, axis=1), (1, 19, 4 * side, 4 * side))
    return b.finish(), feed
