"""Bar charts as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_BAR, _GAP, _LEFT, _RIGHT, _WIDTH = 18, 6, 150, 100, 560


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar.

    Attributes:
        label: its label.
        value: its length.
        text: the text at its end.
        low: lower end of an interval, or None.
        high: upper end.
        kind: `base`, `own`, `peer` or `bad`: determines its colour.
    """

    label: str
    value: float
    text: str
    low: float | None = None
    high: float | None = None
    kind: str = "peer"


def bar_chart(title: str, bars: Sequence[Bar], mark: float | None = None) -> str:
    """A chart of horizontal bars from zero.

    Args:
        title: its title, also for screen readers.
        bars: top to bottom.
        mark: position of a line, for the baseline.
    """
    if not bars:
        return ""
    height = len(bars) * (_BAR + _GAP) + _GAP
    # A very wide interval must not compress all bars.
    most = max(max(bar.value, min(bar.high or 0.0, 1.5 * bar.value)) for bar in bars) or 1.0
    scale = (_WIDTH - _LEFT - _RIGHT) / most
    parts = [f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">']
    for number, bar in enumerate(bars):
        y = _GAP + number * (_BAR + _GAP)
        length = max(1.0, bar.value * scale)
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 13}" class="label">{escape(bar.label)}</text>')
        parts.append(f'<rect x="{_LEFT}" y="{y}" width="{length:.1f}" height="{_BAR}" class="bar {bar.kind}"/>')
        end = _LEFT + length
        if bar.low is not None and bar.high is not None:
            low, high = _LEFT + bar.low * scale, min(_LEFT + bar.high * scale, _WIDTH - _RIGHT + 10.0)
            middle = y + _BAR / 2
            # An interval that exceeds the chart gets an arrow in place of its end.
            last = (
                f"v10M{high:.1f} {y + 4}v10"
                if bar.high * scale <= high - _LEFT
                else f"v10M{high - 5:.1f} {y + 5}l5 4l-5 4"
            )
            ends = f"M{low:.1f} {y + 4}{last}"
            parts.append(f'<path class="interval" d="M{low:.1f} {middle}H{high:.1f}{ends}"/>')
            end = max(end, high)
        parts.append(f'<text x="{end + 6:.1f}" y="{y + 13}" class="value">{escape(bar.text)}</text>')
    if mark is not None:
        x = _LEFT + mark * scale
        parts.append(f'<path class="mark" d="M{x:.1f} 0V{height}"/>')
    parts.append("</svg>")
    return "".join(parts)
