"""Conditions on opsets, operands and runtimes that fusions into contrib operators share."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache

from onnx import TensorProto

from graphopt.analysis.nodes import dtype_of_output
from graphopt.rewrite import Decline, Dim, Level, Numerics, OpRule, PatternRule, Value
from graphopt.system.extras import release_of

DOMAIN = "com.microsoft"
NEWEST, NEWEST_OF_BYTES = 28, 27
"""The newest opset that ONNX Runtime 1.32 runs, and the newest for which it has `QuantizeLinear` and its inverse.

A model of a later opset is not for this runtime, and keeps the standard's operators.
"""


ONE = ((), (1,))
"""Shapes of one number."""


class ForRuntime(PatternRule):
    """A rule that writes operators that ONNX Runtime adds to the standard, for opsets that it runs."""

    level = Level.EXTENDED
    numerics = Numerics.ROUNDING
    opsets = f"7-{NEWEST}"


class OnIntegers(OpRule):
    """A rule on quantized values, which are integers from opset 10 on."""

    level = Level.EXTENDED
    opsets = f"10-{NEWEST_OF_BYTES}"


def check_float(value: Value) -> None:
    """Decline unless a value is of float32, the type of the kernels."""
    producer = value.producer
    dtype = value.dtype if producer is None else dtype_of_output(producer, value.index)
    if dtype != TensorProto.FLOAT:
        raise Decline("the element type of {} is not float32", value.name)


def may_sum_nothing(sizes: Iterable[Dim | None], result: Value | None) -> bool:
    """Whether a product may have elements that are empty sums, which kernels on integers leave unset.

    `sizes` are those of the summed axis in each operand. If a symbolic one is also a size of the product, the product
    is empty whenever its sums are.
    """
    own = (result.shape or ()) if result is not None else ()
    return not any(size > 0 if isinstance(size, int) else size is not None and size in own for size in sizes)


_SINCE = {"BranchwiseRMSNorm": (1, 31)}
"""Releases of ONNX Runtime that are known to have an operator's kernel; other releases are imported and asked."""


@lru_cache
def in_runtime(op_type: str) -> bool:
    """Whether the installed ONNX Runtime has a CPU kernel for a contrib operator that old ones lack.

    If none is installed the answer is no, since the oldest may run the result.
    """
    if op_type in _SINCE and release_of("onnxruntime") >= _SINCE[op_type]:
        return True
    with suppress(ImportError):
        return bool(kernel_versions(op_type, DOMAIN))
    return False


def kernel_versions(op_type: str, domain: str) -> list[tuple[int, int]]:
    """The first and the last version of an operator that each CPU kernel of the installed ONNX Runtime supports.

    Raises:
        ImportError: it is not installed.
    """
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return [
        kernel.version_range
        for kernel in state.get_all_opkernel_def()
        if kernel.op_name == op_type and kernel.domain == domain and kernel.provider == "CPUExecutionProvider"
    ]
