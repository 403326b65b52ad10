"""The peers as contestants."""

from __future__ import annotations

from pathlib import Path

from graphopt.audit.contestants import Produced
from graphopt.audit.record import Status
from graphopt.peers import PeerResult, available_peers, by_name
from graphopt.system.processes import Limits

_ORT = "onnxruntime"


def installed() -> list[str]:
    """Peers that can run here."""
    return [peer.name for peer in available_peers()]


def version_of(peer: str) -> str:
    """The version of a peer."""
    return by_name(peer).version or ""


def runtime_of(peer: str) -> str:
    """ONNX Runtime's level for running a peer's output: outputs of its own levels need no further optimization."""
    return "none" if peer.startswith("ort-") and by_name(peer).distribution == _ORT and _is_level(peer) else "all"


def _is_level(peer: str) -> bool:
    return hasattr(by_name(peer), "level")


def run_peer(peer: str, source: Path, target: Path, limits: Limits) -> Produced:
    """Optimize a file with a peer."""
    result = by_name(peer).optimize_file(source, target, timeout=limits.seconds, memory_limit=limits.memory)
    return produced(result)


def produced(result: PeerResult) -> Produced:
    """A peer's result as the audit's record."""
    status: Status = "memory" if "over the memory limit" in result.message else result.status
    return Produced(status, result.message, result.seconds, result.peak_memory_bytes)
