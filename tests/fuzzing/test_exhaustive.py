"""Rules of small domain on the whole of it: all values of 8-bit types, all pairs of the special floats."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from graphopt.fuzzing.building import element_type
from graphopt.fuzzing.differences import first_difference
from graphopt.manager import PassManager
from graphopt.verify.runners import CannotLoadError, OrtRunner
from graphopt.verify.source import Source

TINY = float(np.finfo(np.float32).tiny)
FLOATS = np.array(
    [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -2.5, 6.0, TINY, TINY / 4, 3e38, -3e38, np.inf, -np.inf, np.nan], np.float32
)
BYTES = {"int8": np.arange(-128, 128).astype(np.int8), "uint8": np.arange(256).astype(np.uint8)}
TYPES = (np.float32, np.float64, np.float16, np.int8, np.uint8, np.int32, np.int64, np.bool_)
PASSES = {level: PassManager("extended", numerics=level, strict=True) for level in ("exact", "rounding")}


@dataclass(frozen=True)
class Chain:
    """Operators one after another, each with constants beside its first operand, and what they are computed from."""

    x: np.ndarray
    nodes: tuple[tuple[str, list[np.ndarray | None], dict[str, object]], ...]
    to: np.dtype

    def written(self, number: int) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
        """Nodes from `x{number}` to `y{number}`, and their constants."""
        tensors, made, name = [], [], f"x{number}"
        for at, (op, others, attrs) in enumerate(self.nodes):
            names = []
            for place, other in enumerate(others):
                names.append("" if other is None else f"c{number}_{at}_{place}")
                if other is not None:
                    tensors.append(numpy_helper.from_array(np.asarray(other), names[-1]))
            out = f"y{number}" if at == len(self.nodes) - 1 else f"v{number}_{at}"
            made.append(helper.make_node(op, [name, *names], [out], **attrs))
            name = out
        return made, tensors


def chain(
    x: np.ndarray, *nodes: tuple[str, list[np.ndarray | None], dict[str, object]], to: type | None = None
) -> Chain:
    return Chain(x, nodes, np.dtype(to or x.dtype))


def together(chains: Sequence[Chain]) -> onnx.ModelProto:
    """A model of chains side by side, each with an input of its own, so that they share nothing."""
    written = [each.written(number) for number, each in enumerate(chains)]
    nodes, tensors = ([one for pair in written for one in pair[part]] for part in (0, 1))
    inputs = [helper.make_tensor_value_info(f"x{n}", element_type(c.x), c.x.shape) for n, c in enumerate(chains)]
    kinds = [element_type(np.zeros(0, c.to)) for c in chains]
    outputs = [
        helper.make_tensor_value_info(f"y{n}", kind, c.x.shape)
        for n, (c, kind) in enumerate(zip(chains, kinds, strict=True))
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(cases: Iterator[Chain], numerics: str, ceiling: str = "rounding") -> tuple[set[str], int]:
    """Optimize, by passes up to a ceiling, and compare; what fired, and how often."""
    fired, changed, problems = set(), 0, []
    for chains in parts([each for each in cases if runs(each)]):
        model = together(chains)
        feed = {f"x{number}": each.x for number, each in enumerate(chains)}
        result = PASSES[ceiling].run(model)
        fired.update(result.hits)
        changed += len(result.events)
        before, after = (OrtRunner(Source(each, "chains")).run(feed) for each in (model, result.model))
        for each, old, new in zip(chains, before, after, strict=True):
            found = first_difference([old], [new], numerics)
            if found is not None:
                problems.append(f"{each.nodes}: {found}")
    assert not problems, "\n\n".join(problems[:10])
    return fired, changed


def parts(chains: list[Chain]) -> Iterator[list[Chain]]:
    for at in range(0, len(chains), 100):
        yield chains[at : at + 100]


def runs(each: Chain) -> bool:
    """Whether the runtime has kernels for the types of a chain."""
    ops = tuple(op for op, _, _ in each.nodes)
    casts = tuple(attrs.get("to") for _, _, attrs in each.nodes)
    key = (ops, casts, each.x.dtype.str)
    if key not in KNOWN:
        try:
            OrtRunner(Source(together([each]), "chain"))
            KNOWN[key] = True
        except CannotLoadError:
            KNOWN[key] = False
    return KNOWN[key]


KNOWN: dict[object, bool] = {}


def bounds(kind: str) -> Iterator[Chain]:
    values = BYTES[kind]
    ends = [np.array(v, values.dtype) for v in (values[0], values[1], values[127], values[128], values[-2], values[-1])]
    for low, high in itertools.product(ends, repeat=2):
        for first, second in itertools.product(("Max", "Min"), repeat=2):
            yield chain(values, (first, [low], {}), (second, [high], {}))
        yield chain(values, ("Clip", [low, high], {}), ("Clip", [high, None], {}))
        yield chain(values, ("Clip", [None, low], {}), ("Clip", [low, high], {}))


@pytest.mark.parametrize("kind", BYTES)
def test_bounds_of_all_bytes(kind: str) -> None:
    fired, changed = check(bounds(kind), "exact")
    assert {"fuse_consecutive_min_max", "fuse_consecutive_clips"} <= fired
    assert changed > 150


def arithmetic() -> Iterator[Chain]:
    for one, other in itertools.product(FLOATS, repeat=2):
        a, b = np.array(one, np.float32), np.array(other, np.float32)
        for first, second in (("Max", "Min"), ("Min", "Max"), ("Max", "Max"), ("Min", "Min")):
            yield chain(FLOATS, (first, [a], {}), (second, [b], {}))
        yield chain(FLOATS, ("Clip", [a, b], {}), ("Relu", [], {}))
        yield chain(FLOATS, ("Relu", [], {}), ("Clip", [a, b], {}))
        yield chain(FLOATS, ("Clip", [a, None], {}), ("Clip", [None, b], {}))


def test_bounds_of_special_floats() -> None:
    fired, changed = check(arithmetic(), "rounding")
    assert {"fuse_consecutive_min_max", "fuse_consecutive_clips", "fuse_relu_into_clip"} <= fired
    assert changed > 500


def domain(dtype: type) -> np.ndarray:
    """The special floats, all bytes, or some integers."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return FLOATS.astype(dtype)
    return BYTES[kind.name] if kind.name in BYTES else np.arange(-9, 9).astype(dtype)


def neutral() -> Iterator[Chain]:
    for dtype in (np.float32, np.float64, np.int8, np.uint8, np.int32, np.int64):
        x = domain(dtype)
        turned = ("Gather", [np.arange(len(x))[::-1]], {})  # between input and output something has to stay
        for op, value in itertools.product(("Add", "Sub", "Mul", "Div", "Pow"), (0.0, -0.0, 1.0, -1.0)):
            if op == "Div" and value == 0 and np.dtype(dtype).kind in "iu":
                continue
            yield chain(x, (op, [np.array(value).astype(dtype)], {}), turned)
        for op in ("Neg", "Abs", "Sign", "Identity"):
            yield chain(x, (op, [], {}), (op, [], {}), turned)


def test_neutral_elements_of_all_types() -> None:
    with np.errstate(all="ignore"):
        fired, changed = check(neutral(), "exact", ceiling="exact")
    assert {"eliminate_nop_with_unit", "eliminate_double_negation", "eliminate_consecutive_idempotent_ops"} <= fired
    assert changed > 20


def casts() -> Iterator[Chain]:
    for given, between, to in itertools.product(TYPES, repeat=3):
        floats = np.dtype(given).kind == "f"
        x = FLOATS[:9].astype(given) if floats else np.arange(-128, 256).astype(given)
        steps = [("Cast", [], {"to": element_type(np.zeros(0, kind))}) for kind in (between, to)]
        yield chain(x, *steps, to=to)


def test_casts_between_all_types() -> None:
    fired, changed = check(casts(), "exact")
    assert {"eliminate_nop_cast", "fuse_consecutive_casts"} <= fired
    assert changed > 100


def quantized() -> Iterator[Chain]:
    x = np.concatenate([np.arange(-300, 300).astype(np.float32) / 8, FLOATS[:12]])
    for zero, scale in itertools.product((0, 1, 127, 128, 255), (0.25, 1.0)):
        point, step = np.array(zero, np.uint8), np.array(scale, np.float32)
        quantize = ("QuantizeLinear", [step, point], {})
        back = ("DequantizeLinear", [step, point], {})
        yield chain(x, ("Relu", [], {}), quantize, to=np.uint8)
        yield chain(x, quantize, back, quantize, back)
        for low, high in ((0.0, 6.0), (-100.0, 100.0), (0.0, 3e38)):
            yield chain(x, ("Clip", [np.float32(low), np.float32(high)], {}), quantize, to=np.uint8)


def test_quantization_of_every_step() -> None:
    fired, changed = check(quantized(), "exact")
    assert {"eliminate_relu_before_quantize", "eliminate_clip_before_quantize", "eliminate_double_qdq"} <= fired
    assert changed > 10
