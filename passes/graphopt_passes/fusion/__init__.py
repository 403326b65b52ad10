"""Passes that join operators."""

PASSES: dict[str, str] = {}
