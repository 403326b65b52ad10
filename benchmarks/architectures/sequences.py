"""Transformers and their hybrids, recurrent networks, networks of graphs and of tables."""

from __future__ import annotations

import numpy as np

from benchmarks.architectures.net import Net


def coatnet(n: Net) -> tuple[str, ...]:
    """Inverted bottlenecks, then attention with a bias for each relative position that an index picks."""
    x = n.conv(n.input(1, 3, 112, 112), 32, 3, 2, act="Gelu")
    for channels in (48, 96):
        y = n.squeeze(n.depthwise(n.conv(x, 4 * channels, 1, act="Gelu"), 3, 2, "Gelu"))
        x = n("Add", n.conv(y, channels, 1, act=""), n.conv(n.pool(x, kind="AveragePool"), channels, 1, act=""))
    rows, side = n.rows(x), n.shape(x)[2]
    steps = np.arange(side)
    apart = (steps[:, None] - steps[None] + side - 1) * (2 * side - 1)
    index = (apart[:, None, :, None] + apart[None, :, None, :] // (2 * side - 1)).reshape(side**2, side**2)
    for _ in range(2):
        table = n.weight((2 * side - 1) ** 2, 3, spread=0.1)
        bias = n("Unsqueeze", n.transpose(n("Gather", table, n.const(index, np.int64)), 2, 0, 1), n.ints(0))
        rows = n.encoder(rows, 3, bias=bias)
    return (n.dense(n.mean(rows, 1), 100),)


def swin_v2(n: Net) -> tuple[str, ...]:
    """Windows with cosine scores, and biases that a small network makes of constant coordinates."""
    side, window, width, heads = 28, 7, 96, 3
    x = n.transpose(n.conv(n.input(1, 3, 112, 112), width, 4, 4, act="", pad=False), 0, 2, 3, 1)
    axis = np.sign(steps := np.arange(1 - window, window)) * np.log2(1 + np.abs(steps)) / 3
    table = n.const(np.stack(np.meshgrid(axis, axis, indexing="ij"), -1)[None])
    places = np.arange(window)[:, None] - np.arange(window) + window - 1
    index = (places[:, None, :, None] * (2 * window - 1) + places[None, :, None, :]).reshape(-1)
    for _ in range(2):
        bias = n.reshape(n.linear(n.linear(table, 512, "Relu"), heads, bias=False), (2 * window - 1) ** 2, heads)
        bias = n.transpose(n.reshape(n("Gather", bias, n.const(index, np.int64)), 49, 49, heads), 2, 0, 1)
        bias = n("Mul", n.activate(n("Unsqueeze", bias, n.ints(0)), "Sigmoid"), n.const(16.0))
        y = n.reshape(x, 1, side // window, window, side // window, window, width)
        y = n.reshape(n.transpose(y, 0, 1, 3, 2, 4, 5), -1, window**2, width)
        y = _cosine(n, y, heads, bias)
        y = n.transpose(n.reshape(y, 1, side // window, side // window, window, window, width), 0, 1, 3, 2, 4, 5)
        x = n("Add", x, n.layer_norm(n.reshape(y, 1, side, side, width)))
        x = n("Add", x, n.layer_norm(n.linear(n.linear(x, 4 * width, "Gelu"), width)))
    return (n.dense(n.mean(x, 1, 2), 100),)


def _cosine(n: Net, x: str, heads: int, bias: str) -> str:
    windows, rows, width = n.shape(x)
    y = n.transpose(n.reshape(n.linear(x, 3 * width), windows, rows, 3, heads, -1), 2, 0, 3, 1, 4)
    q, k, v = (n("Squeeze", part, n.ints(0)) for part in n.split(y, 3, axis=0))
    q, k = (n("Div", each, n("ReduceL2", each, axes=[-1], keepdims=1)) for each in (q, k))
    scores = n("Mul", n("MatMul", q, n.transpose(k, 0, 1, 3, 2)), n.const(np.full((1, heads, 1, 1), 10.0)))
    y = n("MatMul", n("Softmax", n("Add", scores, bias), axis=-1), v)
    return n.linear(n.reshape(n.transpose(y, 0, 2, 1, 3), windows, rows, width), width)


def conv_transformer(n: Net) -> tuple[str, ...]:
    """Attention whose queries and keys come from depthwise convolutions of the image (CvT)."""
    x = n.conv(n.input(1, 3, 112, 112), 64, 7, 4, act="")
    side = n.shape(x)[2]
    rows = n.layer_norm(n.rows(x))
    for _ in range(2):
        picture = n.image(n.layer_norm(rows), side, side)
        q, k, v = (n.rows(n.depthwise(picture, 3, stride, "")) for stride in (1, 2, 2))
        (_, long, _), short = n.shape(q), n.shape(k)[1]
        q, k, v = (n.linear(each, 64) for each in (q, k, v))
        q, v = n.heads(q, long, 2, 32, 0, 2, 1, 3), n.heads(v, short, 2, 32, 0, 2, 1, 3)
        scores = n("Mul", n("MatMul", q, n.heads(k, short, 2, 32, 0, 2, 3, 1)), n.const(32**-0.5))
        y = n.reshape(n.transpose(n("MatMul", n("Softmax", scores, axis=-1), v), 0, 2, 1, 3), 1, long, 64)
        rows = n.feed_forward(n("Add", rows, n.linear(y, 64)))
    return (n.dense(n.mean(rows, 1), 100),)


def cmt(n: Net) -> tuple[str, ...]:
    """Local depthwise layers on images between attention on rows, with an inverted feed-forward part."""
    x = n.conv(n.conv(n.input(1, 3, 112, 112), 32, 3, 2, act="Gelu"), 64, 3, 2, act="")
    side = n.shape(x)[2]
    for _ in range(2):
        x = n("Add", n.depthwise(x, act=""), x)
        rows = n.rows(x)
        small = n.layer_norm(n.rows(n.depthwise(x, 4, 4, "")))
        rows = n("Add", rows, n.attention(n.layer_norm(rows), 2, context=small))
        x = n.image(rows, side, side)
        y = n.conv(x, 192, 1, act="Gelu")
        x = n("Add", x, n.conv(n("Add", y, n.depthwise(y, act="Gelu")), 64, 1, act=""))
    return (n.classes(x),)


def group_hybrid(n: Net) -> tuple[str, ...]:
    """Grouped convolutions on images with channels last around them, and attention (NextViT-like)."""
    x = n.conv(n.input(1, 3, 96, 96), 48, 4, 4, act="", pad=False)
    side = n.shape(x)[2]
    for _ in range(3):
        y = n.conv(n.conv(x, 48, group=3), 48, 1, act="")
        x = n("Add", x, y)
        last = n.layer_norm(n.transpose(x, 0, 2, 3, 1))
        y = n.linear(n.linear(last, 144, "Gelu"), 48)
        x = n("Add", x, n.transpose(y, 0, 3, 1, 2))
        rows = n("Add", n.rows(x), n.attention(n.layer_norm(n.rows(x)), 3))
        x = n.image(rows, side, side)
    return (n.classes(x),)


def mlp_mixer(n: Net) -> tuple[str, ...]:
    """Dense layers across patches and across channels."""
    x = n.rows(n.conv(n.input(1, 3, 112, 112), 128, 8, 8, act="", pad=False))
    for _ in range(3):
        y = n.transpose(n.layer_norm(x), 0, 2, 1)
        y = n.linear(n.linear(y, 96, "Gelu"), n.shape(y)[2])
        x = n.feed_forward(n("Add", x, n.transpose(y, 0, 2, 1)))
    return (n.dense(n.mean(n.layer_norm(x), 1), 100),)


def gmlp(n: Net) -> tuple[str, ...]:
    """Gates across patches on half of the channels."""
    x = n("Gather", n.weight(2000, 128, spread=0.5), n.input(1, 64, kind="ids", bound=2000))
    for _ in range(3):
        first, second = n.split(n.linear(n.layer_norm(x), 512, "Gelu"), 2, axis=2)
        second = n("Add", n("MatMul", n.weight(64, 64), n.layer_norm(second)), n.const(np.ones((64, 1))))
        x = n("Add", x, n.linear(n("Mul", first, second), 128))
    return (n.layer_norm(x),)


def conformer(n: Net) -> tuple[str, ...]:
    """Half-steps of feed-forward, attention, gated depthwise convolutions along time."""
    image = n.conv(n.conv(n.input(1, 1, 128, 40), 32, 3, 2), 32, 3, 2)
    x = n.linear(n.reshape(n.transpose(image, 0, 2, 1, 3), 1, 32, 320), 144)
    for _ in range(2):
        y = n.linear(n.linear(n.layer_norm(x), 576, "Silu"), 144)
        x = n("Add", x, n("Mul", y, n.const(0.5)))
        x = n("Add", x, n.attention(n.layer_norm(x), 4))
        y = n.conv(n.transpose(n.layer_norm(x), 0, 2, 1), 288, 1, act="")
        first, second = n.split(y, 2)
        y = n("Mul", first, n("Sigmoid", second))
        y = n.conv(n.depthwise(y, 15, act="Silu"), 144, 1, act="")
        x = n("Add", x, n.transpose(y, 0, 2, 1))
        x = n.feed_forward(x, "Silu")
    return (n("LogSoftmax", n.linear(x, 256), axis=-1),)


def temporal(n: Net) -> tuple[str, ...]:
    """Dilated convolutions along time that see the past only (TCN)."""
    x = n.conv(n.input(1, 40, 400), 64, 1)
    for dilation in (1, 2, 4, 8):
        y = x
        for _ in range(2):
            padded = n("Pad", y, n.ints(0, 0, 2 * dilation, 0, 0, 0))
            y = n.conv(padded, 64, 3, dilation=dilation, pad=False)
        x = n.add(x, y, "Relu")
    return (n.conv(x, 12, 1, act=""),)


def point_net(n: Net) -> tuple[str, ...]:
    """Layers shared by points, their maximum, and a transform of the points that is computed."""
    points = n.input(1, 3, 1024)
    y = n("ReduceMax", n.conv(n.conv(points, 64, 1), 128, 1), axes=[2], keepdims=0)
    turn = n("Add", n.reshape(n.dense(n.dense(y, 64, "Relu"), 9), 1, 3, 3), n.const(np.eye(3)[None]))
    x = n.transpose(n("MatMul", n.transpose(points, 0, 2, 1), turn), 0, 2, 1)
    for channels in (64, 128, 256):
        x = n.conv(x, channels, 1)
    return (n.dense(n.dense(n("ReduceMax", x, axes=[2], keepdims=0), 128, "Relu"), 40),)


def disentangled(n: Net) -> tuple[str, ...]:
    """Scores of contents and of relative positions, whose table every layer projects anew (DeBERTa)."""
    rows, width, heads = 64, 192, 3
    x = n.layer_norm(n("Gather", n.weight(2000, width, spread=0.5), n.input(1, rows, kind="ids", bound=2000)))
    table = n.layer_norm(n.weight(2 * rows, width, spread=0.5))
    index = n.const(np.broadcast_to(np.arange(rows)[:, None] - np.arange(rows) + rows, (heads, rows, rows)), np.int64)
    size = width // heads
    for _ in range(3):
        query, key, value = n.weight(width, width), n.weight(width, width), n.weight(width, width)

        def heads_of(y: str, weight: str) -> str:
            y = n("MatMul", y, weight)
            return n.transpose(n.reshape(y, -1, heads, size), 1, 0, 2)

        q, k, v = heads_of(n.reshape(x, rows, width), query), heads_of(x, key), heads_of(x, value)
        scores = n("MatMul", q, n.transpose(k, 0, 2, 1))
        seen = n("MatMul", q, n.transpose(heads_of(table, key), 0, 2, 1))
        back = n("MatMul", k, n.transpose(heads_of(table, query), 0, 2, 1))
        scores = n("Add", scores, n("GatherElements", seen, index, axis=2))
        scores = n("Add", scores, n.transpose(n("GatherElements", back, index, axis=2), 0, 2, 1))
        y = n("MatMul", n("Softmax", n("Div", scores, n.const((3 * size) ** 0.5)), axis=-1), v)
        y = n.reshape(n.transpose(y, 1, 0, 2), 1, rows, width)
        x = n.layer_norm(n("Add", x, n.linear(y, width)))
        x = n.layer_norm(n("Add", x, n.linear(n.linear(x, 4 * width, "Gelu"), width)))
    return (x,)


def relative_waves(n: Net) -> tuple[str, ...]:
    """Sines of relative positions, projected in every layer, and shifted by pads and reshapes (Transformer-XL)."""
    rows, width, heads = 48, 128, 4
    x = n("Gather", n.weight(2000, width, spread=0.5), n.input(1, rows, kind="ids", bound=2000))
    angles = np.outer(np.arange(rows - 1, -rows, -1), 1e4 ** (-np.arange(0, width, 2) / width))
    waves = n.const(np.concatenate([np.sin(angles), np.cos(angles)], -1)[None])
    size, count = width // heads, 2 * rows - 1
    for _ in range(3):
        q = n.heads(n.linear(x, width), rows, heads, size, 0, 2, 1, 3)
        k = n.heads(n.linear(x, width), rows, heads, size, 0, 2, 3, 1)
        v = n.heads(n.linear(x, width), rows, heads, size, 0, 2, 1, 3)
        p = n.heads(n.linear(waves, width, bias=False), count, heads, size, 0, 2, 3, 1)
        near = n("MatMul", n("Add", q, n.weight(1, heads, 1, size, spread=0.1)), p)
        near = n.reshape(n("Pad", near, n.ints(0, 0, 0, 1, 0, 0, 0, 0)), 1, heads, count + 1, rows)
        near = n("Slice", near, n.ints(1), n.ints(count + 1), n.ints(2))
        near = n("Slice", n.reshape(near, 1, heads, rows, count), n.ints(0), n.ints(rows), n.ints(3))
        scores = n("Mul", n("Add", n("MatMul", q, k), near), n.const(size**-0.5))
        y = n.reshape(n.transpose(n("MatMul", n("Softmax", scores, axis=-1), v), 0, 2, 1, 3), 1, rows, width)
        x = n.feed_forward(n.layer_norm(n("Add", x, n.linear(y, width))))
    return (n.linear(x, 200),)


def linear_biases(n: Net) -> tuple[str, ...]:
    """A small decoder whose scores fall with distance (ALiBi), and shared input and output tables."""
    table = n.weight(1000, 128, spread=0.3)
    x = n("Gather", table, n.input(1, 48, kind="ids", bound=1000))
    apart = np.arange(48)[None] - np.arange(48)[:, None]
    slopes = 2.0 ** -np.arange(2, 10, 2)
    far = np.where(apart > 0, -1e9, slopes[:, None, None] * apart)[None]
    for _ in range(4):
        x = n.encoder(x, 4, bias=n.const(far), act="Gelu")
    return (n("MatMul", n.layer_norm(x), n.transpose(table, 1, 0)),)


def shared_layers(n: Net) -> tuple[str, ...]:
    """One layer's weights used four times (ALBERT)."""
    x = n.linear(n("Gather", n.weight(2000, 64, spread=0.5), n.input(1, 48, kind="ids", bound=2000)), 192)
    weights = [n.weight(192, 192) for _ in range(4)] + [n.weight(192, 768), n.weight(768, 192, fan=768)]
    for _ in range(4):
        q, k, v = (n.heads(n("MatMul", x, w), 48, 3, 64, *perm) for w, perm in
                   zip(weights, ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), strict=False))  # fmt: skip
        scores = n("Softmax", n("Div", n("MatMul", q, k), n.const(8.0)), axis=-1)
        y = n.reshape(n.transpose(n("MatMul", scores, v), 0, 2, 1, 3), 1, 48, 192)
        x = n.layer_norm(n("Add", x, n("MatMul", y, weights[3])))
        y = n("MatMul", n.activate(n("MatMul", x, weights[4]), "Gelu"), weights[5])
        x = n.layer_norm(n("Add", x, y))
    return (x,)


def perceiver(n: Net) -> tuple[str, ...]:
    """Few learned rows that look at many."""
    image = n.rows(n.conv(n.input(1, 3, 64, 64), 64, 3, 2, act=""))
    x = n.linear(n.weight(1, 32, 64, spread=0.5), 64)
    for _ in range(2):
        x = n("Add", x, n.attention(n.layer_norm(x), 2, context=n.layer_norm(image)))
        x = n.encoder(n.feed_forward(x), 2)
    return (n.dense(n.mean(x, 1), 100),)


def speech_encoder(n: Net) -> tuple[str, ...]:
    """Convolutions along time in front of a transformer (Whisper)."""
    x = n.conv(n.conv(n.input(1, 80, 200), 192, 3, act="Gelu"), 192, 3, 2, act="Gelu")
    x = n("Add", n.transpose(x, 0, 2, 1), n.weight(1, 100, 192, spread=0.1))
    for _ in range(3):
        x = n.encoder(x, 3)
    return (n.layer_norm(x),)


def wave_encoder(n: Net) -> tuple[str, ...]:
    """Strided convolutions of sound, with a grouped one that tells positions (wav2vec 2.0)."""
    x = n.input(1, 1, 8000)
    for kernel, stride in ((10, 5), (3, 2), (3, 2), (3, 2), (2, 2)):
        x = n.activate(n.conv(x, 128, kernel, stride, act="", pad=False), "Gelu")
    x = n.layer_norm(n.transpose(x, 0, 2, 1))
    rows = n.shape(x)[1]
    place = n.conv(n.transpose(x, 0, 2, 1), 128, 31, group=16, act="Gelu")
    x = n("Add", x, n.transpose(place, 0, 2, 1))
    assert n.shape(x)[1] == rows
    return (n.encoder(n.encoder(x, 4), 4),)


def _recurrent(n: Net, op: str, x: str, hidden: int, gates: int, *, both: bool = True) -> str:
    ways, width = 1 + both, n.shape(x)[2]
    kernel = n.weight(ways, gates * hidden, width, fan=width)
    again = n.weight(ways, gates * hidden, hidden, fan=hidden)
    bias = n.weight(ways, 2 * gates * hidden, spread=0.1)
    y = n(op, x, kernel, again, bias, hidden_size=hidden, direction="bidirectional" if both else "forward")
    rows = n.shape(x)[0]
    return n.reshape(n.transpose(y, 0, 2, 1, 3), rows, 1, ways * hidden)


def lstm_language(n: Net) -> tuple[str, ...]:
    """Two forward LSTMs over words."""
    x = n("Gather", n.weight(2000, 128, spread=0.5), n.input(1, 32, kind="ids", bound=2000))
    x = n.transpose(x, 1, 0, 2)
    x = _recurrent(n, "LSTM", _recurrent(n, "LSTM", x, 128, 4, both=False), 128, 4, both=False)
    return (n.linear(x, 2000),)


def deep_speech(n: Net) -> tuple[str, ...]:
    """Convolutions of a spectrogram, bidirectional GRUs, letters."""
    x = n.conv(n.conv(n.input(1, 1, 80, 64), 32, (11, 5), 2, act="Relu6"), 32, (11, 5), 1, act="Relu6")
    rows = n.shape(x)[3]
    x = n.transpose(n.reshape(x, 1, -1, rows), 2, 0, 1)
    x = _recurrent(n, "GRU", _recurrent(n, "GRU", x, 96, 3), 96, 3)
    return (n("LogSoftmax", n.linear(x, 29), axis=-1),)


def character_tagger(n: Net) -> tuple[str, ...]:
    """Letters by convolutions, words by an LSTM, tags."""
    letters = n.input(1, 24, 12, kind="ids", bound=80)
    y = n.transpose(n("Gather", n.weight(80, 32, spread=0.5), n.reshape(letters, 24, 12)), 0, 2, 1)
    y = n.reshape(n("ReduceMax", n.conv(y, 64, 3), axes=[2], keepdims=0), 1, 24, 64)
    words = n("Gather", n.weight(2000, 96, spread=0.5), n.input(1, 24, kind="ids", bound=2000))
    x = n.transpose(n.concat(words, y, axis=2), 1, 0, 2)
    return (n.linear(_recurrent(n, "LSTM", x, 96, 4), 17),)


def graph_convolution(n: Net) -> tuple[str, ...]:
    """Three layers over a normalized matrix of neighbours."""
    x, near = n.input(200, 64), n.input(200, 200)
    degree = n("Pow", n("Add", n("ReduceSum", n("Abs", near), n.ints(1), keepdims=1), n.const(1.0)), n.const(-0.5))
    near = n("Mul", n("Mul", near, degree), n.transpose(degree, 1, 0))
    for width in (128, 128, 7):
        x = n.activate(n("MatMul", near, n.linear(x, width)), "" if width == 7 else "Relu")
    return (n("Softmax", x, axis=1),)


def graph_sage(n: Net) -> tuple[str, ...]:
    """Sums over edges by scattering what each one brings."""
    x, edges = n.input(200, 64), n.input(2, 1200, kind="ids", bound=200)
    start, end = (n.reshape(part, 1200, 1) for part in n.split(edges, 2, axis=0))
    ones = n("ScatterElements", n.const(np.full((200, 1), 1e-6)), end, n.const(np.ones((1200, 1))), reduction="add")
    for width in (96, 96):
        brought = n("Gather", x, n.reshape(start, 1200))
        there = n("Expand", end, n.ints(1200, n.shape(x)[1]))
        empty = n.const(np.zeros((200, n.shape(x)[1])))
        total = n("ScatterElements", empty, there, brought, axis=0, reduction="add")
        mean = n("Div", total, ones)
        x = n.activate(n("Add", n.linear(x, width), n.linear(mean, width, bias=False)))
        x = n("Div", x, n("Max", n("ReduceL2", x, axes=[1], keepdims=1), n.const(1e-12)))
    return (x,)


def graph_attention(n: Net) -> tuple[str, ...]:
    """Scores of pairs as sums of two columns, masked by a matrix of neighbours."""
    x, near = n.input(150, 64), n.input(150, 150)
    hidden = n("Greater", near, n.const(0.5))
    for width in (64, 32):
        y = n.linear(x, width, bias=False)
        score = n("Add", n.linear(y, 1, bias=False), n.transpose(n.linear(y, 1, bias=False), 1, 0))
        score = n("Where", hidden, n("LeakyRelu", score, alpha=0.2), n.const(-9e15))
        x = n.activate(n("MatMul", n("Softmax", score, axis=1), y), "Elu")
    return (x,)


def _tables(n: Net, fields: int, rows: int, width: int, batch: int = 16) -> list[str]:
    ids = n.split(n.input(batch, fields, kind="ids", bound=rows), fields)
    return [n("Gather", n.weight(rows, width, spread=0.3), n.reshape(each, batch)) for each in ids]


def dlrm(n: Net) -> tuple[str, ...]:
    """Dense features and tables, the products of all pairs, and a dense top."""
    x = n.dense(n.dense(n.input(16, 13), 64, "Relu"), 16, "Relu")
    rows = n.concat(*(n("Unsqueeze", each, n.ints(1)) for each in (x, *_tables(n, 8, 1000, 16))))
    pairs = n.reshape(n("MatMul", rows, n.transpose(rows, 0, 2, 1)), 16, 81)
    lower = [a * 9 + b for a in range(9) for b in range(a)]
    y = n.concat(x, n("Gather", pairs, n.const(lower, np.int64), axis=1))
    return (n.activate(n.dense(n.dense(n.dense(y, 128, "Relu"), 64, "Relu"), 1), "Sigmoid"),)


def deep_fm(n: Net) -> tuple[str, ...]:
    """A factorization machine beside dense layers."""
    rows = n.concat(*(n("Unsqueeze", each, n.ints(1)) for each in _tables(n, 10, 1000, 16)))
    total = n("ReduceSum", rows, n.ints(1), keepdims=0)
    squares = n("ReduceSum", n("Mul", rows, rows), n.ints(1), keepdims=0)
    pairs = n("Sub", n("Pow", total, n.const(2.0)), squares)
    machine = n("Mul", n("ReduceSum", pairs, n.ints(1), keepdims=1), n.const(0.5))
    deep = n.dense(n.dense(n.reshape(rows, 16, 160), 128, "Relu"), 1)
    return (n.activate(n("Add", machine, deep), "Sigmoid"),)


def wide_and_deep(n: Net) -> tuple[str, ...]:
    """A linear part beside a deep one."""
    wide, tables = n.input(16, 200), _tables(n, 6, 2000, 32)
    deep = n.concat(n.input(16, 10), *tables)
    for width in (256, 128, 64):
        deep = n.dense(deep, width, "Relu")
    return (n.activate(n("Add", n.dense(deep, 1), n.dense(wide, 1)), "Sigmoid"),)


def interest(n: Net) -> tuple[str, ...]:
    """What somebody looked at before, weighed by how it fits a candidate (DIN)."""
    table = n.weight(2000, 32, spread=0.4)
    item = n("Gather", table, n.input(8, 1, kind="ids", bound=2000))
    past = n("Gather", table, n.input(8, 30, kind="ids", bound=2000))
    same = n("Expand", item, n.ints(8, 30, 32))
    both = n.concat(same, past, n("Sub", same, past), n("Mul", same, past), axis=2)
    score = n.linear(n.linear(both, 36, "Sigmoid"), 1)
    person = n("MatMul", n.transpose(score, 0, 2, 1), past)
    y = n.concat(n.reshape(person, 8, 32), n.reshape(item, 8, 32))
    return (n.activate(n.dense(n.dense(y, 80, "PRelu"), 1), "Sigmoid"),)


def cross_network(n: Net) -> tuple[str, ...]:
    """Crosses of all features by matrices, one after the other (DCN v2)."""
    first = x = n.concat(n.input(16, 13), *_tables(n, 8, 1000, 16))
    for _ in range(3):
        x = n("Add", n("Mul", first, n.dense(x, 141)), x)
    return (n.activate(n.dense(n.dense(x, 128, "Relu"), 1), "Sigmoid"),)


def contrib_encoder(n: Net) -> tuple[str, ...]:
    """A transformer that somebody's optimizer wrote in operators of com.microsoft."""
    ids, width, rows = n.input(1, 64, kind="ids", bound=2000), 192, 64
    x = n("Gather", n.weight(2000, width, spread=0.5), ids)
    for _ in range(3):
        weight, bias = n.weight(width, 3 * width, fan=width), n.weight(3 * width, spread=0.1)
        y = n("com.microsoft::Attention", x, weight, bias, num_heads=3)
        y = n.linear(y, width, bias=False)
        scale, shift = n.const(np.ones(width)), n.weight(width, spread=0.1)
        x = n("com.microsoft::SkipLayerNormalization", x, y, scale, shift, n.weight(width, spread=0.1))
        y = n("MatMul", x, n.weight(width, 4 * width, fan=width))
        y = n("com.microsoft::BiasGelu", y, n.weight(4 * width, spread=0.1))
        y = n("MatMul", y, n.weight(4 * width, width, fan=4 * width))
        x = n("com.microsoft::SkipLayerNormalization", y, x, scale, shift)
    assert n.shape(x) == (1, rows, width)
    return (x,)


def contrib_decoder(n: Net) -> tuple[str, ...]:
    """A decoder with rotary positions and attention of com.microsoft, and its norm and gates spelled out."""
    rows, width, heads = 32, 256, 4
    x = n("Gather", n.weight(2000, width, spread=0.5), n.input(1, rows, kind="ids", bound=2000))
    places, half = n.const(np.arange(rows)[None], np.int64), width // heads // 2
    angles = np.outer(np.arange(rows), 1e4 ** (-np.arange(half) / half))
    cos, sin = n.const(np.cos(angles)), n.const(np.sin(angles))
    mask = n.const(np.triu(np.full((rows, rows), -1e9), 1)[None, None])
    for _ in range(2):
        y = _root_norm(n, x)
        q, k, v = (n.linear(y, width, bias=False) for _ in range(3))
        q, k = (n("com.microsoft::RotaryEmbedding", each, places, cos, sin, num_heads=heads) for each in (q, k))
        y = n("com.microsoft::MultiHeadAttention", q, k, v, "", "", mask, num_heads=heads)
        x = n("Add", x, n.linear(y, width, bias=False))
        y = _root_norm(n, x)
        y = n("Mul", n.linear(y, 688, "Silu", bias=False), n.linear(y, 688, bias=False))
        x = n("Add", x, n.linear(y, width, bias=False))
    return (n.linear(_root_norm(n, x), 500, bias=False),)


def _root_norm(n: Net, x: str) -> str:
    square = n.mean(n("Pow", x, n.const(2.0)), -1, keep=True)
    y = n("Mul", x, n("Reciprocal", n("Sqrt", n("Add", square, n.const(1e-6)))))
    return n("Mul", y, n.const(np.linspace(0.9, 1.1, n.shape(x)[-1])))


SEQUENCES = (
    coatnet, swin_v2, conv_transformer, cmt, group_hybrid, mlp_mixer, gmlp, conformer, temporal, point_net,
    disentangled, relative_waves, linear_biases, shared_layers, perceiver, speech_encoder, wave_encoder, lstm_language,
    deep_speech, character_tagger, graph_convolution, graph_sage, graph_attention, dlrm, deep_fm, wide_and_deep,
    interest, cross_network, contrib_encoder, contrib_decoder,
)  # fmt: skip
