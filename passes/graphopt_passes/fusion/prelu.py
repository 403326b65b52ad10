"""PRelu with one slope."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from onnx import TensorProto

from graphopt.ir import Node
from graphopt.rewrite import Mismatch, Numerics, OpRule, Outcome, Rewriter


class ReplacePreluWithLeakyRelu(OpRule):
    """Replace a `PRelu` whose slope is one constant number by `LeakyRelu`.

    ONNX Runtime computes the first element by element, the second in vectors and inside of convolutions. For float32.
    """

    name = "replace_prelu_with_leaky_relu"
    ops = ("PRelu",)
    opsets = "7-"
    numerics = Numerics.EXACT
    peers: ClassVar[dict[str, str]] = {}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Read the slope, which may be written once for each channel."""
        x, slope = node.input(0), node.input(1)
        tensor = slope.constant_tensor if slope is not None else None
        if x is None or slope is None:
            return None
        if tensor is None:
            return Mismatch("the slope {} is not constant", slope.name)
        if x.dtype != TensorProto.FLOAT or tensor.dtype != TensorProto.FLOAT:
            return Mismatch("the element type of {} is not float32", x.name)
        if x.rank is None or len(tensor.dims) > x.rank:
            return Mismatch("the rank of {} is not known to be that of the result", x.name)
        numbers = tensor.array().reshape(-1)
        if not len(numbers) or not np.isfinite(numbers[0]) or (numbers != numbers[0]).any():
            return Mismatch("{} is not one finite number", slope.name)
        if len(numbers) > 1 and not _fits(tensor.dims, x.shape or ()):
            return Mismatch("{} is not known to have the shape {} broadcasts to", x.name, slope.name)
        return rw.replace(node, [rw.op("LeakyRelu", x, alpha=float(numbers[0]))])


def _fits(dims: tuple[int, ...], shape: tuple[object, ...]) -> bool:
    """Whether a slope leaves the shape of what it is for as it is; the runtime refuses others, or enlarges it."""
    return all(size in (1, dim) for size, dim in zip(dims[::-1], shape[::-1], strict=False))
