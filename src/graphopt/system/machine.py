"""The machine: the present one, and those that a layout can be written for."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from graphopt.errors import UsageError
from graphopt.system.sessions import open_session

METADATA_KEY = "graphopt.target"
"""Where a model written for one target says so in its `metadata_props`."""

_BLOCKS = {"sse2": 8, "avx": 8, "avx2": 8, "avx512": 16, "neon": 16, "lsx": 8}
"""Channels per block of ONNX Runtime's NCHWc kernels, by instruction set."""


@dataclass(frozen=True, slots=True)
class Target:
    """An instruction set and the block size that its NCHWc kernels use.

    Attributes:
        name: instruction set.
        block: channels per block: 8 or 16; 1 where there are no blocked kernels.
    """

    name: str
    block: int

    def __str__(self) -> str:
        return f"{self.name}/nchwc{self.block}"

    @classmethod
    def parse(cls, text: str) -> Target:
        """A target from its name: `host`, an instruction set, or what `str` of one gives.

        Raises:
            UsageError: the name is not known.
        """
        if text == "host":
            return host()
        name, _, rest = text.partition("/")
        if name in _BLOCKS and rest in ("", f"nchwc{_BLOCKS[name]}"):
            return cls(name, _BLOCKS[name])
        raise UsageError(f"unknown target {text!r}; expected host or one of {', '.join(sorted(_BLOCKS))}")


@lru_cache(maxsize=1)
def host() -> Target:
    """The present machine, as the processor's flags tell."""
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return Target("neon", _BLOCKS["neon"])
    if machine.startswith("loongarch"):
        return Target("lsx", _BLOCKS["lsx"])
    if machine not in ("x86_64", "amd64", "i686", "x86"):
        return Target(machine, 1)
    flags = _x86_flags()
    for flag, name in (("avx512f", "avx512"), ("avx2", "avx2"), ("avx", "avx")):
        if flag in flags:
            return Target(name, _BLOCKS[name])
    return Target("sse2", _BLOCKS["sse2"]) if flags else _probe()


def processor() -> str:
    """The name of the processor, as the system states it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _x86_flags() -> set[str]:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                return set(line.partition(":")[2].split())
    except OSError:
        pass
    return set()


def _probe() -> Target:
    """Ask ONNX Runtime itself: the channels that ReorderInput pads four channels up to."""
    import numpy as np
    import onnx
    from onnx import TensorProto

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
