"""What fusions to contrib operators ask of operands."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from onnx import TensorProto

from graphopt.analysis.nodes import dtype_of_output
from graphopt.rewrite import Decline, Dim, Level, Numerics, OpRule, PatternRule, Value
from graphopt.system.machine import Target, has_vnni, host

DOMAIN = "com.microsoft"
NEWEST = 26
"""The newest opset that ONNX Runtime 1.31 runs: a later model is not for it, and stays in the standard's operators."""


class ForRuntime(PatternRule):
    """A rule that writes operators which ONNX Runtime adds to the standard, for opsets that it runs."""

    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = f"7-{NEWEST}"


class OnIntegers(OpRule):
    """A rule on quantized values, which are integers from opset 10 on."""

    level = Level.EXTENDED
    opsets = f"10-{NEWEST}"


def check_float(value: Value) -> None:
    """Decline unless a value is of float32, which the kernels are for."""
    producer = value.producer
    dtype = value.dtype if producer is None else dtype_of_output(producer, value.index)
    if dtype != TensorProto.FLOAT:
        raise Decline("the element type of {} is not float32", value.name)


def may_sum_nothing(sizes: Iterable[Dim | None], result: Value | None) -> bool:
    """Whether a product may have elements and nothing to add up for them, which kernels on integers leave unset.

    The sizes are those of the axis that is added up, as each operand has it. Where one with a name is a size of the
    product too, that is empty together with the sums.
    """
    own = (result.shape or ()) if result is not None else ()
    return not any(size > 0 if isinstance(size, int) else size is not None and size in own for size in sizes)


X86 = ("sse2", "avx", "avx2", "avx512")
"""Targets with x86 kernels."""


_SAFE = 64
"""Two products of an unsigned byte with a signed one up to this fit into 16 bits."""


def sums_bytes_exactly(weights: np.ndarray | None, target: Target) -> bool:
    """Whether kernels add products of unsigned bytes with signed ones, None where these are computed, without overflow.

    x86 without VNNI adds pairs of them in 16 bits, and ONNX Runtime uses that. Of another machine nothing is known.
    """
    if weights is not None and np.abs(weights.astype(np.int16)).max(initial=0) <= _SAFE:
        return True
    return target.name not in X86 or (target == host() and has_vnni())


@lru_cache
def in_runtime(op_type: str) -> bool:
    """Whether the installed ONNX Runtime has a CPU kernel for a contrib operator that old ones lack.

    Where none is installed the answer is no, since the result may then be run by the oldest.
    """
    try:
        from onnxruntime.capi import onnxruntime_pybind11_state as state
    except ImportError:
        return False
    return any(
        kernel.op_name == op_type and kernel.domain == DOMAIN and kernel.provider == "CPUExecutionProvider"
        for kernel in state.get_all_opkernel_def()
    )
