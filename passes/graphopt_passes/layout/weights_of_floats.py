"""Weights that are stored in integers and read in floats."""

from __future__ import annotations

from math import prod

from graphopt.rewrite import Decline, Level, Node, OpRule, Outcome, Rewriter, Value
from graphopt_passes.fusion.contrib.constants import floats_of
from graphopt_passes.fusion.contrib.operands import NEWEST_OF_BYTES
from graphopt_passes.fusion.contrib.parameters import dequantized

_LARGEST = 2**24
"""Bytes of floats. Larger weights stay integers: the model would grow to four times its size."""
_PRODUCTS = frozenset(
    {"Conv", "ConvTranspose", "Gemm", "MatMul", "com.microsoft::FusedConv", "com.microsoft::FusedGemm",
     "com.microsoft::FusedMatMul"}
)  # fmt: skip

_MOVING = frozenset(
    {"Clip", "Concat", "Flatten", "Gather", "Identity", "MaxPool", "Pad", "Relu", "Reshape", "Slice", "Split",
     "Squeeze", "Transpose", "Unsqueeze"}
)  # fmt: skip
"""Operators that other rules move through quantization."""
_MOST_MOVES = 8


class FoldDequantizedWeights(OpRule):
    """Write weights as floats, where they are constant integers that products of floats dequantize in every run.

    Dequantizing takes as long as the product, or longer, and what is not constant the kernels cannot pack. It comes
    before the blocked layout, which reads weights that are constant, and leaves those of products whose other operand
    is dequantized, too: rules behind the layout make products of integers of them.
    """

    # No pattern: all readers of the result count.
    ops = ("DequantizeLinear",)
    level = Level.LAYOUT
    opsets = f"10-{NEWEST_OF_BYTES}"
    peers = {}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look at its uses."""
        result = node.result
        if not node.operand(0).is_const:
            raise Decline
        others = [user.op for user in result.users if user.op not in _PRODUCTS]
        if others or not result.users:
            raise Decline("{} is read by {}", result.name, (*others, "nothing")[0])
        if result.output_count:
            raise Decline("{} is a result of the graph", result.name)
        for user in result.users:
            for value in user.operands:
                if value is not result and _comes_of_integers(value):
                    raise Decline("{} is multiplied with integers", result.name)
        integers = dequantized(result)
        tensor = integers.value.constant_tensor
        if tensor is None or 4 * prod(tensor.dims) > min(_LARGEST, rw.options.max_folded_bytes):
            raise Decline("{} as floats would be large", result.name)
        return rw.replace(node, [rw.constant(floats_of(integers), like=integers.value)])


def _comes_of_integers(value: Value) -> bool:
    """Whether a value that is computed is dequantized, or moved behind that."""
    for _ in range(_MOST_MOVES):
        maker = value.producer
        if maker is None:
            return False
        if maker.op == "DequantizeLinear":
            return not maker.operand(0).is_const
        if maker.op not in _MOVING:
            return False
        value = maker.operand(0)
    return True
