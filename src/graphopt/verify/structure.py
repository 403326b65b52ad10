"""Sequences, optionals and maps as a flat list of arrays."""

from __future__ import annotations

from typing import Any


def leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Each array in a value with its path; an empty optional is a leaf of its own."""
    if value is None:
        return [(f"{path}(none)", 0)]
    if isinstance(value, dict):
        return [leaf for key in value for leaf in leaves(value[key], f"{path}[{key!r}]")]
    if isinstance(value, (list, tuple)):
        return [leaf for i, item in enumerate(value) for leaf in leaves(item, f"{path}[{i}]")]
    return [(path, value)]
