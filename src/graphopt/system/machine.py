"""The machine: the present one, and those that a layout can be written for."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from graphopt.errors import UsageError
from graphopt.records import dataclass

if TYPE_CHECKING:
    from onnx import ModelProto

METADATA_KEY = "graphopt.target"
"""Where a model written for one target says so in its `metadata_props`."""

BLOCKS = (4, 8, 16)
"""Channels per block that layouts are written with."""

_BLOCKS = {"sse2": (8,), "avx": (8,), "avx2": (8,), "avx512": (16,), "neon": (16, 8, 4), "lsx": (8,)}
"""Channels per block of ONNX Runtime's NCHWc kernels, by instruction set; the usual number first."""

_X86 = ("sse2", "avx", "avx2", "avx512")
"""The instruction sets of x86 processors."""

_CORES = {"avx512": ("zen4", "zen5", "xeon")}
"""Cores of one instruction set whose speeds differ."""

_ZEN5 = 26
"""The family of AMD's first cores with whole registers of 512 bits."""

_SHARING = 8
"""At least so many cores share the last cache of a server, whatever a virtual machine has of them."""


@dataclass(frozen=True, slots=True)
class Target:
    """An instruction set and the block size that its NCHWc kernels use.

    Attributes:
        name: instruction set.
        block: channels per block, one of `BLOCKS`; 1 where there are no blocked kernels.
        core: whose speed is reckoned with among cores of this instruction set, where that is known; what is written
            runs on all of them.
    """

    name: str
    block: int
    core: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.name}/nchwc{self.block}"

    @property
    def is_x86(self) -> bool:
        """Whether it is an instruction set of x86 processors."""
        return self.name in _X86

    @classmethod
    def parse(cls, text: str) -> Target:
        """A target from its name: `host`, an instruction set, `avx512-zen5` for that of a core, or what `str` gives.

        Raises:
            UsageError: the name is not known.
        """
        if text == "host":
            return host()
        whole, _, rest = text.partition("/")
        name, _, core = whole.partition("-")
        for block in _BLOCKS.get(name, ()):
            if rest in ("", f"nchwc{block}") and (not core or core in _CORES.get(name, ())):
                return cls(name, block, core)
        names = [*_BLOCKS, *(f"{name}-{core}" for name, cores in _CORES.items() for core in cores)]
        raise UsageError(f"unknown target {text!r}; expected host or one of {', '.join(sorted(names))}")


@lru_cache(maxsize=1)
def host() -> Target:
    """The present machine, as the processor's flags tell."""
    machine = _architecture().lower()
    if machine in ("aarch64", "arm64"):
        return Target("neon", _BLOCKS["neon"][0])
    if machine.startswith("loongarch"):
        return Target("lsx", _BLOCKS["lsx"][0])
    if machine not in ("x86_64", "amd64", "i686", "x86"):
        return Target(machine, 1)
    stated = _stated()
    flags = set(stated.get("flags", "").split())
    for flag, name in (("avx512f", "avx512"), ("avx2", "avx2"), ("avx", "avx")):
        if flag in flags:
            return Target(name, _BLOCKS[name][0], _core(stated) if name == "avx512" else "")
    return Target("sse2", _BLOCKS["sse2"][0]) if flags else _probe()


def _architecture() -> str:
    """What kind of processor it is; where the system says so itself, what reads it elsewhere is not even imported."""
    return os.uname().machine if hasattr(os, "uname") else platform.machine()


def _core(stated: Mapping[str, str]) -> str:
    """Which of `_CORES` a processor with AVX512 has."""
    maker, family = stated.get("vendor_id"), stated.get("cpu family", "")
    if maker == "AuthenticAMD" and family.isdecimal():
        return "zen5" if int(family) >= _ZEN5 else "zen4"
    return "xeon" if maker == "GenuineIntel" else ""


def has_vnni() -> bool:
    """Whether the present x86 machine adds products of bytes in 32 bits; False where the system does not say."""
    return "vnni" in _stated().get("flags", "")


def runs_here(model: ModelProto) -> bool:
    """Whether a model has no blocks, or such as this machine's kernels take."""
    written_for = next((entry.value for entry in model.metadata_props if entry.key == METADATA_KEY), "")
    return not written_for or Target.parse(written_for).block == host().block


def processor() -> str:
    """The name of the processor, as the system states it."""
    return _stated().get("model name") or platform.processor() or platform.machine()


@lru_cache(maxsize=1)
def _stated() -> dict[str, str]:
    """What the system states of the first core."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): text.strip() for name, _, text in pairs}


def cache_bytes(root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int | None:
    """Bytes of cache that one core can count on: its second one, and its part of the last; None where unknown."""
    own: dict[int, float] = {}
    try:
        for place in sorted(root.glob("index*")):
            level, size = (
                int((place / "level").read_text(encoding="utf-8")),
                (place / "size").read_text(encoding="utf-8").strip(),
            )
            scale = {"K": 1 << 10, "M": 1 << 20}[size[-1]]
            cores = len(_listed((place / "shared_cpu_list").read_text(encoding="utf-8")))
            own[level] = int(size[:-1]) * scale / (max(cores, _SHARING) if level > 2 else 1)
    except (OSError, ValueError, KeyError, IndexError):
        return None
    found = int(own.get(2, 0) + own.get(3, 0))
    return found or None


def _listed(text: str) -> list[int]:
    """The numbers of a list like `0-3,8`."""
    spans = (part.partition("-") for part in text.strip().split(","))
    return [at for first, _, last in spans for at in range(int(first), int(last or first) + 1)]


def _probe() -> Target:
    """Ask ONNX Runtime itself: the channels that ReorderInput pads four channels up to."""
    import numpy as np
    import onnx
    from onnx import TensorProto

    from graphopt.system.sessions import open_session

    node = onnx.helper.make_node("ReorderInput", ["x"], ["y"], domain="com.microsoft.nchwc")
    x = onnx.helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 1, 1])
    y = onnx.helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft.nchwc", 1)]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "probe", [x], [y]), opset_imports=opsets)
    model.ir_version = 9
    try:
        block = open_session(model).run(None, {"x": np.zeros((1, 4, 1, 1), np.float32)})[0].shape[1]
    except Exception:  # the kernels are not registered: this build has no blocked layout
        return Target("none", 1)
    return Target({16: "avx512", 8: "avx2"}.get(block, "none"), block)
