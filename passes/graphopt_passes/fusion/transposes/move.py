"""Transposes where they cost the least."""

from __future__ import annotations

from collections import deque

from graphopt.operators.transpose import Transpose
from graphopt.rewrite import Decline, Graph, GraphPass, Node, Numerics, Rewriter


class MoveTransposes(GraphPass):
    """Do `Transpose` nodes before or after the operators around them, where the least is left to transpose.

    All that can work on permuted inputs is looked at together, around each `Transpose`, towards the inputs and the
    outputs: elementwise and broadcasting operators, `Concat`, `Split`, `Slice`, `Pad`, `Gather`, `Tile`, `Expand`,
    `Squeeze`, `Unsqueeze`, `Resize`, `CumSum`, `TopK`, reductions, positions of extremes, softmax, quantization, and
    matrix products and normalizations whose axes stay in place. A minimum cut finds for which of them to change the
    order of axes, so that the fewest bytes are transposed. None will work along an axis whose elements lie apart where
    they lay together.
    """

    ops = ("Transpose", "Reshape")
    opsets = "7-"
    late = True  # it looks far around, and others leave it less to look at
    numerics = Numerics.ROUNDING  # reductions add up in another order
    peers = {
        "onnxruntime": ("TransposeOptimizer", "TransposeOptimizer_CPUExecutionProvider"),
        "onnxslim": "EliminationTransposeViewTranspose",
    }

    def run(self, graph: Graph, rw: Rewriter) -> None:
        seeds = deque([node for op in self.ops for node in graph.listed() if node.op == op])
        if any(map(_moves_axes, seeds)):
            from graphopt_passes.fusion.transposes.turning import turn  # networks of convolutions only flatten

            turn(graph, seeds, rw, self.name)


def _moves_axes(node: Node) -> bool:
    try:
        return not Transpose.of_either(node).moves_nothing
    except Decline:
        return False
