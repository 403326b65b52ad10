"""The conclusions of a profile, in words."""

from __future__ import annotations

from graphopt.audit.columns import milliseconds
from graphopt.audit.profile.record import SWITCH, Profile
from graphopt.audit.statistics import Spread

_NOTABLE = 0.03
_EVICTED = 1.15
_UNEXPLAINED = 1.5
_SHOWS = 1.5


def findings(found: Profile) -> list[str]:
    """All conclusions, including those already drawn."""
    return [*_reorders(found), *_cache(found), *_denormals(found), *found.findings]


def _reorders(found: Profile) -> list[str]:
    texts = []
    for level in found.levels if found.blocks else []:
        if level.kernels and level.hidden / level.kernels >= _NOTABLE:
            ops = sorted(
                {
                    op.rpartition("::")[2]
                    for b in found.blocks
                    if level.name in b.parts
                    for op in b.parts[level.name].hidden_ops
                }
            )
            texts.append(
                f"at level {level.name}, {' and '.join(ops)} that the optimizer put in take "
                f"{milliseconds(level.hidden)}, {100 * level.hidden / level.kernels:.0f} % of the time"
            )
    return texts


def _cache(found: Profile) -> list[str]:
    """Conclusions from the times in the model, warm and cold; a cold cache explains no more than the cold time."""
    texts = []
    for lone in found.lone:
        if not lone.warm or not lone.cold or lone.inside <= _EVICTED * lone.warm:
            continue
        if lone.inside > _UNEXPLAINED * max(lone.warm, lone.cold):
            why = "more than the cache explains; was the machine busy, or do threads compete?"
        elif lone.cold > _EVICTED * lone.warm:
            why = "what it reads is not in the cache there"
        else:
            continue
        texts.append(
            f"{lone.called()} takes {milliseconds(lone.warm)} alone with a warm cache, "
            f"{milliseconds(lone.cold)} with a cold one, and {milliseconds(lone.inside)} inside the model: {why}"
        )
    return texts[:3]


def _denormals(found: Profile) -> list[str]:
    denormals = found.denormals
    if denormals is None:
        return []
    counts = [sum(c.values()) for c in (denormals.weights, denormals.folded, denormals.activations)]
    texts = []
    if any(counts):
        texts.append(
            f"denormal numbers: {counts[0]} in weights, {counts[1]} in folded weights, {counts[2]} in activations"
        )
    else:
        texts.append("no denormal numbers in weights, folded weights or activations")
    if denormals.penalty is not None:
        shows = denormals.penalty > _SHOWS
        texts.append(
            f"this machine takes {denormals.penalty:.1f} times as long for products with denormal weights: "
            + ("it shows what they cost" if shows else "it would not show what they cost on others")
        )
    for level, speedup in denormals.speedup.items():
        text = f"{SWITCH} {_effect(speedup)} at level {level} here"
        if any(counts) or speedup.verdict() == "tie":
            texts.append(f"{text}; the first session of a process has to set it")
        else:
            texts.append(f"{text}, where none were found: noise of a busy machine, or numbers inside of kernels")
    texts += [
        f"graphopt's basic output {_effect(speedup)} at level {level}" for level, speedup in denormals.cure.items()
    ]
    return texts


def _effect(speedup: Spread) -> str:
    if speedup.verdict() == "tie":
        return "makes no difference"
    return f"makes it {speedup.median:.2f} times as fast"
