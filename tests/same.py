"""Comparing models byte for byte, with a message that is short however large they are."""

from __future__ import annotations

import numpy as np
import pytest


def assert_same_bytes(found: bytes, expected: bytes, what: object = "") -> None:
    """Fail with the place of the first difference.

    An `assert` of large bytes never ends where it fails: on machines of continuous integration pytest writes out the
    whole difference, which takes time quadratic in the size.
    """
    if found == expected:
        return
    common = min(len(found), len(expected))
    differs = np.flatnonzero(np.frombuffer(found[:common], np.uint8) != np.frombuffer(expected[:common], np.uint8))
    at = int(differs[0]) if differs.size else common
    near = slice(max(at - 20, 0), at + 40)
    pytest.fail(
        f"{what}: {len(found)} bytes, expected {len(expected)}; they differ from byte {at} on: "
        f"{found[near]!r}, expected {expected[near]!r}"
    )
