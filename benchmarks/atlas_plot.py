"""A plot of the atlas, as the lines of an SVG."""

from __future__ import annotations

from collections.abc import Mapping
from math import log10

_LEFT, _RIGHT, _LINE, _TOP = 190, 720, 15, 50
_MOST = 5.0
"""The largest power of ten on the axis."""

_COLORS = {"operator": "#c0504d", "form": "#4f81bd"}


def drawn(ratios: Mapping[str, tuple[float, float | None]]) -> str:
    """Bars on a scale of powers of ten, the worst operator first.

    Args:
        ratios: for each operator, the ratio of its time to the limit, and that of its other form, if any.
    """
    order = sorted(ratios, key=lambda name: -ratios[name][0])
    height = _TOP + _LINE * len(order) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_RIGHT + 60}" height="{height}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{_RIGHT + 60}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="16" font-size="13">times below the machine, worst case of each operator</text>',
        *_key(),
    ]
    for power in range(int(_MOST) + 1):
        at = _place(10.0**power)
        parts.append(f'<line x1="{at}" y1="{_TOP - 8}" x2="{at}" y2="{height - 24}" stroke="#ddd"/>')
        parts.append(f'<text x="{at}" y="{height - 8}" text-anchor="middle">{10**power}</text>')
    for row, name in enumerate(order):
        parts += _row(name, *ratios[name], _TOP + _LINE * row)
    return "\n".join([*parts, "</svg>", ""])


def _key() -> list[str]:
    names = (("operator", "as it is"), ("form", "in its other form"))
    return [
        f'<rect x="{_LEFT + 130 * at}" y="24" width="10" height="10" fill="{_COLORS[kind]}"/>'
        f'<text x="{_LEFT + 16 + 130 * at}" y="33">{text}</text>'
        for at, (kind, text) in enumerate(names)
    ]


def _row(name: str, before: float, after: float | None, top: float) -> list[str]:
    bars = [(before, _COLORS["operator"], 10.0)]
    if after is not None:
        bars.append((after, _COLORS["form"], 6.0))
    lines = [f'<text x="{_LEFT - 6}" y="{top + 9}" text-anchor="end">{name}</text>']
    for ratio, color, thick in bars:
        width = max(_place(ratio) - _LEFT, 1)
        lines.append(
            f'<rect x="{_LEFT}" y="{top + (10 - thick) / 2:g}" width="{width:.1f}" height="{thick:g}" fill="{color}"/>'
        )
    return lines


def _place(ratio: float) -> float:
    return round(_LEFT + (_RIGHT - _LEFT) * min(max(log10(max(ratio, 1.0)), 0.0), _MOST) / _MOST, 1)
