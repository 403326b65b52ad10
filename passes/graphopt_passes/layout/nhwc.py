"""Channels last, for ONNX Runtime's kernels on quantized images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from onnx import TensorProto

from graphopt.errors import Decline
from graphopt.ir import Graph, Node, TensorType, Value
from graphopt.rewrite import GraphPass, Level, Numerics, Rewriter

_DOMAIN = "com.microsoft"
_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
_UNARY = frozenset({
    "Clip", "DequantizeLinear", "HardSigmoid", "HardSwish", "LeakyRelu", "QuantizeLinear", "Relu", "Sigmoid", "Tanh",
    "com.microsoft::QLinearLeakyRelu", "com.microsoft::QLinearSigmoid",
})  # fmt: skip
"""Operators on each element alone; their other inputs are numbers."""
_BINARY = frozenset({"com.microsoft::QLinearAdd", "com.microsoft::QLinearMul"})
_CONCATS = {"Concat": (0, 1), "com.microsoft::QLinearConcat": (2, 3)}
"""Where what is joined begins among the operands, and how many each part has."""
_POOLS = frozenset({"com.microsoft::QLinearAveragePool", "com.microsoft::QLinearGlobalAveragePool"})


class ConvertLayoutNhwc(GraphPass):
    """Let quantized convolutions, and what lies between them, work on images with channels last.

    `QLinearConv` becomes the one of `com.microsoft`, which has kernels for that order, between transposes; these are
    left out between operators that keep the order or do not care for it. The numbers are the same.
    """

    name = "convert_layout_nhwc"
    level = Level.ALL
    numerics = Numerics.EXACT
    opsets = "10-"
    peers: ClassVar[dict[str, str]] = {"onnxruntime": "NhwcTransformer"}

    def run(self, graph: Graph, rw: Rewriter) -> None:
        """Convert the operators of one graph in order."""
        if graph.is_function or not any(node.op == "QLinearConv" for node in graph):
            return
        images = _ChannelsLast(rw)
        for node in list(graph):
            if rw.log.full:
                break
            if not node.removed:
                rw.begin(self.name, node)
                with rw.attempt(node):
                    images.convert(node)


class _ChannelsLast:
    """Makes nodes on images with channels last.

    Args:
        rw: the gate.
    """

    def __init__(self, rw: Rewriter) -> None:
        self.rw = rw
        self._last: dict[Value, Value] = {}
        """Values with channels last, by those with channels second that they stand for."""

    def convert(self, node: Node) -> None:
        """Replace a node by its form with channels last.

        Raises:
            Decline: it has none.
        """
        entered: dict[Value, Value] = {}
        made = self._convolution(node, entered) if node.op == "QLinearConv" else self._between(node)
        old = node.result
        if isinstance(old.type, TensorType):
            shape = old.type.shape
            ordered = None if shape is None else tuple(shape[axis] for axis in _LAST)
            made.type = TensorType(old.type.dtype, ordered)
        first = self.rw.op("Transpose", made, perm=_FIRST)
        self.rw.replace(node, [first])
        self._last |= {**entered, first: made}

    def _known(self, value: Value | None) -> Value:
        """The value with channels last.

        Raises:
            Decline: it is not known so.
        """
        last = self._last.get(value) if value is not None else None
        if last is None:
            raise Decline
        return last

    def _convolution(self, node: Node, entered: dict[Value, Value]) -> Value:
        x, tensor = node.operand(0), node.operand(3).constant_tensor
        if tensor is None or len(tensor.dims) != 4:
            raise Decline
        image = self._last.get(x)
        if image is None:
            image = entered[x] = self.rw.op("Transpose", x, perm=_LAST)
        return self._made("QLinearConv", [image, *node.inputs[1:]], {**node.attrs, "channels_last": 1})

    def _between(self, node: Node) -> Value:
        """The form of an operator that reads values with channels last already."""
        if node.op in _CONCATS:
            return self._concat(node)
        data, rest = self._known(node.input(0)), node.inputs[1:]
        if len(node.outputs) != 1:
            raise Decline
        if node.op in _UNARY:
            return self._unary(node, data)
        if node.op in _BINARY:
            return self._made(node.op_type, [data, *rest[:2], self._known(rest[2]), *rest[3:]], node.attrs)
        if node.op in _POOLS:
            return self._made(node.op_type, [data, *rest], {**node.attrs, "channels_last": 1})
        if node.op == "MaxPool" and data.dtype in (TensorProto.UINT8, TensorProto.INT8):
            return self._made("NhwcMaxPool", [data], {k: v for k, v in node.attrs.items() if k != "storage_order"})
        raise Decline

    def _concat(self, node: Node) -> Value:
        start, step = _CONCATS[node.op]
        operands, axis = list(node.inputs), int(node.attr("axis", 1))
        for at in range(start, len(operands), step):
            operands[at] = self._known(operands[at])
        attrs = {**node.attrs, "axis": _LAST.index(axis % len(_LAST))}
        return self._made(node.op_type, operands, attrs, node.domain)

    def _unary(self, node: Node, data: Value) -> Value:
        parameters = [value for value in node.inputs[1:] if value is not None]
        if any(value.constant_tensor is None or math.prod(value.constant_tensor.dims) != 1 for value in parameters):
            raise Decline
        if node.op == "DequantizeLinear" and not _read_by_unary(node.result):
            raise Decline  # rather transpose bytes than floats
        return self._made(node.op_type, [data, *node.inputs[1:]], node.attrs, node.domain)

    def _made(self, op_type: str, inputs: list[Value | None], attrs: Mapping[str, Any], domain: str = _DOMAIN) -> Value:
        made: Value = self.rw.op(op_type, *inputs, domain=domain, **attrs)
        return made


def _read_by_unary(value: Value) -> bool:
    return not value.is_output and all(user.op in _UNARY for user in value.users)
