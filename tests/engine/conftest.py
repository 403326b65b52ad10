"""What tests of the engine share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.engine.misbehaving import Wrong


@pytest.fixture
def wrong_peer(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a peer that is wrong, whatever versions of the others mend."""
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))  # for its process
    monkeypatch.setattr("graphopt.peers._PEERS", (Wrong(),))
    return Wrong.name
