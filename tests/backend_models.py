"""Every model that the onnx package ships: its test data, and the models that its operator cases build."""

from __future__ import annotations

import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import onnx


@lru_cache(maxsize=1)
def backend_cases() -> list[Any]:
    """The operator cases, collected once: onnx 1.18 refuses to do it twice in a process."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # building the expected outputs overflows and divides by zero on purpose
        return list(collect_testcases(None))


@lru_cache(maxsize=1)
def backend_inputs() -> dict[str, list[dict[str, Any]]]:
    """The inputs that come with the operator cases, by model name: one feed for each data set."""
    return {
        case.name: [
            dict(zip((v.name for v in case.model.graph.input), inputs, strict=False)) for inputs, _ in case.data_sets
        ]
        for case in backend_cases()
        if case.model is not None and case.data_sets
    }


@lru_cache(maxsize=1)
def backend_models() -> dict[str, onnx.ModelProto]:
    """Models by name, without the duplicates among them."""
    models: dict[str, onnx.ModelProto] = {}
    seen: set[bytes] = set()
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    found = [(str(p.relative_to(data)), onnx.load(p, load_external_data=False)) for p in sorted(data.rglob("*.onnx"))]
    found += [(case.name, case.model) for case in backend_cases() if case.model is not None]
    for name, model in found:
        text = model.SerializeToString()
        if text not in seen:
            seen.add(text)
            models[name] = model
    return models
