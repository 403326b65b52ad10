"""What the other forms of slow operators gain in whole networks: skeletons, and small ones of further families.

Each network runs as exported with all of the runtime's own optimizations, and as `all` writes it with the
runtime's off: without the passes that choose by `graphopt_passes.algorithm.work`, with them, and with those of numerics
`fast`, too. The four run in turn, on one thread; the least times of the processor count,
from which other work on the machine takes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import onnx

from benchmarks import results
from benchmarks.atlas import PAGE, in_turn
from benchmarks.atlas_cases import Case
from benchmarks.atlas_patterns import numbers
from benchmarks.skeleton import load_skeleton, sample_inputs
from benchmarks.table import grid
from graphopt import PassManager
from graphopt.pipeline import registry
from graphopt.system.sessions import open_session
from graphopt_passes.algorithm.work import Weighed

BEGIN, END = "<!-- networks of `python -m benchmarks slow-networks` -->", "<!-- end of networks -->"
_LEAST_ROUNDS = 3
SKELETONS = (
    "swin_tiny", "llama", "gpt2", "clip_vision", "convnext_atto", "deeplabv3_mobilenet_v3_large",
    "lraspp_mobilenet_v3_large", "googlenet", "unet", "yolo_pan", "crnn", "subpixel", "mobilenetv2_landmarks",
    "t5_encoder",
)  # fmt: skip


def run(*, seconds: float = 2.0) -> None:
    """Measure all networks, and write their table."""
    rows = []
    for name, model, feed in networks():
        row = measure(name, model, feed, seconds)
        rows.append(row)
        print(row, flush=True)
    results.save("slow_networks", rows)
    write()


def networks() -> Iterator[tuple[str, onnx.ModelProto, dict[str, np.ndarray]]]:
    """Each network, with numbers for its inputs."""
    for case in built():
        yield case.operator, case.model, case.feed()
    for name in SKELETONS:
        model = load_skeleton(f"ts/{name}")
        yield f"skeleton of {name}", model, sample_inputs(f"ts/{name}", model, batch=1)


def measure(name: str, model: onnx.ModelProto, feed: dict[str, np.ndarray], seconds: float) -> dict[str, Any]:
    """Times of the forms of one network, in milliseconds, and which passes chose."""
    weighed = [name for name in registry().names() if issubclass(registry().rule_class(name), Weighed)]
    without = PassManager("all", skip=weighed).run(model).model
    found, fast = PassManager("all").run(model), PassManager("all", numerics="fast").run(model)
    sessions = [open_session(model, level="all")]
    sessions += [open_session(each) for each in (without, found.model, fast.model)]
    times = [each / 1e3 for each in in_turn(sessions, feed, seconds, _LEAST_ROUNDS)]
    hits = sorted({*found.hits, *fast.hits} & set(weighed))
    return {"network": name, "ms": times, "passes": hits}


def write() -> None:
    """Write the table into the page of the atlas."""
    stored = results.load("slow_networks")
    assert stored is not None, "nothing was measured yet"
    rows = []
    for row in sorted(stored["data"], key=lambda row: row["ms"][2] / row["ms"][1]):
        runtime, without, found, fast = row["ms"]
        figures = [f"{time:.2f}" for time in row["ms"]]
        ratios = [f"{without / found:.2f}", f"{without / fast:.2f}", f"{runtime / found:.2f}"]
        rows.append((row["network"], *figures, *ratios, ", ".join(row["passes"]) or "none"))
    titles = (
        "network", "runtime, ms", "all without, ms", "all, ms", "all fast, ms", "gain", "gain fast", "against runtime",
        "passes",
    )  # fmt: skip
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{grid(titles, rows)}\n\n{END}{rest.partition(END)[2]}")


def built() -> Iterator[Case]:
    """Small networks of families that the skeletons do not have."""
    yield from (
        _detector(),
        _faces(),
        _segmentation(),
        _alexnet(),
        _masked(),
        _rotary(),
        _speech(),
        _pyramid(),
        _volumes(),
    )


def _convolutions(names: str, first: str, channels: list[int], settings: str, then: str) -> tuple[str, list[str]]:
    """A row of 3x3 convolutions, each followed by an activation, from one value to the next."""
    body, constants, now = "", [], first
    for at, (before, after) in enumerate(pairwise(channels)):
        new = f"{names}{at}"
        body += f"c{new} = Conv <pads = [1, 1, 1, 1], {settings}> ({now}, w{new}) {then.format('c' + new, new)} "
        constants += [f"w{new} = {after},{before},3,3", f"p{new} = {after},1,1"]
        now = new
    return body, constants


_SILU = "s{1} = Sigmoid ({0}) {1} = Mul ({0}, s{1})"


def _detector() -> Case:
    body, constants = _convolutions("f", "x", [3, 16, 32, 64, 64, 64], "strides = [2, 2]", _SILU)
    for at, level in enumerate(("f2", "f3", "f4")):
        body += f"b{at} = Conv ({level}, v{at}) r{at} = Reshape (b{at}, flat) "
        constants.append(f"v{at} = 64,64,1,1")
    body += (
        "r = Concat <axis = 2> (r0, r1, r2) q = Reshape (r, sides) t = Transpose <perm = [0, 2, 1, 3]> (q) "
        "m = Softmax <axis = 1> (t) d = Conv (m, bins) y = Reshape (d, o)"
    )
    shapes = ["int64[3] flat = {1, 64, -1}", "int64[4] sides = {1, 4, 16, 8400}", "int64[3] o = {1, 4, 8400}"]
    bins = numbers("float", "bins", np.arange(16.0).reshape(1, 16, 1, 1))
    return Case("detector with sides by bins", ("float[1,3,640,640]",), body, (*constants, *shapes, bins))


def _faces() -> Case:
    body, constants = _convolutions("f", "x", [3, 32, 64, 128, 256], "strides = [2, 2]", "{1} = PRelu ({0}, p{1})")
    body += "g = Conv <group = 256> (f3, whole) e = Flatten (g) z = Gemm (e, last) y = LpNormalization (z)"
    return Case("faces, with PRelu", ("float[1,3,112,112]",), body, (*constants, "whole = 256,1,7,7", "last = 256,128"))


def _segmentation() -> Case:
    body, constants = _convolutions("f", "x", [3, 32, 64, 64], "strides = [2, 2]", "{1} = Relu ({0})")
    ramp = 1 - np.abs(np.arange(16) - 7.5) / 8
    weight = numbers("float", "up", np.broadcast_to(np.outer(ramp, ramp), (2, 1, 16, 16)))
    body += (
        "s = Conv (f2, classes) u = ConvTranspose <group = 2, strides = [8, 8], pads = [4, 4, 4, 4]> (s, up) "
        "y = Softmax <axis = 1> (u)"
    )
    return Case(
        "segmentation by deconvolution", ("float[1,3,256,256]",), body, (*constants, "classes = 2,64,1,1", weight)
    )


def _alexnet() -> Case:
    body = (
        "a = Conv <strides = [4, 4]> (x, w1) b = Relu (a) c = LRN <size = 5> (b) "
        "d = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (c) e = Conv <pads = [2, 2, 2, 2]> (d, w2) f = Relu (e) "
        "g = LRN <size = 5> (f) h = MaxPool <kernel_shape = [3, 3], strides = [2, 2]> (g) "
        "i = Conv <pads = [1, 1, 1, 1]> (h, w3) j = Relu (i) y = GlobalAveragePool (j)"
    )
    constants = ("w1 = 96,3,11,11", "w2 = 256,96,5,5", "w3 = 256,256,3,3")
    return Case("AlexNet's first layers", ("float[1,3,227,227]",), body, constants)


def _masked() -> Case:
    body = (
        "q0 = MatMul (x, wq) k0 = MatMul (x, wk) v0 = MatMul (x, wv) q1 = Reshape (q0, h) k1 = Reshape (k0, h) "
        "v1 = Reshape (v0, h) q = Transpose <perm = [0, 2, 1, 3]> (q1) k = Transpose <perm = [0, 2, 3, 1]> (k1) "
        "v = Transpose <perm = [0, 2, 1, 3]> (v1) s = MatMul (q, k) d = Div (s, eight) m = Where (u, d, least) "
        "p = Softmax <axis = -1> (m) o = MatMul (p, v) t = Transpose <perm = [0, 2, 1, 3]> (o) r = Reshape (t, f) "
        "y = MatMul (r, wo)"
    )
    constants = [f"w{name} = 768,768" for name in "qkvo"]
    constants += ["int64[4] h = {1, 256, 12, 64}", "int64[3] f = {1, 256, 768}", "float eight = {8}"]
    least = "float least = {-3.4028235e38}"
    return Case("attention, masked", ("float[1,256,768]", "bool[1,1,256,256]"), body, (*constants, least))


def _rotary() -> Case:
    rows, half = 64, 32
    angles = np.outer(np.arange(rows), 1e4 ** (-np.arange(half) / half))
    waves = [
        numbers("float", name, np.concatenate([wave, wave], -1).round(5))
        for name, wave in zip(("cos", "sin"), (np.cos(angles), np.sin(angles)), strict=True)
    ]
    body = ""
    for name, width in (("q", 1024), ("k", 256)):
        body += (
            f"{name}0 = MatMul (x, w{name}) {name}1 = Reshape ({name}0, h{name}) "
            f"{name}2 = Transpose <perm = [0, 2, 1, 3]> ({name}1) {name}a = Slice ({name}2, z, m, l) "
            f"{name}b = Slice ({name}2, m, e, l) {name}n = Neg ({name}b) {name}r = Concat <axis = 3> "
            f"({name}n, {name}a) {name}p = Mul ({name}2, cos) {name}s = Mul ({name}r, sin) "
            f"{name} = Add ({name}p, {name}s) "
        )
        waves += [f"w{name} = 512,{width}", f"int64[4] h{name} = {{1, {rows}, {width // 64}, 64}}"]
    body += (
        "k3 = Unsqueeze (k, two) k4 = Expand (k3, groups) k5 = Reshape (k4, all) "
        "k6 = Transpose <perm = [0, 1, 3, 2]> (k5) s = MatMul (q, k6) y = Softmax <axis = -1> (s)"
    )
    ends = ("int64[1] z = {0}", "int64[1] m = {32}", "int64[1] e = {64}", "int64[1] l = {3}", "int64[1] two = {2}")
    shapes = ("int64[5] groups = {1, 4, 4, 64, 64}", "int64[4] all = {1, 16, 64, 64}")
    return Case("scores with rotary, grouped heads", (f"float[1,{rows},512]",), body, (*waves, *ends, *shapes))


def _speech() -> Case:
    body = (
        "s = STFT <onesided = 1> (x, step, window) q = Mul (s, s) p = ReduceSum <keepdims = 0> (q, last) "
        "m = MatMul (p, mel) c = Clip (m, small) l = Log (c) t = Transpose <perm = [0, 2, 1]> (l) "
        "y = Conv <pads = [1, 1]> (t, w)"
    )
    constants = ("int64 step = {160}", "window = 400", "int64[1] last = {-1}", "mel = 201,80", "float small = {0.0001}")
    return Case("front end of speech", ("float[1,48000,1]",), body, (*constants, "w = 128,80,3"))


def _pyramid() -> Case:
    body, constants = _convolutions("f", "x", [3, 32, 64, 64, 64], "strides = [2, 2]", "{1} = Relu ({0})")
    for at in (1, 2, 3):
        body += f'u{at} = Resize <mode = "linear"> (f{at}, , scale{at}) '
        constants.append(f"float[4] scale{at} = {{1, 1, {2**at}, {2**at}}}")
    body += "j = Concat <axis = 1> (f0, u1, u2, u3) y = Conv (j, last)"
    return Case("pyramid of linear resizes", ("float[1,3,112,112]",), body, (*constants, "last = 19,224,1,1"))


def _volumes() -> Case:
    body = (
        "a = Conv <pads = [1, 1, 1, 1, 1, 1]> (x, w1) b = Relu (a) c = MaxPool <kernel_shape = [2, 2, 2], strides = "
        "[2, 2, 2]> (b) d = Conv <pads = [1, 1, 1, 1, 1, 1]> (c, w2) e = Relu (d) "
        "f = ConvTranspose <strides = [2, 2, 2]> (e, w3) y = Concat <axis = 1> (b, f)"
    )
    constants = ("w1 = 16,1,3,3,3", "w2 = 32,16,3,3,3", "w3 = 32,16,2,2,2")
    return Case("3-D U-Net, one level", ("float[1,1,16,64,64]",), body, constants)
