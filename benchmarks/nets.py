"""Our own networks for the zoo, which torchvision, timm and transformers lack (needs torch)."""

# ruff: noqa: D102  (`forward` is what torch calls every network's body)

from __future__ import annotations

import torch
from torch import Tensor, nn


class ConvAct(nn.Module):
    """Convolution, BatchNorm and SiLU: the brick of every recent detector."""

    def __init__(self, inp: int, out: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inp, out, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(out)
        self.act = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(self.conv(x)))


class Split2(nn.Module):
    """A cross-stage block: split the channels, chain bottlenecks, keep every stage, concatenate."""

    def __init__(self, inp: int, out: int, depth: int, *, shortcut: bool) -> None:
        super().__init__()
        self.half = out // 2
        self.enter = ConvAct(inp, out)
        self.steps = nn.ModuleList(
            nn.Sequential(ConvAct(self.half, self.half, 3), ConvAct(self.half, self.half, 3)) for _ in range(depth)
        )
        self.leave = ConvAct((2 + depth) * self.half, out)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.enter(x).chunk(2, 1))
        for step in self.steps:
            y = step(parts[-1])
            parts.append(parts[-1] + y if self.shortcut else y)
        return self.leave(torch.cat(parts, 1))


class PoolPyramid(nn.Module):
    """Three max pools in a row, concatenated (SPPF)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter, self.leave = ConvAct(width, width // 2), ConvAct(width * 2, width)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.enter(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.leave(torch.cat(parts, 1))


class DetectHead(nn.Module):
    """Decoupled heads on three scales, distances as distributions, decoded to boxes and scores."""

    def __init__(self, widths: tuple[int, ...], classes: int = 20, bins: int = 8) -> None:
        super().__init__()
        self.classes, self.bins, self.strides = classes, bins, (8, 16, 32)
        self.box = nn.ModuleList(
            nn.Sequential(ConvAct(w, 32, 3), ConvAct(32, 32, 3), nn.Conv2d(32, 4 * bins, 1)) for w in widths
        )
        self.score = nn.ModuleList(
            nn.Sequential(ConvAct(w, 32, 3), ConvAct(32, 32, 3), nn.Conv2d(32, classes, 1)) for w in widths
        )
        self.project = nn.Conv2d(bins, 1, 1, bias=False)
        self.project.weight.data = torch.arange(bins, dtype=torch.float32).view(1, bins, 1, 1)

    def grid(self, maps: list[Tensor]) -> tuple[Tensor, Tensor]:
        centres, scales = [], []
        for stride, m in zip(self.strides, maps, strict=True):
            h, w = m.shape[-2:]
            ys, xs = torch.meshgrid(torch.arange(h) + 0.5, torch.arange(w) + 0.5, indexing="ij")
            centres.append(torch.stack((xs, ys), -1).view(-1, 2))
            scales.append(torch.full((h * w, 1), float(stride)))
        return torch.cat(centres).transpose(0, 1), torch.cat(scales).transpose(0, 1)

    def forward(self, maps: list[Tensor]) -> Tensor:
        batch = maps[0].shape[0]
        rows = [
            torch.cat((box(m), score(m)), 1).view(batch, 4 * self.bins + self.classes, -1)
            for m, box, score in zip(maps, self.box, self.score, strict=True)
        ]
        box, score = torch.cat(rows, 2).split((4 * self.bins, self.classes), 1)
        box = self.project(box.view(batch, 4, self.bins, -1).transpose(2, 1).softmax(1)).view(batch, 4, -1)
        centre, scale = self.grid(maps)
        near, far = box.chunk(2, 1)
        low, high = centre - near, centre + far
        return torch.cat(((low + high) / 2 * scale, (high - low) * scale, score.sigmoid()), 1)


class Detector(nn.Module):
    """A YOLO-like detector: split-stage backbone, pooled pyramid, PAN neck with up- and down-path, SiLU everywhere."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        w = width
        self.stem = nn.Sequential(ConvAct(3, w, 3, 2), ConvAct(w, 2 * w, 3, 2), Split2(2 * w, 2 * w, 1, shortcut=True))
        self.p3 = nn.Sequential(ConvAct(2 * w, 4 * w, 3, 2), Split2(4 * w, 4 * w, 2, shortcut=True))
        self.p4 = nn.Sequential(ConvAct(4 * w, 8 * w, 3, 2), Split2(8 * w, 8 * w, 2, shortcut=True))
        self.p5 = nn.Sequential(
            ConvAct(8 * w, 16 * w, 3, 2), Split2(16 * w, 16 * w, 1, shortcut=True), PoolPyramid(16 * w)
        )
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.n4 = Split2(24 * w, 8 * w, 1, shortcut=False)
        self.n3 = Split2(12 * w, 4 * w, 1, shortcut=False)
        self.d3, self.d4 = ConvAct(4 * w, 4 * w, 3, 2), ConvAct(8 * w, 8 * w, 3, 2)
        self.m4 = Split2(12 * w, 8 * w, 1, shortcut=False)
        self.m5 = Split2(24 * w, 16 * w, 1, shortcut=False)
        self.head = DetectHead((4 * w, 8 * w, 16 * w))

    def forward(self, x: Tensor) -> Tensor:
        p3 = self.p3(self.stem(x))
        p4 = self.p4(p3)
        p5 = self.p5(p4)
        n4 = self.n4(torch.cat((self.up(p5), p4), 1))
        n3 = self.n3(torch.cat((self.up(n4), p3), 1))
        m4 = self.m4(torch.cat((self.d3(n3), n4), 1))
        m5 = self.m5(torch.cat((self.d4(m4), p5), 1))
        return self.head([n3, m4, m5])


class Crnn(nn.Module):
    """Text recognition: convolutions, two bidirectional LSTMs, a dense layer."""

    def __init__(self, hidden: int = 128, classes: int = 37) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        plan = ((1, 32, (2, 2)), (32, 64, (2, 2)), (64, 128, None), (128, 128, (2, 1)), (128, 256, (2, 1)))
        for inp, out, pool in plan:
            layers += [nn.Conv2d(inp, out, 3, 1, 1), nn.BatchNorm2d(out), nn.ReLU()]
            if pool:
                layers.append(nn.MaxPool2d(pool, pool))
        self.features = nn.Sequential(*layers, nn.Conv2d(256, 256, (2, 1)), nn.ReLU())
        self.rnn1 = nn.LSTM(256, hidden, bidirectional=True)
        self.mid = nn.Linear(2 * hidden, hidden)
        self.rnn2 = nn.LSTM(hidden, hidden, bidirectional=True)
        self.out = nn.Linear(2 * hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        y = self.features(x).squeeze(2).permute(2, 0, 1)
        y = self.mid(self.rnn1(y)[0])
        return self.out(self.rnn2(y)[0]).log_softmax(2)


class GlobalDepthwiseHead(nn.Module):
    """MobileNetV2 features with one depthwise convolution over the whole map at the end, as in face landmark nets."""

    def __init__(self, features: nn.Module, width: int = 1280, size: int = 7, out: int = 136) -> None:
        super().__init__()
        self.features = features
        self.squeeze = nn.Sequential(nn.Conv2d(width, 512, 1, bias=False), nn.BatchNorm2d(512), nn.PReLU(512))
        self.depthwise = nn.Conv2d(512, 512, size, groups=512, bias=False)
        self.bn = nn.BatchNorm2d(512)
        self.linear = nn.Conv2d(512, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn(self.depthwise(self.squeeze(self.features(x))))
        return self.linear(y).flatten(1)


class ConvPool(nn.Module):
    """One 5x5 convolution, alone or followed by a max pool."""

    def __init__(self, *, pool: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 32, 5)
        self.pool = nn.MaxPool2d(2) if pool else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.conv(x))


class UNet(nn.Module):
    """Segmentation with transposed convolutions, group normalisation in the middle and skip connections."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        w = width
        self.down = nn.ModuleList(self.block(i, o) for i, o in ((3, w), (w, 2 * w), (2 * w, 4 * w)))
        self.middle = nn.Sequential(nn.Conv2d(4 * w, 8 * w, 3, padding=1), nn.GroupNorm(8, 8 * w), nn.LeakyReLU(0.1))
        self.lift = nn.ModuleList(
            nn.ConvTranspose2d(i, o, 2, 2) for i, o in ((8 * w, 4 * w), (4 * w, 2 * w), (2 * w, w))
        )
        self.up = nn.ModuleList(self.block(2 * o, o) for o in (4 * w, 2 * w, w))
        self.out = nn.Conv2d(w, 2, 1)

    @staticmethod
    def block(inp: int, out: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inp, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(),
            nn.Conv2d(out, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for down in self.down:
            x = down(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.middle(x)
        for lift, up in zip(self.lift, self.up, strict=True):
            x = up(torch.cat((lift(x), kept.pop()), 1))
        return self.out(x).softmax(1)


class SubPixel(nn.Module):
    """Super resolution by pixel shuffle, with per-channel PReLU."""

    def __init__(self, scale: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 32, 5, padding=2), nn.PReLU(32), nn.Conv2d(32, 32, 3, padding=1), nn.PReLU(32),
            nn.Conv2d(32, scale * scale, 3, padding=1), nn.PixelShuffle(scale),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        base = nn.functional.interpolate(x, scale_factor=3, mode="bilinear", align_corners=False)
        return (self.body(x) + base).clamp(0, 1)


class GruTagger(nn.Module):
    """Embedding, two-layer bidirectional GRU, dense tags: recurrence without convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(2000, 96)
        self.rnn = nn.GRU(96, 128, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(256, 17)

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.rnn(self.embed(ids))[0])


class PickOne(nn.Module):
    """Keeps one field of the output of a network with one input, so that every zoo model returns plain tensors."""

    def __init__(self, net: nn.Module, field: str, argument: str) -> None:
        super().__init__()
        self.net, self.field, self.argument = net, field, argument

    def forward(self, x: Tensor) -> Tensor:
        return self.net(**{self.argument: x})[self.field]


class PickMasked(nn.Module):
    """The same for a network of token ids and an attention mask."""

    def __init__(self, net: nn.Module, field: str) -> None:
        super().__init__()
        self.net, self.field = net, field

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.net(input_ids=ids, attention_mask=mask)[self.field]
