"""Every operator with a kernel in ONNX Runtime's CPU provider, and why the atlas does not time some."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from onnxruntime.capi import onnxruntime_pybind11_state as state

from benchmarks.table import grid

_WHY = (
    (
        r"If|Loop|Scan|Optional.*|Sequence.*|ConcatFromSequence|SplitToSequence",
        "runs or holds others: no cost of its own",
    ),
    (
        r"Constant.*|Identity|Shape|Size|Reshape|Flatten|Squeeze|Unsqueeze|Range|EyeLike|Memcpy.*",
        "moves nothing, or a shape",
    ),
    (r"Random.*|Bernoulli|Multinomial|Dropout", "random"),
    (r"String.*|RegexFullMatch|Tokenizer|TfIdfVectorizer", "strings"),
    (
        r".*(Integer|QLinear|Quantize|NBits|Bnb4|QMoE|QAttention|QGemm|QEmbed).*",
        "integers: the benchmarks of quantized networks",
    ),
    (
        r".*(Attention|BeamSearch|GreedySearch|Sampling|LayerNorm.*|MoE|EmbedLayer.*)",
        "a fusion of operators that are timed apart",
    ),
    (r"LSTM|GRU|RNN|AttnLSTM", "steps that depend on one another: unrolled, they are slower"),
    (r"NonMaxSuppression|RoiAlign|MaxRoiPool|CropAndResize|Unique|NonZero|Compress", "its time depends on the numbers"),
    (r"And|Or|Xor|Not|Equal|Less.*|Greater.*|Bit.*|IsInf|IsNaN|IsAllFinite", "comparisons and logic: no case yet"),
)
"""Reasons why no case of an operator is timed, by patterns of operator names."""


def kernels() -> dict[str, set[str]]:
    """The operators that have a kernel on the CPU, by domain."""
    found: dict[str, set[str]] = defaultdict(set)
    for kernel in state.get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider":
            found[kernel.domain or "ai.onnx"].add(kernel.op_name)
    return found


def listed(timed: Iterable[str]) -> str:
    """A table of all operators.

    Args:
        timed: the operators that the atlas times, alone or with others.
    """
    known, rows, counts = set(timed), [], []
    for domain, names in sorted(kernels().items()):
        here = sorted(names & known)
        counts.append(f"{len(here)} of {len(names)} in `{domain}`")
        rows.append((f"`{domain}`", "timed", ", ".join(here) or "none"))
        for reason, left in sorted(_apart(domain, names - known).items()):
            rows.append((f"`{domain}`", reason, ", ".join(sorted(left))))
    head = f"### Every operator of the provider\n\nTimed: {'; '.join(counts)}."
    return f"{head}\n\n{grid(('domain', 'timed, or why not', 'operators'), rows)}"


def _apart(domain: str, names: Iterable[str]) -> dict[str, set[str]]:
    reasons: dict[str, set[str]] = defaultdict(set)
    for name in names:
        reasons[_reason(domain, name)].add(name)
    return reasons


def _reason(domain: str, name: str) -> str:
    if domain == "ai.onnx.ml":
        return "classical models: trees, vectors, encoders"
    if domain.endswith("nchwc"):
        return "of the blocked layout, whose costs `graphopt tune convert_layout_nchwc` measures"
    if domain.startswith("ai.onnx.preview") or "training" in domain:
        return "training"
    return next((why for pattern, why in _WHY if re.fullmatch(pattern, name)), "no case yet")
