"""Passes that compute ahead what is already known."""

PASSES: dict[str, str] = {}
