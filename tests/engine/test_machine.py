"""What the flags of a processor say of its kernels."""

from __future__ import annotations

import pytest

from graphopt.system import machine
from graphopt.system.machine import has_vnni

STATED = {
    "a Xeon of 2023": ("GenuineIntel", "6", "avx avx2 avx512f avx512_vnni", "avx512", "xeon", True),
    "a Xeon of 2017": ("GenuineIntel", "6", "avx avx2 avx512f", "avx512", "xeon", False),
    "Zen 4": ("AuthenticAMD", "25", "avx avx2 avx512f avx512_vnni", "avx512", "zen4", True),
    "Zen 5": ("AuthenticAMD", "26", "avx avx2 avx512f avx_vnni avx512_vnni", "avx512", "zen5", True),
    "Zen 3": ("AuthenticAMD", "25", "avx avx2", "avx2", "", False),
    "Alder Lake": ("GenuineIntel", "6", "avx avx2 avx_vnni", "avx2", "", True),
    "an old one": ("GenuineIntel", "6", "sse sse2", "sse2", "", False),
}
"""Maker, family and flags; the instruction set, core and VNNI that they come to."""


@pytest.mark.parametrize("name", STATED)
def test_instruction_set_core_and_vnni(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    maker, family, flags, expected, core, vnni = STATED[name]
    stated = {"vendor_id": maker, "cpu family": family, "flags": flags}
    monkeypatch.setattr(machine, "_stated", lambda: stated)
    monkeypatch.setattr(machine, "_architecture", lambda: "x86_64")
    found = machine.host.__wrapped__()
    assert (found.name, found.core, has_vnni()) == (expected, core, vnni)


def test_nothing_is_claimed_of_a_processor_that_states_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_stated", dict)
    assert not has_vnni()
