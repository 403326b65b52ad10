"""The gain of other forms of slow operators in whole networks: skeletons, and generated ones of further families.

Each network runs as exported with all of the runtime's own optimizations, and with these off as the result of level
`all` of an older graphopt, of this one, and of this one with numerics `fast`. The four alternate on one thread; the
least CPU times count, which exclude other work on the machine.

    git worktree add /tmp/old e46c1e5
    python -m benchmarks slow-networks --old /tmp/old

Without an older one, this graphopt without the passes that choose by `graphopt_passes.algorithm.work` replaces it.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks import exported_images, exported_sequences, results
from benchmarks.against import optimized
from benchmarks.atlas import PAGE, Machine, in_turn
from benchmarks.atlas_cases import Case
from benchmarks.atlas_patterns import numbers
from benchmarks.exported_images import Network
from benchmarks.skeleton import load_skeleton, sample_inputs
from benchmarks.table import grid
from graphopt import PassManager
from graphopt.pipeline import registry
from graphopt.system.sessions import kernel_events, open_session
from graphopt.system.tuned import VARIABLE
from graphopt_passes.algorithm.work import Weighed

BEGIN, END = "<!-- networks of `python -m benchmarks slow-networks` -->", "<!-- end of networks -->"
KIND = "slow_networks"
WANTED = 1.3
"""Networks with a smaller gain get a reason."""

_LEAST_ROUNDS = 3
_PROFILED, _MOST_PROFILES = 4, 8
_DISTURBED, _UNLIKE = 1.05, 1.2
"""A profile whose kernels take longer than the network by the first factor is repeated, by the second is unusable."""

EXPORTED: dict[str, Callable[..., Network]] = {
    "diffusion U-Net with attention": exported_images.diffusion,
    "vision transformer, images of any size": exported_images.vision,
    "ConvNeXt": exported_images.convnext,
    "3-D U-Net": exported_images.volumes,
    "segmentation by a pyramid of tokens": exported_images.segmenter,
    "decoder step, grouped queries, 2047 cached": exported_sequences.decoder_step,
    "the same with sizes that have names": exported_sequences.decoder_step_symbolic,
    "prefill of 256 tokens, grouped queries": exported_sequences.prefill,
    "mixture of experts, 64 tokens": exported_sequences.experts,
    "vocoder": exported_sequences.vocoder,
    "decoder of a codec, Snake": exported_sequences.codec,
    "speech separator": exported_sequences.separator,
}
"""Networks as torch's exporter writes them, with random weights."""

SKELETONS = (
    "swin_tiny", "llama", "gpt2", "clip_vision", "convnext_atto", "deeplabv3_mobilenet_v3_large",
    "lraspp_mobilenet_v3_large", "googlenet", "unet", "yolo_pan", "crnn", "subpixel", "mobilenetv2_landmarks",
    "t5_encoder",
)  # fmt: skip


def run(*, old: Path | None = None, fresh: bool = False, seconds: float = 2.0) -> None:
    """Measure the networks without results, and write their table; each result is stored at once."""
    os.environ[VARIABLE] = "off"  # both sides choose by the built-in rates
    rows = [] if fresh else (results.load(KIND) or {"data": []})["data"]
    rows = [row for row in rows if "before" in row]
    known, machine = {row["network"] for row in rows}, Machine()
    for name, make in networks():
        if name not in known:
            rows.append(measure(name, *make(), machine, old=old, seconds=seconds))
            print(rows[-1], flush=True)
            results.save(KIND, rows)
    write()


def networks() -> Iterator[tuple[str, Callable[[], Network]]]:
    """Each network: a function that makes it, with its inputs."""
    for case in built():
        yield case.operator, lambda case=case: (case.model, case.feed())
    yield from EXPORTED.items()
    for name in SKELETONS:
        yield f"skeleton of {name}", lambda name=name: _skeleton(f"ts/{name}")


def _skeleton(key: str) -> Network:
    model = load_skeleton(key)
    return model, sample_inputs(key, model, batch=1)


def measure(
    name: str, model: onnx.ModelProto, feed: dict[str, np.ndarray], machine: Machine, *, old: Path | None,
    seconds: float,
) -> dict[str, Any]:  # fmt: skip
    """Times of the forms of one network, in milliseconds, the passes that chose, and the final distribution of time."""
    if old is None:
        weighed = [name for name in registry().names() if issubclass(registry().rule_class(name), Weighed)]
        before = PassManager("all", skip=weighed).run(model).model
    else:
        before = optimized(old, model, "all")
    found, fast = PassManager("all").run(model), PassManager("all", numerics="fast").run(model)
    sessions = [open_session(model, level="all")]
    sessions += [open_session(each) for each in (before, found.model, fast.model)]
    times = [each / 1e3 for each in in_turn(sessions, feed, seconds, _LEAST_ROUNDS)]
    hits = sorted(name for name in {*found.hits, *fast.hits} if _is_form(name))
    where = kernels(found.model, feed, machine, times[2])
    return {"network": name, "before": str(old.name if old else ""), "ms": times, "passes": hits, **where}


def _is_form(name: str) -> bool:
    rule = registry().rule_class(name)
    return issubclass(rule, Weighed) or (rule.family == "layout" and name.startswith("convert_conv_"))


def kernels(model: onnx.ModelProto, feed: dict[str, np.ndarray], machine: Machine, whole: float) -> dict[str, Any]:
    """The milliseconds of all kernels, their limits, and the excess by operator, the largest first.

    The limit of a kernel is the time in which the machine copies the bytes that it reads and writes, or does its
    multiplications. Profiles use wall-clock time, so several are taken if other work disturbed one.

    Args:
        model: the network.
        feed: its inputs.
        machine: the rates.
        whole: CPU milliseconds of the network.
    """
    least: dict[str, dict[str, Any]] = {}
    for _ in range(_MOST_PROFILES):
        for event in _profiled(model, feed):
            if event["name"] not in least or event["dur"] < least[event["name"]]["dur"]:
                least[event["name"]] = event
        if sum(event["dur"] for event in least.values()) < 1e3 * _DISTURBED * whole:
            break
    weights = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    read = {node.name: [weights[name] for name in node.input if name in weights] for node in model.graph.node}
    time, limit = Counter[str](), Counter[str]()
    for name, event in least.items():
        op = event["args"]["op_name"]
        time[op] += event["dur"]
        limit[op] += min(_limit(event["args"], read.get(name, []), machine), event["dur"])
    beyond = sorted(((op, (time[op] - limit[op]) / 1e3) for op in time), key=lambda each: -each[1])
    return {"kernels": sum(time.values()) / 1e3, "limit": sum(limit.values()) / 1e3, "beyond": beyond[:4]}


def _profiled(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        session = open_session(model, profile=Path(folder) / "p")
        for _ in range(_PROFILED):
            session.run(None, feed)
        return kernel_events(session)


def _limit(told: dict[str, Any], weights: list[tuple[int, ...]], machine: Machine) -> float:
    """A lower bound for the microseconds of a kernel, by the shapes in its profile."""
    given, made = ([next(iter(each.values())) for each in told[f"{side}_type_shape"]] for side in ("input", "output"))
    elements = sum(map(prod, (*given, *made, *(each for each in weights if list(each) not in given))))
    op, multiplied = told["op_name"], 0.0
    if "MatMul" in op or "Gemm" in op:
        multiplied = prod(made[0]) * given[0][-1]
    elif "Conv" in op:
        kernel = max((each for each in (*weights, *given[1:]) if len(each) == len(given[0])), key=prod, default=(0, 0))
        multiplied = prod(given[0] if op == "ConvTranspose" else made[0]) * prod(kernel[1:])
    return max(machine.copy(max(4 * elements, 8)), multiplied / machine.product)


def write() -> None:
    """Write the table into the atlas page."""
    stored = results.load(KIND)
    assert stored is not None, "nothing was measured yet"
    rows = []
    for row in sorted(stored["data"], key=lambda row: row["ms"][2] / row["ms"][1]):
        runtime, before, found, fast = row["ms"]
        figures = [f"{time:.2f}" for time in row["ms"]]
        ratios = [f"{before / found:.2f}", f"{before / fast:.2f}", f"{runtime / found:.2f}"]
        reason = _reason(row) if before / found < WANTED else ""
        rows.append((row["network"], *figures, *ratios, ", ".join(row["passes"]) or "none", reason))
    titles = (
        "network", "runtime, ms", "before, ms", "all, ms", "all fast, ms", "gain", "gain fast", "against runtime",
        "passes", "why not more",
    )  # fmt: skip
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{grid(titles, rows)}\n\n{END}{rest.partition(END)[2]}")


def _reason(row: dict[str, Any]) -> str:
    """The reason for the remaining time, from the profile of a network."""
    if row["kernels"] > _UNLIKE * row["ms"][2]:
        return "other work disturbed its profile"
    share, least = row["limit"] / row["kernels"], 0.02 * row["kernels"]
    beyond = ", ".join(f"{op} {ms:.2f} ms" for op, ms in row["beyond"] if ms >= least)
    return f"{100 * share:.0f} % of the time is the machine's limit" + (f"; beyond it {beyond}" if beyond else "")


def built() -> Iterator[Case]:
    """Small networks of families that the skeletons lack."""
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
    """A chain of 3x3 convolutions, each followed by an activation, from one value to the next."""
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
