"""Passes that choose which algorithm computes an operator."""

PASSES: dict[str, str] = {}
