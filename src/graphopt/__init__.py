"""Graph optimization for ONNX models: correct, with fast results, fast to run, and explainable.

`optimize` does the work in one call; `PassManager` offers the choice of passes, the log and the comparison with other
optimizers. `graphopt.api` has one function for each task. Names are imported on first access, so that `import graphopt`
stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphopt import api, demo
    from graphopt.api import bisect, explain, inspect, profile
    from graphopt.errors import EngineError, GraphoptError, ModelError, PassError, UsageError, VerificationError
    from graphopt.fuzzing import fuzz
    from graphopt.ir import ExternalData, Model
    from graphopt.manager import PassManager, optimize, optimize_file
    from graphopt.opsets import ConversionError, convert
    from graphopt.pipeline import Pipeline
    from graphopt.results import Result
    from graphopt.rewrite import Level, Numerics, Options, Target

__version__ = "0.1.0"

_PLACES = {
    "optimize": "graphopt.manager", "optimize_file": "graphopt.manager", "PassManager": "graphopt.manager",
    "Result": "graphopt.results", "Model": "graphopt.ir", "ExternalData": "graphopt.ir",
    "Pipeline": "graphopt.pipeline", "Level": "graphopt.rewrite", "Numerics": "graphopt.rewrite",
    "Options": "graphopt.rewrite", "Target": "graphopt.rewrite", "GraphoptError": "graphopt.errors",
    "ModelError": "graphopt.errors", "UsageError": "graphopt.errors", "PassError": "graphopt.errors",
    "EngineError": "graphopt.errors", "VerificationError": "graphopt.errors", "convert": "graphopt.opsets",
    "ConversionError": "graphopt.opsets", "fuzz": "graphopt.fuzzing", "explain": "graphopt.api",
    "bisect": "graphopt.api", "profile": "graphopt.api", "inspect": "graphopt.api",
}  # fmt: skip

__all__ = [
    "ConversionError", "EngineError", "ExternalData", "GraphoptError", "Level", "Model", "ModelError", "Numerics",
    "Options", "PassError", "PassManager", "Pipeline", "Result", "Target", "UsageError", "VerificationError", "api",
    "bisect", "convert", "demo", "explain", "fuzz", "inspect", "optimize", "optimize_file", "profile",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in ("api", "demo"):
        return importlib.import_module(f"graphopt.{name}")
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'graphopt' has no attribute {name!r}")
    from graphopt.system.collector import paused_gc

    with paused_gc():  # modules stay alive: the collector would scan them a hundred times
        return getattr(importlib.import_module(place), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
