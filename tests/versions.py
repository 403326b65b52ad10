"""What older packages that are allowed cannot do: reasons to skip a test there."""

from __future__ import annotations

import onnx
import onnxruntime
import pytest


def _at_least(version: str, *least: int) -> bool:
    return tuple(map(int, version.split(".")[:2])) >= least


NEW_INFERENCE = _at_least(onnx.__version__, 1, 23)
NEW_RUNTIME = _at_least(onnxruntime.__version__, 1, 32)

sound_inference = pytest.mark.skipif(
    not NEW_INFERENCE, reason="inference of onnx before 1.23 ends the process at some of the models that are drawn"
)
