"""Operators that ONNX Runtime runs faster as the functions by which the standard defines them."""

from __future__ import annotations

from functools import lru_cache

from graphopt.rewrite import FIRED, Decline, Level, Node, Numerics, OpRule, Outcome, Rewriter
from graphopt_passes.fusion.contrib.operands import NEWEST, check_float, kernel_versions

_SINCE, _WINDOWED = 23, 25
"""The opsets that introduced `Attention`, and its windows of keys."""


class ReplaceAttention(OpRule):
    """Replace `Attention` with its function, where ONNX Runtime has no kernel for it, or a slow one for `softcap`.

    Version 1.32 has kernels for opsets 23 and 24. From 25 on it inlines the function of the standard when it loads a
    model, and runs about 60 nodes. Inlined here, other passes fold what follows from shapes and attributes: two
    products, a `Softmax` and the masking are left, in 0.6 to 0.9 of the time. With `softcap` the kernels take 1.4 to
    3.9 times as long as the function, which has a vectorized `Tanh`.
    """

    ops = ("Attention",)
    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = f"{_SINCE}-{NEWEST}"

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        if rw.graph.opset() < _WINDOWED:
            if not node.attr("softcap"):
                raise Decline("the kernel of opset {} is already fast", rw.graph.opset())
            check_float(node.operand(0))
            _check_alike(node)
        elif _has_kernel(node.op_type, _WINDOWED):
            raise Decline("ONNX Runtime has a kernel for Attention of opset {}, or is not installed", _WINDOWED)
        if 0 in (node.operand(1).shape or ()):
            raise Decline("{} is empty, and the function reads an axis of size 0 as one to copy", node.operand(1).name)
        from graphopt.opsets import write_out  # imports the conversion between opsets, too

        write_out(node, rw)
        return FIRED


def _check_alike(node: Node) -> None:
    """Decline where a kernel and the function may differ: with padded keys, or in masked scores that are an output.

    The padding behind the valid keys may be NaN, which the function multiplies by 0 and the kernel does not read.
    Masked scores that are an output are the lowest finite number in the kernel and minus infinity in the function.
    """
    products, count = node.output(3), node.input(6)
    if count is not None:
        raise Decline("the padding after the {} keys of {} may be NaN", count.name, node.result.name)
    if products is not None and products.uses and node.attr("qk_matmul_output_mode", 0):
        raise Decline("masked scores in {} are finite in the kernel, but infinite in the function", products.name)


@lru_cache
def _has_kernel(op_type: str, since: int) -> bool:
    """Whether the installed ONNX Runtime has a CPU kernel for version `since` of an operator, or none is installed."""
    try:
        ranges = kernel_versions(op_type, "")
    except ImportError:
        return True
    return any(first == since or first < since <= last < _OPEN for first, last in ranges)


_OPEN = (1 << 31) - 1
"""The stated last version of kernels for the newest known definition, which later opsets may change."""
