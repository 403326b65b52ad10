"""Transposes that move nothing."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphopt.ir import Dim, Node
from graphopt.rewrite import Mismatch, OpRule, Outcome, Rewriter


class EliminateNopTranspose(OpRule):
    """Remove `Transpose` whose permutation leaves every element where it is.

    That is the identity permutation, and one that only moves axes of size 1 among axes of size 1.
    """

    name = "eliminate_nop_transpose"
    ops = ("Transpose",)
    peers: ClassVar[dict[str, str]] = {
        "onnxoptimizer": "eliminate_nop_transpose",
        "onnxsim": "eliminate_nop_transpose",
        "onnxscript": "TransposeIdentity",
    }

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look at the permutation, which reverses the axes when left out."""
        x = node.inputs[0]
        if x is None:
            return None
        perm = node.attr("perm")
        if perm is None:
            if x.rank is None:
                return Mismatch("the rank of {} is not known", x.name)
            perm = tuple(reversed(range(x.rank)))
        shape = x.shape
        if all(at == axis or (shape is not None and shape[at] == shape[axis] == 1) for at, axis in enumerate(perm)):
            return rw.replace(node, [x])
        if _keeps_order(perm, shape):
            return Mismatch("it moves an axis of size 1 past others, which is a Reshape")
        return None


class ConvertTransposeToReshape(OpRule):
    """Turn a `Transpose` that only moves axes of size 1 past others into a `Reshape`, which copies nothing.

    The new shape must be known: sizes that are not fixed stay at their axis, or only one is not fixed.
    """

    name = "convert_transpose_to_reshape"
    ops = ("Transpose",)
    opsets = "9-"  # below, an old model cannot hold a new constant of integers
    peers: ClassVar[dict[str, str]] = {"onnxslim": "EliminationTransposeAsReshape"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Look at the order of the longer axes."""
        x = node.inputs[0]
        if x is None or x.shape is None:
            return None
        perm = node.attr("perm", tuple(reversed(range(len(x.shape)))))
        if not _keeps_order(perm, x.shape) or perm == tuple(range(len(perm))):
            return None
        y = node.outputs[0]
        if y is not None and y.users and not y.output_count and all(user.op == "Gemm" for user in y.users):
            return Mismatch("{} is only read by Gemm, which can transpose it", y.name)
        sizes = _sizes(perm, x.shape)
        if sizes is None:
            return Mismatch("the sizes of {} are not known well enough", x.name)
        return rw.replace(node, [rw.op("Reshape", x, np.array(sizes, np.int64))])


def _sizes(perm: tuple[int, ...], shape: tuple[Dim, ...]) -> list[int] | None:
    """What to ask a Reshape for; None where that cannot be said."""
    if 0 in shape:
        return None
    open_axes = [axis for axis, dim in enumerate(shape) if not isinstance(dim, int)]
    sizes: list[int] = []
    for at, axis in enumerate(perm):
        dim = shape[axis]
        if isinstance(dim, int):
            sizes.append(dim)
        elif at == axis:
            sizes.append(0)
        elif len(open_axes) == 1:
            sizes.append(-1)
        else:
            return None
    return sizes


def _keeps_order(perm: tuple[int, ...], shape: tuple[Dim, ...] | None) -> bool:
    """Whether the axes that may be longer than 1 stay in order."""
    long = [axis for axis in perm if shape is None or shape[axis] != 1]
    return long == sorted(long)
