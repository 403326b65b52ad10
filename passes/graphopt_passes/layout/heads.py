"""Matrix products of a single row, as classifiers have them, made convolutions that the blocked kernels take."""

from __future__ import annotations

from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
from onnx import TensorProto

from graphopt.ir import Node, Value
from graphopt.match import Mismatch
from graphopt.rewrite import Level, Numerics, OpRule, Outcome, Rewriter
from graphopt.system.machine import host
from graphopt_passes.layout.nchwc import would_block

_BLOCKED = "com.microsoft.nchwc"
_FUSED = "com.microsoft::FusedGemm"
_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "": (), "Relu": (), "Sigmoid": (), "Tanh": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"),
}  # fmt: skip
"""What a FusedGemm may apply that is an operator of the same name too, and its parameters."""

_SMALLEST = {True: 1 << 8, False: 1 << 16}
"""Weights of fewer elements gain nothing, by whether the row comes from an image: if not, reorders are added."""


class ConvertGemmToConv(OpRule):
    """Compute `Gemm`, `MatMul` and `FusedGemm` of one row by a 1x1 `Conv` over one pixel, for the blocked layout.

    A product of one row is bound by reading its weights. The blocked convolution reads them in the order they are
    stored in; a `Gemm` packs them into a copy of its own at session start, which is most of the start of a small
    network. Only for rows that are one for certain, since the convolution would read its weights again for each one,
    and only where other convolutions of the model are blocked: a product alone should not tie a model to a target. An
    activation between two such products moves before the `Flatten`, so that nothing is reordered in between.
    """

    name = "convert_gemm_to_conv"
    ops = ("Gemm", "MatMul", _FUSED, *filter(None, _ACTIVATIONS))
    level = Level.LAYOUT
    numerics = Numerics.ROUNDING
    opsets = "7-"
    peers: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        self._planned: WeakKeyDictionary[Rewriter, bool] = WeakKeyDictionary()
        """Whether the model of a run is blocked: planning it anew for each product would be quadratic."""

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        """Replace one product."""
        if node.op in _ACTIVATIONS:
            return _before_flatten(node, rw)
        x, weight = node.input(0), node.input(1)
        if x is None or weight is None or x.dtype != TensorProto.FLOAT or len(x.shape or ()) != 2:
            return None
        problem = _problem(node, x, weight, rw)
        if problem is not None:
            return problem
        tensor = weight.constant_tensor
        assert tensor is not None
        transposed = bool(node.attr("transB", 0)) and node.op != "MatMul"
        outputs, inputs = tensor.dims if transposed else tensor.dims[::-1]
        bias = _bias(node, outputs)
        if isinstance(bias, Mismatch):
            return bias
        if rw not in self._planned:
            self._planned[rw] = _blocks_something(rw)
        if not self._planned[rw]:
            return Mismatch("no other convolution of the model is blocked")
        array = tensor.array() if transposed else np.ascontiguousarray(tensor.array().T)
        made = rw.constant(array.reshape(outputs, inputs, 1, 1), like=weight)
        image = _image(x)
        if image is None:
            image = rw.op("Reshape", x, np.array([1, inputs, 1, 1], np.int64))
        out = rw.op("Conv", image, made, bias, kernel_shape=(1, 1))
        name = str(node.attr("activation", "")) if node.op == _FUSED else ""
        if name:
            given: dict[str, Any] = {each: node.attrs.get(f"activation_{each}") for each in _ACTIVATIONS[name]}
            out = rw.op(name, out, **{each: value for each, value in given.items() if value is not None})
        return rw.replace(node, [rw.op("Flatten", out)])


def _problem(node: Node, x: Value, weight: Value, rw: Rewriter) -> Mismatch | None:
    """Why a product cannot be, or should not be, a convolution."""
    tensor = weight.constant_tensor
    if tensor is None or len(tensor.dims) != 2 or tensor.dtype != TensorProto.FLOAT:
        return Mismatch("{} is not a constant matrix of float32", weight.name)
    if x.shape is None or x.shape[0] != 1:
        return Mismatch("{} may have more than one row", x.name)
    if tensor.numel < _SMALLEST[_image(x) is not None] or min(tensor.dims) < 4:
        return Mismatch("{} is small", weight.name)
    if not weight.one_use:
        return Mismatch("{} has other readers", weight.name)
    if node.op != "MatMul" and (node.attr("transA", 0) or node.attr("alpha", 1.0) != 1):
        return Mismatch("the product is scaled or its row transposed")
    if node.op == _FUSED and str(node.attr("activation", "")) not in _ACTIVATIONS:
        return Mismatch("{} is no operator of its own", node.attr("activation", ""))
    if (rw.options.target or host()).block not in (8, 16):
        return Mismatch("the target has no blocked kernels")
    if rw.model.opset(_BLOCKED):
        return Mismatch("the model is in blocked layout already")
    return Mismatch("it is inside of a function") if node.graph.in_function else None


def _blocks_something(rw: Rewriter) -> bool:
    """Whether the model has convolutions that will be blocked: a product alone is not worth a model for one target."""
    return any(
        not graph.in_function
        and any(node.op in ("Conv", "com.microsoft::FusedConv") for node in graph)
        and would_block(graph, rw)
        for graph in rw.model.graphs()
    )


def _bias(node: Node, outputs: int) -> np.ndarray | Mismatch | None:
    """What is added, one number for each output."""
    value = node.input(2) if node.op != "MatMul" else None
    if value is None:
        return None
    array = value.const()
    if array is None or array.dtype != np.float32 or array.size not in (1, outputs) or array.shape[-1:] == ():
        return Mismatch("what is added, {}, is not a constant row", value.name)
    if array.size == outputs and array.shape[-1] != outputs:
        return Mismatch("what is added, {}, is not a constant row", value.name)
    scale = np.float32(node.attr("beta", 1.0))
    return np.array(np.broadcast_to(array.reshape(-1), (outputs,)) * scale)


def _image(x: Value) -> Value | None:
    """The image of one pixel that a row was flattened from."""
    producer = x.producer
    if producer is None or producer.op not in ("Flatten", "Reshape", "Squeeze") or producer.graph is not x.graph:
        return None
    source, shape = producer.inputs[0], x.shape
    if source is None or shape is None or len(shape) != 2:
        return None
    return source if source.shape == (1, shape[1], 1, 1) else None


def _before_flatten(node: Node, rw: Rewriter) -> Outcome:
    """Move an activation before the Flatten that it reads, when that reads a convolution."""
    x = node.input(0)
    image = _image(x) if x is not None else None
    if x is None or image is None or image.producer is None or image.producer.op != "Conv":
        return None
    if not x.one_use or not image.one_use:
        return Mismatch("{} has other readers", x.name if not x.one_use else image.name)
    if image.producer.graph is not node.graph or rw.model.opset(_BLOCKED) or node.graph.in_function:
        return None
    return rw.replace(node, [rw.op("Flatten", rw.op(node.op_type, image, **node.attrs))])
