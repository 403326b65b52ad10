"""Networks written by other tools: one by torch.export, one by ONNX Runtime's quantizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx

from graphopt.demo.mobilenet import mobilenet_v2
from graphopt.demo.skeletons import read_skeleton, refill
from graphopt.system.extras import require

_SAMPLES = 2


def mobilenet_v3() -> onnx.ModelProto:
    """MobileNetV3 small as `torch.onnx.export(dynamo=True, optimize=False)` wrote it, with random weights."""
    return refill(read_skeleton(Path(__file__).with_name("mobilenet_v3.onnx.gz")))


def mobilenet_v2_int8() -> onnx.ModelProto:
    """MobileNetV2 as ONNX Runtime's static quantizer writes it, after fusion of its batch normalizations.

    Raises:
        UsageError: ONNX Runtime is not installed.
    """
    require("onnxruntime")
    from graphopt.manager import optimize
    from graphopt.system.files import scratch

    with scratch() as folder:
        prepared, quantized = (Path(folder, f"{name}.onnx") for name in ("prepared", "quantized"))
        onnx.save(onnx.shape_inference.infer_shapes(optimize(mobilenet_v2()), data_prop=True), prepared)
        _quantize(prepared, quantized)
        return onnx.load(quantized)


def _quantize(source: Path, target: Path) -> None:
    import logging

    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    class NoiseImages(CalibrationDataReader):
        """Noise images: the weights are random, too."""

        def __init__(self) -> None:
            numbers = np.random.default_rng(0)
            images = [numbers.standard_normal((1, 3, 224, 224), np.float32) for _ in range(_SAMPLES)]
            self._feeds = iter([{"input": image} for image in images])

        def get_next(self) -> dict[str, Any] | None:
            return next(self._feeds, None)

    # The quantizer warns through the root logger about a step that is done already.
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        quantize_static(source, target, NoiseImages(), per_channel=True, weight_type=QuantType.QInt8)
    finally:
        logging.disable(before)
