"""Transposes moved to where they cost the least."""

from __future__ import annotations

from collections import deque

from graphopt.operators.transpose import Transpose
from graphopt.rewrite import Decline, Graph, GraphPass, Node, Numerics, Rewriter


class MoveTransposes(GraphPass):
    """Move `Transpose` nodes before or after the operators around them, so that the fewest bytes are transposed.

    The operators around a `Transpose` that commute with it, towards inputs and outputs, are considered together:
    elementwise and broadcasting operators, `Concat`, `Split`, `Slice`, `Pad`, `Gather`, `Tile`, `Expand`, `Squeeze`,
    `Unsqueeze`, `Resize`, `CumSum`, `TopK`, reductions, `ArgMax`, `ArgMin`, softmax, quantization, and matrix products
    and normalizations whose axes stay in place. A minimum cut decides which of them work in the permuted axis order. No
    operator that works along the contiguous axis is made to work along a strided one.
    """

    ops = ("Transpose", "Reshape")
    opsets = "7-"
    late = True  # its regions are large, and smaller after other passes
    numerics = Numerics.ROUNDING  # reductions add in another order
    peers = {
        "onnxruntime": ("TransposeOptimizer", "TransposeOptimizer_CPUExecutionProvider"),
        "onnxslim": "EliminationTransposeViewTranspose",
    }

    def run(self, graph: Graph, rw: Rewriter) -> None:
        seeds = deque([node for op in self.ops for node in graph.listed() if node.op == op])
        if any(map(_moves_axes, seeds)):
            from graphopt_passes.fusion.transposes.turning import turn  # most convolutional networks only flatten

            turn(graph, seeds, rw, self.name)


def _moves_axes(node: Node) -> bool:
    try:
        return not Transpose.of_either(node).moves_nothing
    except Decline:
        return False
