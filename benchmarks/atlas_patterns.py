"""Further cases of the atlas: rare operators, and groups of operators that exporters write for one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.atlas_cases import Case


def patterns() -> Iterator[Case]:
    """Every case."""
    for part in (
        _normalizations,
        _pools,
        _convolutions,
        _spectra,
        _enlarged,
        _masks,
        _moves,
        _attention,
        _heads,
        _others,
    ):
        yield from part()


def numbers(kind: str, name: str, array: np.ndarray) -> str:
    """A constant in the text form."""
    dims = f"[{','.join(map(str, array.shape))}]" if array.ndim else ""
    return f"{kind}{dims} {name} = {{{', '.join(map(str, array.ravel().tolist()))}}}"


def _normalizations() -> Iterator[Case]:
    for dims in ("1,64,56,56", "1,96,27,27", "1,256,13,13"):
        yield Case("LRN", (f"float[{dims}]",), "y = LRN <size = 5> (x)")
    for dims, axis in (("128,512", -1), ("1,64,28,28", 1), ("1,512", -1)):
        yield Case("LpNormalization", (f"float[{dims}]",), f"y = LpNormalization <axis = {axis}> (x)")
    for dims in ("1,64,56,56", "1,16,14,14"):
        yield Case("Shrink", (f"float[{dims}]",), "y = Shrink <bias = 0.5, lambd = 0.5> (x)")
        yield Case("Elu", (f"float[{dims}]",), "y = Elu <alpha = 0.5> (x)")


def _pools() -> Iterator[Case]:
    for opset in (17, 22):
        for dims, kernel in (("1,512,7,7", "7, 7"), ("1,1024,14,14", "14, 14"), ("1,64,1024", "1024")):
            for op in ("AveragePool", "MaxPool"):
                yield Case(op, (f"float[{dims}]",), f"y = {op} <kernel_shape = [{kernel}]> (x)", opset=opset)


def _convolutions() -> Iterator[Case]:
    for dims, weight in (("1,512,7,7", "512,1,7,7"), ("1,1280,7,7", "1280,1,7,7"), ("1,256,4,4", "256,1,4,4")):
        group = dims.split(",")[1]
        yield Case("Conv", (f"float[{dims}]",), f"y = Conv <group = {group}> (x, w)", (f"w = {weight}",))
    for dims, weight in (
        ("1,64,8,16,16", "64,32,2,2,2"),
        ("1,128,4,8,8", "128,64,2,2,2"),
        ("1,32,16,32,32", "32,16,2,2,2"),
    ):
        body = "y = ConvTranspose <strides = [2, 2, 2]> (x, w)"
        yield Case("ConvTranspose", (f"float[{dims}]",), body, (f"w = {weight}",))
    for channels, side, stride in ((21, 32, 2), (64, 56, 2), (21, 32, 8)):
        kernel = 2 * stride
        ramp = 1 - np.abs(np.arange(kernel) - (kernel - 1) / 2) / stride
        weight = np.broadcast_to(np.outer(ramp, ramp), (channels, 1, kernel, kernel))
        pads = ", ".join([str(stride // 2)] * 4)
        yield Case(
            "ConvTranspose",
            (f"float[1,{channels},{side},{side}]",),
            f"y = ConvTranspose <group = {channels}, strides = [{stride}, {stride}], pads = [{pads}]> (x, w)",
            (numbers("float", "w", weight),),
        )
    for dims in ("1,64,56,56", "1,128,64,64", "1,256,28,28", "1,32,32,32"):
        for scale in (2, 4):
            given = f"float[4] s = {{1, 1, {scale}, {scale}}}"
            yield Case("Resize", (f"float[{dims}]",), 'y = Resize <mode = "linear"> (x, , s)', (given,), opset=13)


def _spectra() -> Iterator[Case]:
    for frames, length in ((100, 400), (100, 512), (300, 1024), (16, 64)):
        yield Case("DFT", (f"float[{frames},{length},1]",), "y = DFT <axis = 1, onesided = 1> (x)")
    for samples, length, step in ((16000, 400, 160), (16000, 512, 128), (64000, 1024, 256)):
        window = (f"int64 s = {{{step}}}", f"w = {length}")
        yield Case("STFT", (f"float[1,{samples},1]",), "y = STFT <onesided = 1> (x, s, w)", window)


def _enlarged() -> Iterator[Case]:
    for channels, side, scale, outputs in ((64, 28, 2, 64), (256, 16, 4, 256), (128, 32, 2, 19)):
        constants = (f"w = {outputs},{channels},1,1", f"float[4] s = {{1, 1, {scale}, {scale}}}")
        yield Case(
            "Resize and 1x1 Conv",
            (f"float[1,{channels},{side},{side}]",),
            'r = Resize <mode = "linear"> (x, , s) y = Conv (r, w)',
            constants,
        )
    for dims in ("1,64,56,56", "1,512,1999", "1,128,768"):
        yield Case("Pow", (f"float[{dims}]",), "y = Pow (x, e)", ("float e = {2}",))


def _masks() -> Iterator[Case]:
    for heads, rows, length in ((12, 128, 128), (12, 384, 384), (32, 1, 1024)):
        for number in ("-3.4028235e38", "-10000", "0"):
            inputs = (f"float[1,{heads},{rows},{length}]", f"bool[1,1,{rows},{length}]")
            yield Case("Where", inputs, "y = Where (u, x, c)", (f"float c = {{{number}}}",))
    for dims, repeats in (("64,56,1", "1, 1, 56"), ("1,128,1", "1, 1, 56")):
        given = f"int64[3] s = {{{repeats}}}"
        yield Case("Tile", (f"float[{dims}]",), "y = Tile (x, s)", (given,))


def _moves() -> Iterator[Case]:
    for dims, perm in (
        ("1,256,14,14", "0, 3, 2, 1"),
        ("1,8,32,32", "0, 3, 2, 1"),
        ("4,16,64,196", "1, 0, 3, 2"),
        ("128,64,32", "2, 1, 0"),
        ("1,16,16,2,2,64", "0, 5, 1, 3, 2, 4"),
    ):
        yield Case("Transpose", (f"float[{dims}]",), f"y = Transpose <perm = [{perm}]> (x)")
    for side, window, width in ((56, 7, 96), (28, 7, 192), (14, 7, 384)):
        count, shift = side // window, window // 2
        constants = (
            f"int64[1] b = {{{shift}}}", "int64[1] e = {9999}", "int64[1] z = {0}", "int64[1] f = {1}",
            "int64[1] g = {2}", f"int64[4] r = {{1, {side}, {side}, {width}}}",
            f"int64[6] s = {{1, {count}, {window}, {count}, {window}, {width}}}",
            f"int64[3] t = {{{count * count}, {window * window}, {width}}}",
        )  # fmt: skip
        yield Case(
            "Roll and windows",
            (f"float[1,{side * side},{width}]",),
            "a = Reshape (x, r) i = Slice (a, b, e, f) j = Slice (a, z, b, f) c = Concat <axis = 1> (i, j) "
            "k = Slice (c, b, e, g) l = Slice (c, z, b, g) d = Concat <axis = 2> (k, l) h = Reshape (d, s) "
            "m = Transpose <perm = [0, 1, 3, 2, 4, 5]> (h) y = Reshape (m, t)",
            constants,
        )


def _attention() -> Iterator[Case]:
    for heads, rows, width in ((12, 128, 64), (32, 1, 128), (8, 512, 64)):
        half = width // 2
        angles = np.outer(np.arange(rows), 1e4 ** (-np.arange(half) / half))
        dims = f"float[1,{heads},{rows},{width}]"
        twice = [np.concatenate([wave, wave], -1).round(5) for wave in (np.cos(angles), np.sin(angles))]
        waves = tuple(numbers("float", name, wave) for name, wave in zip("cs", twice, strict=True))
        ends = ("int64[1] z = {0}", f"int64[1] h = {{{half}}}", "int64[1] e = {9999}", "int64[1] l = {3}")
        yield Case(
            "Rotary embedding",
            (dims,),
            "a = Slice (x, z, h, l) b = Slice (x, h, e, l) n = Neg (b) r = Concat <axis = 3> (n, a) p = Mul (x, c) "
            "q = Mul (r, s) y = Add (p, q)",
            (*waves, *ends),
        )
        pairs = tuple(
            numbers("float", name, np.repeat(wave[:, :half], 2, -1)) for name, wave in zip("cs", twice, strict=True)
        )
        steps = (
            "int64[1] o = {1}",
            "int64[1] t = {2}",
            f"int64[4] f = {{1, {heads}, {rows}, {width}}}",
            "int64[1] u = {-1}",
        )
        yield Case(
            "Rotary embedding",
            (dims,),
            "a = Slice (x, z, e, l, t) b = Slice (x, o, e, l, t) n = Neg (b) i = Unsqueeze (n, u) j = Unsqueeze (a, u) "
            "k = Concat <axis = -1> (i, j) r = Reshape (k, f) p = Mul (x, c) q = Mul (r, s) y = Add (p, q)",
            (*pairs, *ends, *steps),
        )


def _heads() -> Iterator[Case]:
    bins = numbers("float", "w", np.arange(16.0).reshape(1, 16, 1, 1))
    for boxes in (8400, 2100, 300):
        constants = (bins, f"int64[4] s = {{1, 4, 16, {boxes}}}", f"int64[3] o = {{1, 4, {boxes}}}")
        yield Case(
            "Sides of boxes",
            (f"float[1,64,{boxes}]",),
            "r = Reshape (x, s) t = Transpose <perm = [0, 2, 1, 3]> (r) m = Softmax <axis = 1> (t) c = Conv (m, w) "
            "y = Reshape (c, o)",
            constants,
        )
    for dims in ("1,2,256,256", "1,2,16800"):
        yield Case("Softmax", (f"float[{dims}]",), "y = Softmax <axis = 1> (x)")


_CURVES = ("Acos", "Acosh", "Asin", "Asinh", "Atanh", "Cosh", "Hardmax", "IsNaN", "Sinh")
_OTHERS = (
    ("Sum", ("1,64,56,56", "1,64,56,56"), "y = Sum (x, u)", (), 17),
    ("Mean", ("1,64,56,56", "1,64,56,56"), "y = Mean (x, u)", (), 17),
    ("Sub", ("1,64,56,56", "1,64,56,56"), "y = Sub (x, u)", (), 17),
    ("Gemm", ("128,768",), "y = Gemm (x, w)", ("w = 768,768",), 17),
    ("GridSample", ("1,64,56,56", "1,56,56,2"), "y = GridSample (x, u)", (), 20),
    ("LpPool", ("1,64,56,56",), "y = LpPool <kernel_shape = [2, 2], strides = [2, 2]> (x)", (), 18),
    ("GlobalLpPool", ("1,64,56,56",), "y = GlobalLpPool (x)", (), 17),
    ("RMSNormalization", ("1,128,768",), "y = RMSNormalization (x, w)", ("w = 768",), 23),
    ("MeanVarianceNormalization", ("1,64,56,56",), "y = MeanVarianceNormalization (x)", (), 17),
    ("CumProd", ("1,64,64",), "y = CumProd (x, a)", ("int64 a = {1}",), 26),
    ("ReverseSequence", ("16,32,64",), "y = ReverseSequence (x, l)", (numbers("int64", "l", np.full(32, 16)),), 17),
    ("Trilu", ("1,12,128,128",), "y = Trilu (x)", (), 17),
    ("Col2Im", ("1,576,3136",), "y = Col2Im <pads = [1, 1, 1, 1]> (x, s, k)",
     ("int64[2] s = {56, 56}", "int64[2] k = {3, 3}"), 18),
    ("GatherND", ("1,128,768",), "y = GatherND (x, i)", (numbers("int64", "i", np.array([[0, 5], [0, 90]])),), 17),
    ("ScatterND", ("1,8400,4", "1,2,4"), "y = ScatterND (x, i, u)",
     (numbers("int64", "i", np.array([[[0, 5], [0, 90]]])),), 17),
    ("ScatterElements", ("1,128,768", "1,1,768"), "y = ScatterElements <axis = 1> (x, i, u)",
     (numbers("int64", "i", np.zeros((1, 1, 768), np.int64)),), 17),
    ("BatchNormalization", ("1,64,56,56",), "y = BatchNormalization (x, a, b, c, p)",
     ("a = 64", "b = 64", "c = 64", numbers("float", "p", np.ones(64))), 17),
)  # fmt: skip


def _others() -> Iterator[Case]:
    for op in _CURVES:
        yield Case(op, ("float[1,64,56,56]",), f"y = {op} (x)", opset=18)
    for name, shapes, body, constants, opset in _OTHERS:
        yield Case(name, tuple(f"float[{dims}]" for dims in shapes), body, constants, opset)
