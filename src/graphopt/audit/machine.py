"""The environment of a measurement: processor, memory, system and versions."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import asdict, dataclass
from typing import Any

from graphopt.system.extras import require, version_of
from graphopt.system.machine import processor

_PACKAGES = ("graphopt", "onnx", "onnxruntime", "numpy", "onnxoptimizer", "onnxsim", "onnxslim", "onnxscript")


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine and the software of a measurement.

    Attributes:
        processor: its name.
        cores: logical cores that this process may use.
        memory: bytes of main memory.
        system: operating system and architecture.
        python: Python version.
        packages: relevant installed packages, with their versions.
        load: mean number of running processes over the last minute; None if the system does not provide it.
    """

    processor: str
    cores: int
    memory: int
    system: str
    python: str
    packages: dict[str, str]
    load: float | None

    @classmethod
    def here(cls) -> Machine:
        """The present machine."""
        psutil = require("psutil")
        return cls(
            processor(),
            usable_cores(),
            psutil.virtual_memory().total,
            f"{platform.system()} {platform.machine()}",
            sys.version.split()[0],
            {name: found for name in _PACKAGES if (found := version_of(name))},
            os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        )

    @property
    def kind(self) -> str:
        """A description of the machine; times are comparable only if it is equal."""
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        return f"{self.processor}, {cores}, {self.system}"

    def __str__(self) -> str:
        packages = ", ".join(f"{name} {number}" for name, number in self.packages.items())
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        return (
            f"{self.processor}, {cores}, {self.memory / 2**30:.0f} GiB, {self.system}, Python {self.python}; {packages}"
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def usable_cores() -> int:
    """Logical cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
