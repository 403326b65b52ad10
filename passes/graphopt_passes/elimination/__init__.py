"""Passes that remove what does nothing."""

PASSES: dict[str, str] = {}
