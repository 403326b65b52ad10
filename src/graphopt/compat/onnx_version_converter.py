"""The interface of `onnx.version_converter`, implemented by graphopt.

Differences: every standard operator is converted up and down, or rejected before any change, where the original has
"No Adapter"; subgraphs and model-local functions are converted too; metadata, names and weights stay.
"""

from __future__ import annotations

import onnx

from graphopt.opsets import ConversionError, convert

ConvertError = ConversionError
"""Raised if a model cannot be converted to an opset."""


def convert_version(model: onnx.ModelProto, target_version: int) -> onnx.ModelProto:
    """Convert a model to another version of the standard operator set.

    Args:
        model: the model, which is not changed.
        target_version: the opset, from 7 on.

    Raises:
        ConvertError: it cannot be converted.
        UsageError: there is no such opset.
    """
    return convert(model, opset=target_version)


__all__ = ["ConvertError", "convert_version"]
