"""Conversion between any two opsets of the standard's operators: the results stay the same, or it is refused."""

from graphopt.opsets.bodies import write_out
from graphopt.opsets.conversion import Conversion, convert, convert_loaded, convert_source, convert_view, raise_opset
from graphopt.opsets.refusals import ConversionError, Refusal
from graphopt.opsets.runtimes import Runtime, runtimes

__all__ = [
    "Conversion", "ConversionError", "Refusal", "Runtime", "convert", "convert_loaded", "convert_source",
    "convert_view", "raise_opset", "runtimes", "write_out",
]  # fmt: skip
