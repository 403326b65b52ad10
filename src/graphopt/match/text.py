"""Patterns as text that reads like ONNX, for messages and for the pages of the passes."""

from __future__ import annotations

from typing import Any

from graphopt.match.pattern import (
    UNSET,
    Apply,
    Attr,
    Const,
    Either,
    Opt,
    Output,
    Pattern,
    Product,
    Rest,
    Scalar,
    Var,
)


def pattern_text(root: Pattern) -> str:
    """A line per operator or alternative that is used several times, then the result.

    A `?` marks optional parts, `|` alternatives.
    """
    uses: dict[object, int] = {}
    _count(root, uses)
    return _Text({key for key, times in uses.items() if times > 1}).of(root)


def _count(pattern: Pattern | None, uses: dict[object, int]) -> None:
    key = pattern.apply if isinstance(pattern, Output) else pattern
    if isinstance(pattern, (Output, Either, Product, Opt)):
        uses[key] = uses.get(key, 0) + 1
        if uses[key] == 1:
            for part in parts(pattern):
                _count(part, uses)


def parts(pattern: Pattern | None) -> tuple[Pattern | None, ...]:
    """The direct parts of a pattern."""
    if isinstance(pattern, Output):
        return pattern.apply.inputs
    if isinstance(pattern, Either):
        return pattern.patterns
    if isinstance(pattern, Product):
        return pattern.factors
    return (pattern.pattern,) if isinstance(pattern, Opt) else ()


def _ends(pattern: Pattern) -> list[Pattern]:
    """The alternatives of a pattern's root."""
    return [end for each in pattern.patterns for end in _ends(each)] if isinstance(pattern, Either) else [pattern]


_LONGEST = 36
"""Most characters of a nested operator; a longer one gets its own line."""


class _Text:
    def __init__(self, shared: set[object]) -> None:
        self._shared = shared
        self._names: dict[object, str] = {}
        self._lines: list[str] = []

    def of(self, root: Pattern) -> str:
        ends = [self._plain(end) for end in _ends(root)]
        return "\n".join([*self._lines, ends[0], *(f"or {end}" for end in ends[1:])])

    def _write(self, pattern: Pattern | None) -> str:
        key = pattern.apply if isinstance(pattern, Output) else pattern
        if key in self._names:
            return self._names[key]
        text = self._plain(pattern)
        if (key in self._shared and not isinstance(pattern, Opt)) or len(text) > _LONGEST:
            name = self._names[key] = f"v{len(self._names) + 1}"
            self._lines.append(f"{name} = {text}")
            return name
        return text

    def _plain(self, pattern: Pattern | None) -> str:
        if pattern is None:
            return '""'
        if isinstance(pattern, Output):
            return self._apply(pattern.apply)
        if isinstance(pattern, Either):
            return "(" + " | ".join(self._write(each) for each in pattern.patterns) + ")"
        if isinstance(pattern, Product):
            scale = () if pattern.scale == 1.0 else (_literal(pattern.scale),)
            return " * ".join([*scale, *(self._write(each) for each in pattern.factors)])
        if isinstance(pattern, Opt):
            return f"{self._write(pattern.pattern)}?"
        if isinstance(pattern, Scalar):
            return pattern.name or ("number" if pattern.value is None else _literal(pattern.value))
        if isinstance(pattern, Const):
            return f"const {pattern.name}".strip()
        assert isinstance(pattern, (Var, Rest))
        return f"{pattern.name}..." if isinstance(pattern, Rest) else pattern.name or "any"

    def _apply(self, apply: Apply) -> str:
        inputs = ", ".join([*(self._write(pattern) for pattern in apply.inputs), *["..."] * apply.is_open])
        others = apply.other_attrs and not apply.is_open
        attrs = [f"{key} = {_attr(attr)}" for key, attr in apply.attrs.items()] + ["..."] * others
        middle = f" <{', '.join(attrs)}>" if attrs else ""
        return f"{'|'.join(apply.ops)}{middle} ({inputs})"


def _attr(attr: Attr) -> str:
    if attr.among is not None:
        return " | ".join(map(_literal, sorted(attr.among)))
    return (attr.name or "*") if attr.equals is UNSET else _literal(attr.equals)


def _literal(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_literal(v) for v in value)}]"
    return f"{value:.7g}" if isinstance(value, float) else str(value)
