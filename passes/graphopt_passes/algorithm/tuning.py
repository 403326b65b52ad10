"""Measures blocked 3x3 convolutions, direct and by Winograd's algorithm, and fits the cost model to the times.

One model contains all layers; the passes convert it to blocked layout only, and to either tile size. The three variants
run in turn under the profiler, and the minimum time of each kernel counts: other load on the machine only adds to it.
"""

from __future__ import annotations

import re
from statistics import median
from typing import Any

import numpy as np
import onnx

from graphopt.pipeline.tuning import Progress
from graphopt.system.machine import Target
from graphopt_passes.algorithm.blocked_cost import BUILT_IN, PASS, BlockedRates, Size
from graphopt_passes.algorithm.transforms import TILES
from graphopt_passes.layout.tuning import check_is_here, model_of, profiled

_ROUNDS = 30
_WARM = 2
_LAYOUT = "convert_layout_nchwc"

CASES = tuple(
    Size(inputs, outputs, (side, side))
    for inputs, outputs, side in (
        (32, 32, 56), (48, 48, 56), (64, 64, 56), (96, 96, 28), (128, 128, 28), (192, 192, 14), (256, 256, 14),
        (512, 512, 7), (64, 128, 56), (128, 128, 56), (256, 256, 28), (512, 512, 14),
    )
)  # fmt: skip
"""Layers typical of real models."""

Times = dict[str, float]
"""Minimum milliseconds of a layer, by kind of kernel."""

_KINDS = {"Gather": "gather", "MatMul": "inward", "Conv": "product", "Concat": "stream", "Reshape": "reshape"}
"""The kind of kernel that each operator is; all others belong to the output transform."""


class WinogradTuner:
    """Measures the rates of `convert_conv_to_winograd`."""

    def measure(self, target: Target, progress: Progress) -> dict[str, Any]:
        check_is_here(target, blocked=True)
        taken = time_cases(CASES, target, progress)
        rates = fit(CASES, taken)
        rows = []
        for at, case in enumerate(CASES):
            measured = [sum(times[at].values()) for times in taken.values()]
            rows.append([str(case), *(round(time, 4) for time in (*measured, *_model(case, rates)))])
        return {"rates": rates.stated(), "cases": rows}

    def rows(self, figures: dict[str, Any] | None, target: Target) -> list[tuple[str, ...]]:
        """Measured and predicted times of each case; without measurements, predicted ones only."""
        kinds = ("direct", *(f"F({tile},3)" for tile in TILES))
        model = tuple(f"{kind}, model" for kind in kinds)
        if figures is None:
            rest = [(str(case), *(f"{time:.2f}" for time in _model(case, BUILT_IN))) for case in CASES]
            return [("milliseconds on one thread", *model), *rest]
        found: list[tuple[str, ...]] = [("milliseconds on one thread", *kinds, *model)]
        for name, *numbers in figures.get("cases", []):
            found.append((name, *(f"{float(number):.2f}" for number in numbers)))
        return found


def _model(case: Size, rates: BlockedRates) -> list[float]:
    return [rates.direct_time(case), *(rates.winograd_time(case, tile) for tile in TILES)]


def time_cases(cases: tuple[Size, ...], target: Target, progress: Progress) -> dict[int, list[Times]]:
    """Minimum kernel times of each case on one thread: direct (0), and by tile size."""
    plain, tiles = _model_of(cases), (0, *TILES)
    models = [_converted(plain, tile, target) for tile in tiles]
    events = profiled(models, _ROUNDS + _WARM, progress, "timing convolutions by Winograd's algorithm")
    return {tile: _times(each, len(cases)) for tile, each in zip(tiles, events, strict=True)}


def _times(events: list[dict[str, Any]], count: int) -> list[Times]:
    taken: dict[tuple[int, int, str], list[float]] = {}
    for event in events:
        found = re.match(r"\D+(\d+)_conv", event.get("name", ""))
        if found is not None:
            arguments = event["args"]
            key = int(found[1]), int(arguments["node_index"]), str(arguments["op_name"])
            taken.setdefault(key, []).append(float(event["dur"]) / 1e3)
    sums: list[Times] = [dict.fromkeys((*_KINDS.values(), "outward"), 0.0) for _ in range(count)]
    products = [0] * count
    for (at, _, op), durations in sorted(taken.items()):
        products[at] += op == "MatMul"
        # The third matrix product is half of the output transform.
        kind = "outward" if op == "MatMul" and products[at] > 2 else _KINDS.get(op, "outward")
        sums[at][kind] += min(durations[_WARM:])
    return sums


def _converted(plain: onnx.ModelProto, tile: int, target: Target) -> onnx.ModelProto:
    from graphopt import Options, PassManager

    settings = {_LAYOUT: {"force": True}, PASS: {"force": tile or "off"}}
    passes = f"{_LAYOUT},{PASS}"
    options = Options(target=target, extra=settings)
    return PassManager(passes=passes, options=options, target=target, strict=True).run(plain).model


def _model_of(cases: tuple[Size, ...]) -> onnx.ModelProto:
    random = np.random.default_rng(1)
    inputs, outputs, body = [], [], []
    constants: dict[str, np.ndarray] = {}
    for n, case in enumerate(cases):
        kernel = random.standard_normal((case.outputs, case.inputs, 3, 3)) / np.sqrt(9 * case.inputs)
        constants |= {f"w{n}": kernel.astype(np.float32), f"b{n}": np.zeros(case.outputs, np.float32)}
        height, width = case.size
        inputs.append(f"float[1, {case.inputs}, {height}, {width}] x{n}")
        outputs.append(f"float[1, {case.outputs}, {height}, {width}] y{n}")
        body.append(f"[layer{n}_] c{n} = Conv <pads = [1, 1, 1, 1]> (x{n}, w{n}, b{n})")
        body.append(f"[layer{n}_relu] y{n} = Relu (c{n})")
    return model_of(inputs, outputs, body, constants)


def fit(cases: tuple[Size, ...], taken: dict[int, list[Times]]) -> BlockedRates:
    """Fit rates to the measured times: medians, and least squares of relative errors for pairs of rates."""
    straight = [case.direct_work for case in cases]
    direct = _two(straight, [times["product"] for times in taken[0]], (BUILT_IN.direct, BUILT_IN.weights[0]))
    work = [(case, tile, case.work(tile), taken[tile][at]) for tile in TILES for at, case in enumerate(cases)]
    pairs = [(amounts["product"], amounts["weights"]) for _, _, amounts, _ in work]
    product = _two(pairs, [times["product"] for *_, times in work], (BUILT_IN.product, BUILT_IN.weights[1]))
    speeds: dict[tuple[str, bool], list[float]] = {}
    for case, tile, amounts, times in work:
        inward, outward = BUILT_IN.far(case, tile)
        for kind, distant in (("inward", inward), ("outward", outward), ("gather", False), ("stream", False)):
            if times[kind] > 0:
                speeds.setdefault((kind, distant), []).append(amounts[kind] / times[kind])

    def speed(kind: str, distant: bool, given: float) -> float:
        return median(speeds[kind, distant]) if (kind, distant) in speeds else given

    return BlockedRates(
        direct=direct[0], product=product[0], weights=(direct[1], product[1]),
        inward=(speed("inward", False, BUILT_IN.inward[0]), speed("inward", True, BUILT_IN.inward[1])),
        outward=(speed("outward", False, BUILT_IN.outward[0]), speed("outward", True, BUILT_IN.outward[1])),
        cache=BUILT_IN.cache, gather=speed("gather", False, BUILT_IN.gather),
        stream=speed("stream", False, BUILT_IN.stream), start=BUILT_IN.start,
    )  # fmt: skip


def _two(amounts: list[tuple[float, float]], times: list[float], given: tuple[float, float]) -> tuple[float, float]:
    """Fit two rates by least squares of relative errors; the second keeps its given value if it is within noise."""
    scaled = np.array(amounts) / np.array(times)[:, None]
    slow = np.linalg.lstsq(scaled, np.ones(len(times)), rcond=None)[0]
    if slow.min() > 0:
        return float(1 / slow[0]), float(1 / slow[1])
    rest = 1 - scaled[:, 1] / given[1]
    return float(median(scaled[:, 0] / np.maximum(rest, 0.1))), given[1]
