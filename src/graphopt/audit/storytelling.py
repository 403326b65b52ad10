"""Explanations on the terminal."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

from graphopt.audit.columns import signed
from graphopt.audit.explaining import Explanation, Gain, Step, Story
from graphopt.ir import shown_op
from graphopt.printable import counted
from graphopt.rewrite import NearMiss

_PLACES = 3
_NAME = re.compile(r"\S*[\d_/:]\S*")
"""Matches names and numbers, as opposed to words of a sentence."""


def render_explanation(found: Explanation) -> Iterator[Any]:
    """The whole explanation: summary, events, near misses."""
    yield Text(f"{found.nodes[0]} -> {found.nodes[1]} nodes in {counted(len(found.steps), 'rewrite')}", style="bold")
    yield Text(f"passes: {found.pipeline}", style="dim")
    if not (found.steps or found.near_misses or found.failures):
        yield Text("no pass fired or nearly fired")
    if found.gains:
        yield _gains(found.gains)
    if found.steps:
        yield Text("")
        yield Text("events", style="bold")
        yield from (_step(step) for step in found.steps)
    if found.near_misses:
        yield Text("")
        yield Text("near misses: where a pass matched but declined", style="bold")
        yield from _misses(found.near_misses)
    if found.moot:
        yield Text(f"({len(found.moot)} more that do not apply to the result)", style="dim")
    for failure in found.failures:
        yield Text(f"pass {failure.rule} failed at {failure.node} and was undone: {failure.error}", style="red")


def render_story(story: Story) -> Iterator[Any]:
    """The story of one node."""
    if story.start is not None:
        yield Text(f"{story.name}: {story.start}", style="bold")
    else:
        yield Text(f"{story.name}: created by a rewrite", style="bold")
    if story.events:
        yield from (Text(f"{event.index + 1:>5}  {event}") for event in story.events)
    else:
        yield Text("no pass changed it")
    if story.end:
        yield Text("now: " + ", ".join(map(str, story.end)))
    else:
        yield Text("now: removed")
    if story.near_misses:
        yield Text("")
        yield Text("why not more", style="bold")
        yield from (Text(f"  {miss.rule}: {miss.reason}") for miss in story.near_misses)
    for op, rules in story.silent.items():
        if rules:
            yield Text(f"  these look at {shown_op(op)} and found nothing to do here: {', '.join(rules)}", style="dim")


def _gains(gains: list[Gain]) -> Table:
    table = Table("pass", "fired", "constants", "traffic", box=None, pad_edge=False)
    measured = any(gain.speedup is not None for gain in gains)
    if measured:
        table.add_column("measured")
    for column in table.columns[1:]:
        column.justify = "right"
    for gain in gains:
        cells = [gain.rule, str(gain.hits), signed(gain.bytes), signed(-gain.traffic)]
        if measured:
            cells.append(_measured(gain))
        table.add_row(*cells)
    return table


def _measured(gain: Gain) -> str:
    if gain.speedup is None or gain.low is None or gain.high is None:
        return "-"
    tie = abs(gain.speedup - 1) <= 0.03 or gain.low <= 1 <= gain.high
    return f"{gain.speedup:.2f}x" + (" tie" if tie else "")


def _step(step: Step) -> Text:
    text = Text(f"{step.event.index + 1:>5}  {step.event}")
    remarks = []
    if step.event.bytes:
        remarks.append(f"constants {signed(step.event.bytes)}")
    if step.traffic:
        remarks.append(f"traffic {signed(-step.traffic)}")
    if remarks:
        text.append(f"  [{', '.join(remarks)}]", style="dim")
    return text


def _misses(misses: list[NearMiss]) -> Iterator[Text]:
    """Near misses by pass and reason, each with the first places."""
    grouped: dict[tuple[str, str], list[NearMiss]] = defaultdict(list)
    for miss in misses:
        grouped[miss.rule, _without_names(miss)].append(miss)
    order = Counter({key: len(places) for key, places in grouped.items()})
    for (rule, _), count in order.most_common():
        places = grouped[rule, _]
        where = ", ".join(map(_place, places[:_PLACES]))
        more = f" and {count - _PLACES} more" if count > _PLACES else ""
        yield Text(f"  {rule}: {places[0].reason}")
        yield Text(f"      at {where}{more}{', each with names of its own' if count > 1 else ''}", style="dim")


def _place(miss: NearMiss) -> str:
    return f"{miss.node} in {miss.function}" if miss.function else str(miss.node)


def _without_names(miss: NearMiss) -> str:
    reason = miss.reason
    for name in (*miss.node.outputs, miss.node.name):
        if name:
            reason = reason.replace(name, "*")
    return _NAME.sub("*", reason)
