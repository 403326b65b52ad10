"""Networks in half precision, on processors whose kernels compute in float32."""

from __future__ import annotations

from graphopt.ir import HALF_TYPES, Graph, Node
from graphopt.rewrite import GraphPass, Level, Numerics, Rewriter


class ConvertFloat16ToFloat32(GraphPass):
    """Convert half precision to float32, weights included, on processors without kernels for half precision.

    On x86 ONNX Runtime casts the operands of every `Conv`, `MatMul` and most others to float32, and leaves out the
    roundings between two of them. Only its optimizer stores the weights in that type, and fusions and blocks are for
    float32 alone. Inputs and outputs of the model stay as they are; operators that only move data, and `Attention` with
    a large cache, keep the type that takes the fewest casts. The constants of `Gelu`, such as the square root of 2,
    regain the digits that half precision took. A network in bfloat16, for which the runtime has no kernels of products
    and inserts no casts, runs only after this.
    """

    ops = ("Conv", "ConvTranspose", "GRU", "Gemm", "LSTM", "MatMul", "RNN", "com.microsoft::MatMulNBits")
    level = Level.ALL
    numerics = Numerics.ROUNDING
    opsets = "7-"
    peers = {"onnxsim": "float16_to_float32"}

    def run(self, graph: Graph, rw: Rewriter) -> None:
        if graph.is_function or not rw.target.is_x86 or not any(map(_reads_halves, graph.listed())):
            return
        from graphopt_passes.layout.widening import widen  # few networks are in half precision

        widen(graph, self.ops, rw)


def _reads_halves(node: Node) -> bool:
    for value in node.inputs:  # noqa: SIM110 -- runs for every node of every model, and a generator is slower
        if value is not None and value.dtype in HALF_TYPES:
            return True
    return False
