"""Passes that choose the memory layout of values."""

PASSES: dict[str, str] = {}
