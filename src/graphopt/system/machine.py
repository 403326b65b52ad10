"""This machine, and the targets that a layout can be written for."""

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
"""The key in `metadata_props` of the target that a model is written for."""

BLOCKS = (4, 8, 16)
"""Possible channels per block."""

_BLOCKS = {"sse2": (8,), "avx": (8,), "avx2": (8,), "avx512": (16,), "neon": (16, 8, 4), "lsx": (8,)}
"""Channels per block of ONNX Runtime's NCHWc kernels, by instruction set; the most common number first."""

_X86 = ("sse2", "avx", "avx2", "avx512")
"""The instruction sets of x86 processors."""

_CORES = {"avx512": ("zen4", "zen5", "xeon")}
"""Cores with the same instruction set but different speeds."""

_ZEN5 = 26
"""The CPU family of AMD's first cores with full 512-bit data paths."""

_SHARING = 8
"""The least number of cores that share the last-level cache of a server, even if a virtual machine has fewer."""


@dataclass(frozen=True, slots=True)
class Target:
    """An instruction set and the block size that its NCHWc kernels use.

    Attributes:
        name: instruction set.
        block: channels per block, one of `BLOCKS`; 1 if there are no blocked kernels.
        core: the core, among those with this instruction set, whose speed the cost model assumes, if known; the model
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
        """A target from its name: `host`, an instruction set, one with a core as in `avx512-zen5`, or `str(target)`.

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
    """This machine, from the processor's flags."""
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
    """The processor architecture; from `os.uname` if available, so that `platform` is not even imported."""
    return os.uname().machine if hasattr(os, "uname") else platform.machine()


def _core(stated: Mapping[str, str]) -> str:
    """The core, one of `_CORES`, of a processor with AVX512; "" if it is another."""
    maker, family = stated.get("vendor_id"), stated.get("cpu family", "")
    if maker == "AuthenticAMD" and family.isdecimal():
        return "zen5" if int(family) >= _ZEN5 else "zen4"
    return "xeon" if maker == "GenuineIntel" else ""


def has_vnni() -> bool:
    """Whether this x86 machine accumulates 8-bit products in 32 bits (VNNI); False if the system does not tell."""
    return "vnni" in _stated().get("flags", "")


def runs_here(model: ModelProto) -> bool:
    """Whether a model is not blocked, or has the block size of this machine's kernels."""
    written_for = next((entry.value for entry in model.metadata_props if entry.key == METADATA_KEY), "")
    return not written_for or Target.parse(written_for).block == host().block


def processor() -> str:
    """The name of the processor, from the system."""
    return _stated().get("model name") or platform.processor() or platform.machine()


@lru_cache(maxsize=1)
def _stated() -> dict[str, str]:
    """The entries of `/proc/cpuinfo` for the first core."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): text.strip() for name, _, text in pairs}


def cache_bytes(root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int | None:
    """Bytes of cache available to one core: its L2, and its share of L3; None if unknown."""
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
    """The numbers in a list such as `0-3,8`."""
    spans = (part.partition("-") for part in text.strip().split(","))
    return [at for first, _, last in spans for at in range(int(first), int(last or first) + 1)]


def _probe() -> Target:
    """The block size of ONNX Runtime itself: the number of channels to which ReorderInput pads four channels."""
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
