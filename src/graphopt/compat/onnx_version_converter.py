"""`onnx.version_converter`'s interface, carried out by graphopt.

Differences: every operator of the standard is converted up and down, or refused before anything is done, where the
original has "No Adapter"; subgraphs and model-local functions are converted too; metadata, names and weights stay.
"""

from __future__ import annotations

import onnx

from graphopt.opsets import ConversionError, convert

ConvertError = ConversionError
"""What is raised where a model cannot be brought to an opset."""


def convert_version(model: onnx.ModelProto, target_version: int) -> onnx.ModelProto:
    """Convert a model to another version of the standard's operators.

    Args:
        model: the model; it is not changed.
        target_version: the opset, from 7 on.

    Raises:
        ConvertError: it cannot be brought there.
        UsageError: there is no such opset.
    """
    return convert(model, opset=target_version)


__all__ = ["ConvertError", "convert_version"]
