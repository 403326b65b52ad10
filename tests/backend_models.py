"""Every model that the onnx package ships: its test data, and the models that its operator cases build."""

from __future__ import annotations

import warnings
from functools import lru_cache
from pathlib import Path

import onnx


@lru_cache(maxsize=1)
def backend_models() -> dict[str, onnx.ModelProto]:
    """Models by name, without the duplicates among them."""
    from onnx.backend.test.case.node import collect_testcases

    models: dict[str, onnx.ModelProto] = {}
    seen: set[bytes] = set()
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    found = [(str(p.relative_to(data)), onnx.load(p, load_external_data=False)) for p in sorted(data.rglob("*.onnx"))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # building the expected outputs overflows and divides by zero on purpose
        found += [(case.name, case.model) for case in collect_testcases(None) if case.model is not None]
    for name, model in found:
        text = model.SerializeToString()
        if text not in seen:
            seen.add(text)
            models[name] = model
    return models
