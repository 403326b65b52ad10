"""Quantized constants that nothing reads as integers."""

from __future__ import annotations

import numpy as np

from graphopt.rewrite import Decline, Node, Outcome, Rewriter, Value
from graphopt_passes.fusion.contrib.limits import is_quantized
from graphopt_passes.fusion.contrib.operands import OnIntegers
from graphopt_passes.fusion.contrib.parameters import WORDS, dequantized, floats_of

_NORMALIZATIONS = (
    "BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization", "RMSNormalization",
    "SimplifiedLayerNormalization",
)  # fmt: skip
"""Operators whose scales and biases are floats in every kernel."""
_ARITHMETIC = ("Add", "Div", "Mul", "Pow", "Sub")
_READERS = (*_NORMALIZATIONS, *_ARITHMETIC, "Gather")
_LARGEST = 2**16
"""The most bytes of floats for which it pays to save a kernel in each run."""


class FoldDequantizedParameters(OnIntegers):
    """Fold the `DequantizeLinear` of constant scales and biases of normalizations, and of small tables.

    No kernel normalizes with integers, so these are dequantized in every run. So are small tables whose gathered values
    are not quantized again, and the constant operands of arithmetic on 16-bit integers, whose kernels are for bytes.
    """

    # No pattern: all readers of the result count.
    ops = ("DequantizeLinear",)

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        result = node.result
        if not node.operand(0).is_const or not any(user.op in _READERS for user in result.users):
            raise Decline
        others = [user.op for user in result.users if not _reads_floats(user, result)]
        if others:
            raise Decline("{} is read by {} too", result.name, others[0])
        if result.output_count:
            raise Decline("{} is a graph output", result.name)
        integers = dequantized(result)
        tensor = integers.value.constant_tensor
        if tensor is None or 4 * int(np.prod(tensor.dims)) > _LARGEST:
            raise Decline("{} would be large in float32", result.name)
        return rw.replace(node, [rw.constant(floats_of(integers), like=integers.value)])


def _reads_floats(user: Node, value: Value) -> bool:
    """Whether an operator normalizes with a value, gathers unquantized ones from it, or computes on 16-bit integers."""
    if user.op in _ARITHMETIC:
        return any(_is_of_words(operand) for operand in user.operands if operand is not value)
    if user.op == "Gather":
        return user.inputs[0] is value and not is_quantized(user.result)
    return user.op in _NORMALIZATIONS and user.inputs[0] is not value


def _is_of_words(value: Value) -> bool:
    """Whether a value is dequantized from integers of 16 bits."""
    maker = value.made_by("DequantizeLinear")
    return maker is not None and maker.operand(0).dtype in WORDS
