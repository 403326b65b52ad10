"""NumPy kernels: data movement on any element type, arithmetic on integers and booleans.

A kernel computes the result of the standard bit for bit, or raises `Unsupported`: it never guesses. Movement kernels
also accept arrays of Python objects, so that symbolic contents move like numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphopt.analysis.disagreements import BROKEN, ENTRIES, Facts, doubts
from graphopt.analysis.kernels.arithmetic import ARITHMETIC
from graphopt.analysis.kernels.base import Array, Kernel, Unsupported
from graphopt.analysis.kernels.movement import MOVEMENT
from graphopt.ir import Node

KERNELS: dict[str, Kernel] = {**MOVEMENT, **ARITHMETIC}
"""The kernels, by `Node.op`."""

__all__ = ["KERNELS", "MOVEMENT", "Array", "Kernel", "Unsupported", "run_kernel"]


def run_kernel(node: Node, args: Sequence[Array | None]) -> list[Array]:
    """Compute a node.

    Args:
        node: the node.
        args: its inputs, None for omitted ones.

    Returns:
        One array per output of the node.

    Raises:
        Unsupported: there is no kernel for the operator, its version or these element types, or the inputs are
            not valid for it.
    """
    kernel = KERNELS.get(node.op)
    if kernel is None:
        raise Unsupported(f"{node.op} has no NumPy kernel")
    try:
        if node.op in MOVEMENT:
            result = kernel(node, list(args))
        else:
            # Integers wrap as in the runtime. Entering `errstate` is slow, so movement kernels run without it.
            with np.errstate(all="ignore"):
                result = kernel(node, list(args))
    except BROKEN as error:
        raise Unsupported(f"{node.op}: {error}") from error
    results = list(result) if isinstance(result, list) else [result]
    if node.op in ENTRIES:
        shapes, claims = ([None if a is None else a.shape for a in arrays] for arrays in (args, results))
        if doubts(Facts(node, shapes, claims, {}), own=True):
            raise Unsupported("the standard and ONNX Runtime disagree about the shape of the result")
    return results
