"""The measured gain of each pass: the run without it against the run with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from graphopt.audit import feeds
from graphopt.audit.bench import Job, Variant
from graphopt.audit.explaining import Explanation
from graphopt.audit.inspection import light_proto
from graphopt.audit.settings import Settings
from graphopt.audit.statistics import speedups
from graphopt.audit.timing import Progress, measure
from graphopt.ir import Model, Source
from graphopt.system.files import scratch

_FULL = "all passes"
_ORIGINAL = "original"


def measure_gains(
    explanation: Explanation, source: Source, settings: Settings, *, dims: Mapping[str, int] | None = None,
    budget: float = 10.0, progress: Progress = lambda what, part: None,
) -> None:  # fmt: skip
    """Fill in the measured speed-up of each pass that fired.

    All runs are without ONNX Runtime's own optimizer: otherwise a pass that the runtime would replace at session start
    would show no gain. A pass that another pass can replace shows less than its full gain.

    Args:
        explanation: an explanation with the same model and settings; its `gains` are changed.
        source: the model.
        settings: the passes.
        dims: sizes of symbolic dimensions.
        budget: seconds of rounds.
        progress: callback that receives the progress.
    """
    with scratch() as folder:
        files = {_ORIGINAL: folder / "original.onnx", _FULL: folder / "full.onnx"}
        Model.load(source).save(files[_ORIGINAL])
        settings.run(files[_ORIGINAL])[0].save(files[_FULL])
        for number, gain in enumerate(explanation.gains):
            progress(f"without {gain.rule}", 0.0)
            files[gain.rule] = folder / f"without_{number}.onnx"
            without = replace(settings, skip=(*settings.skip, gain.rule), passes=settings.passes)
            without.run(files[_ORIGINAL])[0].save(files[gain.rule])
        feed = feeds.timing_feed(files[_ORIGINAL], light_proto(files[_ORIGINAL]), dict(dims or {}))
        variants = [Variant(each, str(path), "none") for each, path in files.items()]
        timing = measure(Job(variants, _FULL, feed, budget=budget, starts=0), progress)
    rounds = timing.latency.get(1, {})
    for gain in explanation.gains:
        if gain.rule in rounds and _FULL in rounds:
            spread = speedups(rounds[gain.rule], rounds[_FULL])
            gain.speedup, gain.low, gain.high = spread.median, spread.low, spread.high
