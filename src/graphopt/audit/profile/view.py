"""A profile on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from graphopt.audit.columns import ABSENT, milliseconds, number, spread
from graphopt.audit.profile.record import Block, Lone, Profile
from graphopt.printable import counted

_BLOCKS = 30
_NAME, _SHORTEST = 40, 12
"""The most and the fewest characters of a name that are shown, however narrow the terminal."""
_GAP = 2
_WIDE = 140


def render_profile(found: Profile, width: int) -> Iterator[Any]:
    """All measurements, then the conclusions."""
    shapes = ", ".join(f"{name} {shape}" for name, shape in found.inputs.items())
    yield Text(f"{found.model}: {shapes}", style="bold")
    yield Text(f"{counted(found.threads, 'thread')}; {found.machine}", style="dim")
    if found.levels:
        yield _levels(found)
    if found.blocks:
        yield _blocks(found, width)
    if found.lone:
        yield from _lone(found, width)
    if found.denormals is not None:
        yield _denormals(found)
    if found.contention:
        yield _contention(found)
    for text in found.findings:
        yield Text(f"- {text}", style="bold")


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)


def _levels(found: Profile) -> Table:
    table = _table("Levels")
    for title in ("", "latency", "kernels", "nodes", "hidden reorders"):
        table.add_column(title, justify="right" if title else "left")
    for level in found.levels:
        if level.failure:
            table.add_row(level.name, level.failure, style="red")
            continue
        hidden = f"{milliseconds(level.hidden)} ({100 * level.hidden / level.kernels:.0f}%)" if level.hidden else ABSENT
        cells = (spread(level.latency), milliseconds(level.kernels), str(level.nodes), hidden)
        table.add_row(level.name, *cells)
    return table


def _blocks(found: Profile, width: int) -> Table:
    levels = [level.name for level in found.levels if not level.failure]
    table = _table("Operators, aligned by what they do in the original")
    table.add_column("in the original", overflow="fold")
    for level in levels:
        table.add_column(level, justify="right")
    if "all" in levels:
        table.add_column("at all", overflow="fold")
    ranked = sorted(found.blocks, key=lambda b: -max((p.ms for p in b.parts.values()), default=0.0))
    kept = set(map(id, ranked[:_BLOCKS]))
    shown = [block for block in found.blocks if id(block) in kept]
    times = [[milliseconds(b.parts[name].ms) if name in b.parts else "·" for name in levels] for b in shown]
    longest = _room(width, [levels, *times], 1 + ("all" in levels))
    for block, cells in zip(shown, times, strict=True):
        row = [f"{summary(block.ops)} {_short(block, longest)}".strip(), *cells]
        part = block.parts.get("all")
        if "all" in levels:
            row.append(summary([*part.ops, *part.hidden_ops]) if part is not None else "")
        table.add_row(*row)
    if len(found.blocks) > _BLOCKS:
        table.caption = f"{len(found.blocks) - _BLOCKS} faster groups left out; see --json"
        table.caption_justify = "left"
    return table


def summary(ops: list[str]) -> str:
    """Operators with their counts."""
    counts = Counter(op.rpartition("::")[2] for op in ops)
    return "+".join(op if times == 1 else f"{times} {op}" for op, times in counts.items())


def _room(width: int, rows: Sequence[Sequence[str]], texts: int) -> int:
    """Characters for a name in each of `texts` text columns, beside the columns of numbers."""
    numbers = [max(map(len, column)) + _GAP for column in zip(*rows, strict=True)]
    return min(max((width - sum(numbers)) // texts - _GAP, _SHORTEST), _NAME)


def _short(block: Block, longest: int) -> str:
    name = next((n for n in block.names if n), "")
    return name if len(name) <= longest else "…" + name[1 - longest :]


def _lone(found: Profile, width: int) -> Iterator[Any]:
    """The table of single operators; if it is narrow, shapes and other forms follow on separate lines."""
    peak = found.peak
    limits = f" (of {peak.gflops:.0f} Gflop/s and {peak.gbytes:.0f} GB/s)" if peak is not None else ""
    table = _table(f"The slowest operators: inside the model, alone, and of the machine's limits{limits}")
    wide = width >= _WIDE
    words = ("operator", "shapes", "other form") if wide else ("operator",)
    numbers = ("inside", "warm", "cold", "flop/s", "bytes/s", "times below")
    for title in (*words[:2], *numbers, *words[2:]):
        table.add_column(title, justify="left" if title in words else "right", overflow="fold")
    times = [[milliseconds(lone.inside), *_alone_cells(lone)] for lone in found.lone]
    longest = _room(width, [numbers, *times], len(words))
    for lone, cells in zip(found.lone, times, strict=True):
        table.add_row(lone.called(longest), *([lone.shapes, *cells, lone.form or ABSENT] if wide else cells))
    yield table
    if not wide:
        yield Text("Their shapes, and the other form", style="bold")
        yield from (Text(f"  {lone.called()}: {lone.shapes}; {lone.form or ABSENT}") for lone in found.lone)


def _alone_cells(lone: Lone) -> list[str]:
    times = [milliseconds(t) if t is not None else ABSENT for t in (lone.warm, lone.cold)]
    shares = [f"{100 * share:.0f}%" if share is not None else ABSENT for share in (lone.compute, lone.memory)]
    below = f"{lone.below:.1f}" if lone.below is not None else ABSENT
    return [*times, *shares, below]


def _denormals(found: Profile) -> Table:
    denormals = found.denormals
    assert denormals is not None
    table = _table("Denormal numbers")
    for title in ("where", "denormals", "of", "in"):
        table.add_column(title, justify="left" if title in ("where", "in") else "right")
    places = (
        ("weights", denormals.weights),
        ("folded weights", denormals.folded),
        ("activations", denormals.activations),
    )
    for (where, counts), elements in zip(places, denormals.elements, strict=True):
        worst = sorted(counts, key=lambda name: -counts[name])[:2]
        table.add_row(where, f"{sum(counts.values()):,}", f"{elements:,}", ", ".join(worst))
    for level in denormals.plain:
        table.add_row(
            f"latency at {level}", spread(denormals.plain[level]), spread(denormals.flushed[level]),
            f"with flushing: {denormals.speedup[level].median:.2f}x, relative error {number(denormals.error[level])}",
        )  # fmt: skip
    for level in denormals.cured:
        table.add_row(
            f"graphopt basic, at {level}", spread(denormals.plain.get(level)), spread(denormals.cured[level]),
            f"optimized: {denormals.cure[level].median:.2f}x",
        )  # fmt: skip
    return table


def _contention(found: Profile) -> Table:
    table = _table("Threads, and a second session beside it")
    for title in ("threads", "alone", "beside another", "runs/s alone", "runs/s of both"):
        table.add_column(title, justify="right")
    for row in found.contention:
        table.add_row(
            str(row.threads), spread(row.alone), spread(row.beside),
            ABSENT if row.single is None else f"{row.single:.4g}",
            ABSENT if row.together is None else f"{row.together:.4g}",
        )  # fmt: skip
    return table
