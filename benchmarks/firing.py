"""Where each pass fires: on how many networks, how often, and how many nodes it removes.

`python -m benchmarks firing` runs level `all` on every skeleton and, for some, on the outputs of quantizers and of ONNX
Runtime's tool for transformers, stores `results/firing.json` and writes `docs/pass-use.md` from it. A pass that never
fires there has a golden case with a line `# FROM:` that names the producer of such models, does what a pass of a peer
does, or was measured on single operators (`benchmarks.atlas`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx

from benchmarks import results
from benchmarks.results import HERE
from benchmarks.schemes import quantized
from benchmarks.skeleton import load_skeleton, names, sample_inputs
from graphopt.audit.markdown import table
from graphopt.pipeline import registry
from graphopt.rewrite import Rule
from graphopt.testing import Case, cases

PAGE = HERE.parent / "docs" / "pass-use.md"
GOLDEN = HERE.parent / "tests" / "golden"
KIND = "firing"
SOURCES = {
    "ts": "`torch.onnx.export`, TorchScript",
    "dynamo": "`torch.onnx.export(dynamo=True)`, optimized by onnxscript",
    "dynamo_raw": "the same, not optimized",
    "quantized": "networks from `onnxruntime.quantization` and from quantization-aware training",
    "transformers": "after `onnxruntime.transformers.optimizer`",
    "fast": 'with `numerics="fast"`',
}
"""The producers of the networks, or their optimizers."""
_QUANTIZED = ("resnet18", "mobilenetv2_100", "mobilenetv3_large_100", "bert", "vit_tiny_patch16_224")
_SCHEMES = ("u8s8pc", "s8s8", "qop", "dyn", "qat")
_FAST = ("ts/resnet18", "ts/squeezenet1_1")

Gains = dict[str, list[int]]
"""Rewrites of each pass, and the nodes that they removed."""


def models() -> Iterator[tuple[str, str, Callable[[], onnx.ModelProto]]]:
    """(source, name, builder) of all models."""
    for key in names():
        yield key.partition("/")[0], key, lambda key=key: load_skeleton(key)
    for name in _QUANTIZED:
        for scheme in _SCHEMES:
            yield "quantized", f"{name}:{scheme}", lambda name=name, scheme=scheme: _quantized(name, scheme)
    yield "transformers", "ts/bert", lambda: _fused("ts/bert")
    for key in _FAST:
        yield "fast", key, lambda key=key: load_skeleton(key)


def _quantized(name: str, scheme: str) -> onnx.ModelProto:
    model = load_skeleton(f"ts/{name}")
    return quantized(model, scheme, sample_inputs(f"ts/{name}", model, batch=1))


def _fused(key: str) -> onnx.ModelProto:
    from graphopt.peers import by_name

    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        onnx.save(load_skeleton(key), before)
        result = by_name("ort-transformers").optimize_file(before, after)
        assert result.ok, result.message
        return onnx.load(after)


def measure(model: onnx.ModelProto, numerics: str) -> Gains:
    """The rewrites and removed nodes of each pass on a model."""
    from graphopt import PassManager

    found: Gains = {}
    for event in PassManager("all", numerics=numerics, explain=True, target="avx512").run(model).events:
        entry = found.setdefault(event.rule, [0, 0])
        entry[0] += 1
        entry[1] += len(event.removed) - len(event.added)
    return found


def run(chosen: list[str] | None) -> str:
    """Measure all models, or those of the chosen sources, and write the page."""
    data: dict[str, dict[str, list[int]]] = (results.load(KIND) or {"data": {}})["data"]
    sums: dict[str, dict[str, list[int]]] = {}
    for source, name, make in models():
        if chosen and source not in chosen:
            continue
        of_source = sums.setdefault(source, {"": [0, 0, 0]})
        of_source[""][0] += 1
        for rule, (rewrites, nodes) in measure(make(), "fast" if source == "fast" else "rounding").items():
            entry = of_source.setdefault(rule, [0, 0, 0])
            entry[:] = entry[0] + 1, entry[1] + rewrites, entry[2] + nodes
        print(source, name, flush=True)
    results.save(KIND, {**data, **{source: dict(sorted(found.items())) for source, found in sums.items()}})
    return write()


def write() -> str:
    """Write the page from the results and the existing passes; returns its path."""
    PAGE.write_text(text())
    return str(PAGE)


def text() -> str:
    """The page, from the results and the existing passes."""
    stored = results.load(KIND) or {"data": {}}
    data: dict[str, dict[str, list[int]]] = {source: stored["data"].get(source, {"": [0, 0, 0]}) for source in SOURCES}
    titles = (
        "pass",
        *(f"{source} ({data[source][''][0]})" for source in SOURCES),
        "rewrites",
        "nodes removed",
        "if it never fires",
    )
    rows = [_row(rule, data) for rule in sorted(registry().rules(), key=lambda rule: rule.name) if built_in(rule)]
    listed = "\n".join(f"- {source}: {what}" for source, what in SOURCES.items())
    return f"{_ABOUT}\n{listed}\n\n{table(titles, rows)}\n"


_ABOUT = """# Where each pass fires

Written by `python -m benchmarks firing`. The table shows on how many networks each pass fires at level `all` (for
AVX-512), the number of its rewrites, and how many nodes they removed; a negative number means that nodes were added for
speed. A pass sees only what the passes before it left, so a pass that never fires here may fire when it runs alone. For
such a pass, the last column shows which exporter or model has its pattern (from a golden case of the pass), which pass
of another optimizer is equivalent, or its measured speed-up.
"""


def built_in(rule: type[Rule]) -> bool:
    """Whether a pass is graphopt's own."""
    return registry().owner(rule.name) == "graphopt"


def _row(rule: type[Rule], data: dict[str, dict[str, list[int]]]) -> tuple[str, ...]:
    found = [data[source].get(rule.name, [0, 0, 0]) for source in SOURCES]
    counts = [str(models) if models else "" for models, _, _ in found]
    rewrites, nodes = sum(each[1] for each in found), sum(each[2] for each in found)
    return rule.name, *counts, str(rewrites or ""), str(nodes if rewrites else ""), "" if rewrites else reason(rule)


def reason(rule: type[Rule]) -> str:
    """The reason for a pass that fires on no network; "" if none is known."""
    peers = ", ".join(f"{peer}: {theirs}" for peer, theirs in rule.equivalents())
    return origin(rule) or peers or faster(rule.name)


def origin(rule: type[Rule]) -> str:
    """The producers of a pass's pattern, by its golden cases; "" if none states them."""
    origins = [case.head["FROM"] for case in map(Case.read, cases(GOLDEN / rule.name)) if "FROM" in case.head]
    return "; ".join(dict.fromkeys(origins))


def faster(name: str) -> str:
    """The gain of a pass on single operators, if measured."""
    rows = (results.load("atlas") or {"data": []})["data"]
    ratios = [row["ratio"] for row in rows if name in row.get("passes", ())]
    return f"makes slow kernels up to {max(ratios):.1f} times as fast (atlas.md)" if ratios else ""
