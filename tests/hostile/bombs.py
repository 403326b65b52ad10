"""Models of a few hundred bytes that state sizes which nobody can have: by attribute, operand, dimension or function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import onnx
from onnx import TensorProto, helper, parser

SIZES = (1 << 20, 3 << 26, (1 << 31) - 1, 1 << 33, (1 << 62) - 1, (1 << 63) - 1)
"""From what is only too long for a shape to what no 64 bits hold the double of."""

_C = (
    "float[1] one = {{2}}, float[1,1] two = {{2}}, float[1,1,1,1] four = {{2}}, int64[1] n = {{{n}}}, int64 s = {{{n}}}"
)

MAKERS: dict[str, tuple[int, str]] = {
    "RandomNormal": (18, "b = RandomNormal <shape = [{n}]> ()"),
    "RandomUniform": (18, "b = RandomUniform <shape = [{n}]> ()"),
    "RandomUniform of int": (18, "r = RandomUniform <shape = [{n}]> ()  b = Cast <to = 7> (r)"),
    "RandomNormalLike": (18, "c = ConstantOfShape (n)  b = RandomNormalLike (c)"),
    "Bernoulli": (18, "c = ConstantOfShape (n)  b = Bernoulli (c)"),
    "Multinomial": (18, "m = Multinomial <sample_size = {n}> (two)  l = Squeeze (m)  b = Cast <to = 1> (l)"),
    "ConstantOfShape": (18, "b = ConstantOfShape (n)"),
    "ConstantOfShape of int": (18, "b = ConstantOfShape <value = int64[1] {{7}}> (n)"),
    "Expand": (18, "b = Expand (one, n)"),
    "Tile": (18, "b = Tile (one, n)"),
    "Tile of opset 1": (1, "z = Constant <value = float {{0}}> ()  t = Constant <value = float {{1e12}}> ()  b = Tile (one, t, z)"),
    "Range": (18, "z = Constant <value_int = 0> ()  i = Constant <value_int = 1> ()  b = Range (z, s, i)"),
    "OneHot": (18, "z = Constant <value_ints = [0]> ()  v = Constant <value_floats = [0.0, 1.0]> ()  o = OneHot (z, s, v)  b = Squeeze (o)"),
    "EyeLike": (18, "q = Concat <axis = 0> (n, n)  c = ConstantOfShape (q)  b = EyeLike (c)"),
    "Pad": (18, "z = Constant <value_ints = [0]> ()  q = Concat <axis = 0> (z, n)  b = Pad (one, q)"),
    "Pad of opset 2": (2, "b = Pad <pads = [0, {n}]> (one)"),
    "Pad of opset 1": (1, "b = Pad <paddings = [0, {n}]> (one)"),
    "CenterCropPad": (18, "b = CenterCropPad (one, n)"),
    "Col2Im": (18, "i = Constant <value_ints = [1]> ()  q = Concat <axis = 0> (i, n)  k = Constant <value_ints = [1, 1]> ()  x3 = Reshape (one, r3)  b = Col2Im (x3, q, k)  r3 = Constant <value_ints = [1, 1, 1]> ()"),
    "DFT": (17, "x3 = Reshape (one, r3)  r3 = Constant <value_ints = [1, 1, 1]> ()  d = DFT (x3, s)  b = Squeeze (d)"),
    "DFT of opset 20": (20, "x3 = Reshape (one, r3)  r3 = Constant <value_ints = [1, 1, 1]> ()  d = DFT (x3, s)  b = Squeeze (d)"),
    "STFT": (17, "x3 = Reshape (one, r3)  r3 = Constant <value_ints = [1, 1, 1]> ()  i = Constant <value_int = 1> ()  d = STFT (x3, i, \"\", s)  b = Squeeze (d)"),
    "MelWeightMatrix": (17, "i = Constant <value_int = 4> ()  lo = Constant <value_float = 0.0> ()  m = MelWeightMatrix (s, i, i, lo, lo)  b = Squeeze (m)"),
    "MelWeightMatrix of long spectra": (17, "i = Constant <value_int = 1> ()  lo = Constant <value_float = 0.0> ()  m = MelWeightMatrix (i, s, i, lo, lo)  b = Squeeze (m)"),
    "HannWindow": (17, "b = HannWindow (s)"),
    "HammingWindow": (17, "b = HammingWindow (s)"),
    "BlackmanWindow": (17, "b = BlackmanWindow (s)"),
    "ConvTranspose": (18, "c = ConvTranspose <output_shape = [1, {n}], strides = [1, 1]> (four, four)  b = Squeeze (c)"),
    "ConvTranspose of strides": (18, "w = Expand (four, q)  q = Constant <value_ints = [1, 1, 1, 2]> ()  c = ConvTranspose <strides = [1, {n}]> (w, four)  b = Squeeze (c)"),
    "ConvTranspose of output padding": (18, "c = ConvTranspose <output_padding = [0, {n}]> (four, four)  b = Squeeze (c)"),
    "Conv of pads": (18, "c = Conv <pads = [0, 0, 0, {n}]> (four, four)  b = Squeeze (c)"),
    "MaxPool of pads": (18, "c = MaxPool <kernel_shape = [1, 2], pads = [0, 0, 0, {n}]> (four)  b = Squeeze (c)"),
    "AveragePool of pads": (18, "c = AveragePool <kernel_shape = [1, {n}], pads = [0, 0, 0, {n}]> (four)  b = Squeeze (c)"),
    "LpPool of pads": (18, "c = LpPool <kernel_shape = [1, 2], pads = [0, 0, 0, {n}]> (four)  b = Squeeze (c)"),
    "MaxUnpool": (18, "z = Constant <value = int64[1,1,1,1] {{0}}> ()  i = Constant <value_ints = [1, 1, 1]> ()  q = Concat <axis = 0> (i, n)  c = MaxUnpool <kernel_shape = [1, 1]> (four, z, q)  b = Squeeze (c)"),
    "MaxUnpool of strides": (18, "z = Constant <value = int64[1,1,1,2] {{0, 1}}> ()  w = Concat <axis = 3> (four, four)  c = MaxUnpool <kernel_shape = [1, 1], strides = [1, {n}]> (w, z)  b = Squeeze (c)"),
    "Resize by scales": (18, 'q = Constant <value_floats = [1.0, 1.0, 1.0, 3e9]> ()  c = Resize (four, "", q)  b = Squeeze (c)'),
    "Resize by sizes": (18, 'i = Constant <value_ints = [1, 1, 1]> ()  q = Concat <axis = 0> (i, n)  c = Resize (four, "", "", q)  b = Squeeze (c)'),
    "Upsample of opset 7": (7, "c = Upsample <scales = [1.0, 1.0, 1.0, 3e9]> (four)  b = Squeeze (c)"),
    "Upsample of opset 9": (9, "q = Constant <value = float[4] {{1, 1, 1, 3e9}}> ()  c = Upsample (four, q)  b = Squeeze (c)"),
    "GridSample": (20, "q = Constant <value_ints = [1, 1]> ()  p = Constant <value_ints = [2]> ()  r = Concat <axis = 0> (q, n, p)  g = ConstantOfShape (r)  c = GridSample (four, g)  b = Squeeze (c)"),
    "AffineGrid": (20, "t = Constant <value = float[1,2,3] {{1, 0, 0, 0, 1, 0}}> ()  q = Constant <value_ints = [1, 1, 1]> ()  r = Concat <axis = 0> (q, n)  c = AffineGrid (t, r)  p = Constant <value_ints = [-1]> ()  b = Reshape (c, p)"),
    "Reshape to one row": (18, "c = ConstantOfShape (n)  p = Constant <value_ints = [-1]> ()  b = Reshape (c, p)"),
    "Gather of many": (18, "i = ConstantOfShape <value = int64[1] {{0}}> (n)  b = Gather (one, i)"),
    "Concat of many": (18, "c = ConstantOfShape (n)  b = Concat <axis = 0> (c, c, c, c, c, c, c, c)"),
    "Split to sequence": (18, "c = ConstantOfShape (n)  q = SplitToSequence (c)  b = ConcatFromSequence <axis = 0> (q)"),
    "Split": (18, "c = ConstantOfShape (n)  b, d = Split <axis = 0, num_outputs = 2> (c)"),
    "Split into many": (18, "c = ConstantOfShape (n)  b, d = Split <axis = 0, num_outputs = {n}> (c)"),
    "Einsum": (18, 'c = ConstantOfShape (n)  d = Einsum <equation = "i,j->ij"> (c, c)  p = Constant <value_ints = [-1]> ()  b = Reshape (d, p)'),
    "MatMul": (18, "i = Constant <value_ints = [1]> ()  q = Concat <axis = 0> (n, i)  t = Concat <axis = 0> (i, n)  c = ConstantOfShape (q)  d = ConstantOfShape (t)  e = MatMul (c, d)  p = Constant <value_ints = [-1]> ()  b = Reshape (e, p)"),
    "NonZero": (18, "c = ConstantOfShape <value = float[1] {{1}}> (n)  d = NonZero (c)  e = Cast <to = 1> (d)  b = Squeeze (e)"),
    "TopK": (18, "c = ConstantOfShape (n)  b, d = TopK (c, n)"),
    "DepthToSpace": (18, "c = DepthToSpace <blocksize = {n}> (four)  b = Squeeze (c)"),
    "SpaceToDepth": (18, "c = SpaceToDepth <blocksize = {n}> (four)  b = Squeeze (c)"),
    "Constant of sparse": (18, "b = Identity (sparse)"),
    "Loop of scans": (18, "c = Constant <value = bool {{1}}> ()  q, b = Loop (s, c, one) <body = body (int64 i, bool ci, float[1] v) => (bool co, float[1] w, float o) {{ co = Identity (ci)  w = Identity (v)  o = Squeeze (v) }}>"),
    "LSTM of hidden size": (18, "x3 = Reshape (one, r3)  r3 = Constant <value_ints = [1, 1, 1]> ()  w = ConstantOfShape (n)  y3 = LSTM <hidden_size = {n}> (x3, x3, x3)  b = Squeeze (y3)"),
    "TfIdfVectorizer": (18, "i = Constant <value_ints = [1]> ()  b = TfIdfVectorizer <max_gram_length = 1, max_skip_count = 0, min_gram_length = 1, mode = \"TF\", ngram_counts = [0], ngram_indexes = [{n}], pool_int64s = [1]> (i)"),
    "RoiAlign": (18, "r = Constant <value = float[1,4] {{0, 0, 1, 1}}> ()  i = Constant <value_ints = [0]> ()  c = RoiAlign <output_height = 1, output_width = {n}> (four, r, i)  b = Squeeze (c)"),
    "MaxRoiPool": (18, "r = Constant <value = float[1,5] {{0, 0, 0, 1, 1}}> ()  c = MaxRoiPool <pooled_shape = [1, {n}]> (four, r)  b = Squeeze (c)"),
    "ImageScaler of strangers": (18, "b = strange.Wide <size = {n}> (n)"),
    "contrib Pad": (18, "z = Constant <value_ints = [0]> ()  q = Concat <axis = 0> (z, n)  b = com.microsoft.Pad (one, q)"),
    "contrib Range": (18, "z = Constant <value = float {{0}}> ()  w = Constant <value = float {{1e12}}> ()  b = com.microsoft.Range (z, w)"),
    "contrib UnfoldTensor": (18, "c = com.microsoft.UnfoldTensor <size = {n}> (one)  b = Squeeze (c)"),
    "contrib ConvTransposeWithDynamicPads": (18, "c = com.microsoft.ConvTransposeWithDynamicPads <output_shape = [1, {n}]> (four, four)  b = Squeeze (c)"),
    "contrib CropAndResize": (18, "r = Constant <value = float[1,4] {{0, 0, 1, 1}}> ()  i = Constant <value = int32[1] {{0}}> ()  o = Constant <value_ints = [1]> ()  h = Concat <axis = 0> (o, n)  c = com.microsoft.CropAndResize (four, r, i, h)  b = Squeeze (c)"),
    "a call": (18, "b = local.Wide (n)"),
    "a declared output": (18, "b = strange.Wide (one)"),
}  # fmt: skip
"""A maker of a vector `b` of {n} elements: its opset, and its nodes."""

FOLLOWERS = {
    "nothing": "y = Add (x, b)",
    "sums": "b1 = Add (b, b)  b2 = Mul (b1, b)  y = Add (x, b2)",
    "a cast": "b1 = Cast <to = 7> (b)  b2 = Add (b1, b1)  b3 = Cast <to = 1> (b2)  y = Add (x, b3)",
    "a shape": "b1 = Cast <to = 7> (b)  b2 = ConstantOfShape (b1)  y = Add (x, b2)",
    "a concatenation": "b1 = Cast <to = 7> (b)  b2 = Concat <axis = 0> (b1, b1)  b3 = Reshape (x, b2)  y = Add (x, b3)",
    "its length": "b1 = Shape (b)  b2 = ConstantOfShape (b1)  y = Add (x, b2)",
}
"""What reads `b`."""


Made = tuple[str, Callable[[], bytes]]
"""A name, and what makes the file."""


def bombs() -> Iterator[Made]:
    """Every maker with every reader at one size, and every size with one reader."""
    number = 0
    for name in MAKERS:
        for reader in FOLLOWERS:
            number += 1
            yield f"{name}, {reader}", partial(_bytes, name, reader, SIZES[number % len(SIZES)])
        for size in SIZES:
            yield f"{name}, {size}", partial(_bytes, name, "sums", size)
    yield from _shaped()


def bomb(name: str, reader: str, size: int) -> onnx.ModelProto:
    """One of them."""
    opset, maker = MAKERS[name]
    body = (
        f"{maker}  {FOLLOWERS[reader]}".format(n=size)
        if "{n}" in maker or "{{" in maker
        else f"{maker}  {FOLLOWERS[reader]}"
    )
    constants = _C.format(n=size)
    text = (
        f'<ir_version: 10, opset_import: ["" : {opset}, "strange" : 1, "local" : 1, "com.microsoft" : 1]> '
        f"g (float[1] x) => (y) <{constants}, float[{size}] b> {{ {body} }}"
    )
    functions = '<domain: "local", opset_import: ["" : 18]> Wide (n) => (v) { v = ConstantOfShape (n) }'
    if name != "a declared output":
        text = text.replace(f", float[{size}] b>", ">")
    model = parser.parse_model(text + functions)
    if name == "Constant of sparse":
        values = helper.make_tensor("sparse", TensorProto.FLOAT, [1], [1.0])
        indices = helper.make_tensor("", TensorProto.INT64, [1], [0])
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [size]))
    return model


def _bytes(name: str, reader: str, size: int) -> bytes:
    return bomb(name, reader, size).SerializeToString()


def _parsed(text: str) -> bytes:
    return parser.parse_model(text).SerializeToString()


def _shaped() -> Iterator[Made]:
    """What states its size by the dimensions of its inputs."""
    head = '<ir_version: 10, opset_import: ["" : 18]> '
    for size in SIZES:
        for name, body in {
            "Shape": "(float[{n}] x) => (y) {{ s = Shape (x)  y = ConstantOfShape (s) }}",
            "Size": "(float[{n}] x) => (y) {{ s = Size (x)  z = Constant <value_int = 0> ()  i = Constant <value_int = 1> ()  y = Range (z, s, i) }}",
            "a long input": "(int64[{n}] x) => (y) {{ a = Add (x, x)  b = Mul (a, x)  y = ConstantOfShape (b) }}",
            "high rank": "(float[{n},{n},{n},{n}] x) => (y) {{ a = Neg (x)  s = Size (a)  y = Range (s, s, s) }}",
            "Concat of itself": "(float[{n}] x) => (y) {{ a = Concat <axis = 0> (x, x)  y = Concat <axis = 0> (a, a) }}",
            "a flat input": "(float[{n},2] x) => (y) {{ a = Flatten <axis = 0> (x)  b = Squeeze (a)  c = Cast <to = 7> (b)  y = Add (c, c) }}",
            "a split": "(float[{n}] x) => (y, z) {{ y, z = Split <axis = 0, num_outputs = 2> (x) }}",
            "a gap": "(float[{n}] x) => (y) <int64[1] b = {{1}}, int64[1] e = {{{n}}}> {{ y = Slice (x, b, e) }}",
            "a kernel": "(float[1,1,{n},1] x, float[1,1,{n},1] w) => (y) {{ y = Conv <kernel_shape = [{n},1], dilations = [{n},{n}]> (x, w) }}",
            "a bias": "(float[1,{n},1,1] x, float[{n},1,1,1] w) => (y) {{ a = Conv <group = {n}> (x, w)  y = Relu (a) }}",
            "a norm": "(float[1,{n},4] x, float[{n}] s) => (y) {{ y = InstanceNormalization (x, s, s) }}",
            "a matrix": "(float[{n},{n}] x) => (y) {{ a = MatMul (x, x)  b = Transpose <perm = [1, 0]> (a)  y = MatMul (b, x) }}",
            "a scan": "(float[1] x, float[{n},1] w) => (y, u) {{ y, u = Scan <num_scan_inputs = 1, body = b (float[1] s, float[1] e) => (float[1] so, float[1] o) {{ so = Add (s, e)  o = Neg (e) }}> (x, w) }}",
            "a symbol": "(float[N,{n}] x, float[N] w) => (y) {{ a = Transpose (x)  b = Add (a, w)  s = Shape (b)  y = Expand (w, s) }}",
        }.items():  # fmt: skip
            yield f"{name} of {size}", partial(_parsed, head + "g " + body.format(n=size))
