"""Channels last, for ONNX Runtime's kernels on quantized images, rows and volumes."""

from __future__ import annotations

from onnx import TensorProto

from graphopt.ir import Graph, Node
from graphopt.rewrite import GraphPass, Level, Numerics, Rewriter

BYTES = (TensorProto.UINT8, TensorProto.INT8)


class ConvertLayoutNhwc(GraphPass):
    """Convert quantized convolutions, and the operators between them, to channels last.

    On images, rows and volumes. `QLinearConv` becomes the one of `com.microsoft`, which has kernels for that order.
    Each node of a graph keeps the order or changes it, such that kernels and transposes take the least time by the
    rates of `graphopt tune`. An average pool whose window may be larger than its image keeps its order: the kernel for
    channels last divides by zero there.
    """

    ops = ("MaxPool", "QLinearConv", "com.microsoft::QLinearAveragePool", "com.microsoft::QLinearConv")
    level = Level.ALL
    numerics = Numerics.EXACT
    opsets = "10-"
    peers = {"onnxruntime": "NhwcTransformer"}

    def run(self, graph: Graph, rw: Rewriter) -> None:
        if graph.is_function or not any(map(gains, graph)):
            return
        from graphopt_passes.layout.nhwc_plan import convert  # many networks have pools, few have pools of bytes

        convert(graph, rw)


def gains(node: Node) -> bool:
    """Whether a node is faster with channels last, whatever the nodes around it."""
    if node.op_type in ("QLinearConv", "QLinearAveragePool"):
        return not node.attr("channels_last", 0)
    return node.op == "MaxPool" and node.operand(0).dtype in BYTES
