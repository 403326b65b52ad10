"""Matrix products of a single row, as in classifiers, written as convolutions."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
from onnx import TensorProto

from graphopt.operators import Reduction
from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter, Value
from graphopt.system.machine import BLOCKS
from graphopt_passes.elementwise import ACTIVATIONS
from graphopt_passes.layout.blocks import DOMAIN, ForBlocks
from graphopt_passes.layout.nchwc import would_block

_FUSED = "com.microsoft::FusedGemm"

_SMALLEST = {True: 1 << 8, False: 1 << 16}
"""The least elements of weights, by whether the row comes from an image; if not, it is reordered."""


class ConvertGemmToConv(ForBlocks, OpRule):
    """Replace `Gemm`, `MatMul` and `FusedGemm` of one row with a 1x1 `Conv` over one pixel, for the blocked layout.

    A product of one row is bound by reading its weights. The blocked convolution reads them as they are stored; a
    `Gemm` packs a copy at session start. There must be known to be one row, and other convolutions of the model must be
    blocked: a product alone should not tie a model to a target. An activation between two such products moves before
    the `Flatten`, so that nothing is reordered in between.
    """

    ops = ("Gemm", "MatMul", _FUSED, *ACTIVATIONS)
    needs = (("Conv", "com.microsoft::FusedConv"),)

    def __init__(self) -> None:
        self._unblocked: WeakKeyDictionary[Rewriter, int] = WeakKeyDictionary()
        """By run, the number of rewrites after which its model was last found to have no convolution that will be
        blocked; other passes may make one. A new plan for each product would take quadratic time."""
        self._blocked: WeakSet[Rewriter] = WeakSet()
        """The runs whose model has a convolution that will be blocked."""

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        if node.op in ACTIVATIONS:
            return _before_flatten(node, rw)
        x, weight = node.operand(0), node.operand(1)
        if x.dtype != TensorProto.FLOAT or x.rank != 2:
            raise Decline
        self._check(node, rw)
        turned = node.op == "MatMul" or not node.attr("transB", 0)
        outputs, inputs = weight.sizes()[::-1] if turned else weight.sizes()
        bias = _bias(node, outputs)
        if not self._is_blocked(rw):
            raise Decline("no other convolution of the model is blocked")
        array = np.ascontiguousarray(weight.array().T) if turned else weight.array()
        made = rw.constant(array.reshape(outputs, inputs, 1, 1), like=weight)
        mean = _mean(x, node)
        image = _image(x) if mean is None else mean.keeping(True).write(rw)
        image = image or rw.op("Reshape", x, shape=(1, inputs, 1, 1))
        out = rw.op("Conv", image, made, bias, kernel_shape=(1, 1))
        name = str(node.attr("activation", "")) if node.op == _FUSED else ""
        if name:
            attrs: dict[str, Any] = {each: node.attrs.get(f"activation_{each}") for each in ACTIVATIONS[name]}
            out = rw.op(name, out, **attrs)
        return rw.replace(node, [rw.op("Flatten", out)])

    def _is_blocked(self, rw: Rewriter) -> bool:
        """Whether the model, as it is now, has convolutions that will be blocked."""
        rewrites = len(rw.log.events)
        if rw not in self._blocked and self._unblocked.get(rw) != rewrites:
            self._unblocked[rw] = rewrites
            if _blocks_something(rw):
                self._blocked.add(rw)
        return rw in self._blocked

    def _check(self, node: Node, rw: Rewriter) -> None:
        x, weight = node.operand(0), node.operand(1)
        tensor = weight.constant_tensor
        if tensor is None or len(tensor.dims) != 2 or tensor.dtype != TensorProto.FLOAT:
            raise Decline("{} is not a constant matrix of float32", weight.name)
        if x.dims()[0] != 1:
            raise Decline("{} may have more than one row", x.name)
        is_pixel = _image(x) is not None or _mean(x, node) is not None
        if tensor.numel < _SMALLEST[is_pixel] or min(tensor.dims) < 4:
            raise Decline("{} is small: already fast", weight.name)
        weight.check_one_use()
        if node.op != "MatMul" and (node.attr("transA", 0) or node.attr("alpha", 1.0) != 1):
            raise Decline("alpha is not 1, or transA is set")
        if node.op == _FUSED and str(node.attr("activation", "")) not in ("", *ACTIVATIONS):
            raise Decline("{} is not a separate operator", node.attr("activation", ""))
        if rw.target.block not in BLOCKS:
            raise Decline("the target has no blocked kernels")
        if rw.model.opset(DOMAIN):
            raise Decline("the model is in blocked layout already")
        if node.graph.in_function:
            raise Decline("it is inside of a function")


def _blocks_something(rw: Rewriter) -> bool:
    """Whether the model has convolutions that will be blocked: a product alone is not worth a model for one target."""
    return any(
        not graph.in_function
        and any(node.op in ("Conv", "com.microsoft::FusedConv") for node in graph)
        and would_block(graph, rw)
        for graph in rw.model.graphs()
    )


def _bias(node: Node, outputs: int) -> np.ndarray | None:
    value = node.input(2) if node.op != "MatMul" and node.attr("beta", 1.0) else None
    if value is None:
        return None
    array = value.const()
    fits = array is not None and array.dtype == np.float32 and array.ndim and array.size in (1, outputs)
    if array is None or not fits or (array.size == outputs and array.shape[-1] != outputs):
        raise Decline("the bias {} is not a constant row", value.name)
    return np.array(np.broadcast_to(array.reshape(-1), (outputs,)) * np.float32(node.attr("beta", 1.0)))


def _image(x: Value) -> Value | None:
    """The image of one pixel that a row was flattened from."""
    producer = x.made_by("Flatten", "Reshape", "Squeeze")
    if producer is None or producer.graph is not x.graph:
        return None
    source, dims = producer.operand(0), x.dims()
    return source if source.shape == (1, *dims[1:], 1, 1) and len(dims) == 2 else None


def _mean(x: Value, reader: Node) -> Reduction | None:
    """The mean over an image that computes a row, if `reader` is its only reader."""
    with suppress(Decline):
        mean = Reduction.of(x.sole_source("ReduceMean", reader=reader))
        if mean.axes == (2, 3) and mean.x.rank == 4 and not mean.keepdims:
            return mean
    return None


def _before_flatten(node: Node, rw: Rewriter) -> Outcome:
    """Move an activation before the Flatten that it reads, if that reads a convolution."""
    x = node.operand(0)
    image = _image(x) if x.rank == 2 else None
    if image is None or rw.model.opset(DOMAIN) or node.graph.in_function:
        raise Decline
    image.source("Conv", reader=node)
    x.check_one_use()
    image.check_one_use()
    return rw.replace(node, [rw.op("Flatten", rw.again(node, image))])
