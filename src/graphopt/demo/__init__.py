"""Small models that need no download, in the raw form of exporters, which leaves an optimizer much to do.

Every builder returns the same bytes on each call: weights come from a fixed seed and need neither a runtime nor torch.
Only `mobilenet_v2_int8` needs ONNX Runtime, whose quantizer writes it.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx

from graphopt.demo.exported import mobilenet_v2_int8, mobilenet_v3
from graphopt.demo.mobilenet import mobilenet_v2
from graphopt.demo.resnet import resnet18
from graphopt.demo.single import conv_alone, conv_maxpool

__all__ = ["MODELS", "conv_alone", "conv_maxpool", "mobilenet_v2", "mobilenet_v2_int8", "mobilenet_v3", "resnet18"]

MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "mobilenet_v2": mobilenet_v2,
    "mobilenet_v3": mobilenet_v3,
    "mobilenet_v2_int8": mobilenet_v2_int8,
    "resnet18": resnet18,
    "conv_alone": conv_alone,
    "conv_maxpool": conv_maxpool,
}
"""Builders of all demo models, by name."""
