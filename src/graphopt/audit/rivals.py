"""The peers as contestants."""

from __future__ import annotations

from pathlib import Path

from graphopt.audit.contestants import Limits, Produced


def installed() -> list[str]:
    """Peers that can run here."""
    return []


def version_of(peer: str) -> str:
    """The version of a peer."""
    return ""


def runtime_of(peer: str) -> str:
    """ONNX Runtime's level for running a peer's output."""
    return "none" if peer.startswith("ort") else "all"


def run_peer(peer: str, source: Path, target: Path, limits: Limits) -> Produced:
    """Let a peer optimize a file."""
    return Produced("missing", f"{peer} is not installed")
