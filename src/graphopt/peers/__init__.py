"""The other optimizers, each behind an adapter that runs it in a separate process.

They crash, hang and exhaust memory, and importing some of them takes more than a second. So nothing here imports one,
and every outcome of a peer is a `PeerResult`.
"""

from __future__ import annotations

import difflib

from graphopt.errors import UsageError
from graphopt.peers.base import NOTHING, Peer
from graphopt.peers.onnxoptimizer import OnnxOptimizer
from graphopt.peers.onnxruntime import OrtAll, OrtBasic, OrtExtended, OrtLayout
from graphopt.peers.onnxscript import OnnxScript
from graphopt.peers.onnxsim import OnnxSim
from graphopt.peers.onnxslim import OnnxSlim
from graphopt.peers.result import PeerResult, PeerStatus
from graphopt.peers.transformers import OrtTransformers

__all__ = ["NOTHING", "Peer", "PeerResult", "PeerStatus", "all_peers", "available_peers", "by_name"]

_PEERS: tuple[Peer, ...] = (
    OnnxOptimizer(),
    OnnxSim(),
    OrtBasic(),
    OrtExtended(),
    OrtLayout(),
    OrtAll(),
    OnnxSlim(),
    OnnxScript(),
    OrtTransformers(),
)


def all_peers() -> tuple[Peer, ...]:
    """Every peer that graphopt knows, installed or not."""
    return _PEERS


def available_peers() -> tuple[Peer, ...]:
    """The peers that are installed."""
    return tuple(peer for peer in _PEERS if peer.available())


def by_name(name: str) -> Peer:
    """The peer of a name.

    Raises:
        UsageError: There is none; the message lists all peers.
    """
    for peer in _PEERS:
        if peer.name == name:
            return peer
    known = [peer.name for peer in _PEERS]
    near = difflib.get_close_matches(str(name), known, 1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise UsageError(f"unknown peer {name!r}{hint}; expected one of {', '.join(known)}")
