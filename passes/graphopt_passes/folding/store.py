"""Constants as initializers, the form that all other passes and runtimes read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphopt.ir import Tensor, Value
from graphopt.ir.flush import IR_WITH_FREE_INITIALIZERS
from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter


def store(rw: Rewriter, node: Node, results: Sequence[np.ndarray | Tensor | None]) -> Outcome:
    """Replace a node with constants: initializers, or `Constant` nodes for graph outputs.

    `results` may be None for an unused output.
    """
    values: list[Value | None] = []
    for value, result in zip(node.outputs, results, strict=True):
        if value is None or result is None or not value.uses:
            values.append(None)
        elif value.output_count:
            values.append(rw.op("Constant", value=result))
        else:
            values.append(rw.constant(result))
    return rw.replace(node, values)


class ExtractConstantToInitializer(OpRule):
    """Replace `Constant` nodes with initializers, whichever attribute states the value.

    They stay where initializers are not available (in functions, and before IR version 4), as graph outputs, and if
    sparse.
    """

    ops = ("Constant",)
    peers = {"onnxoptimizer": "extract_constant_to_initializer", "onnxscript": "LiftConstantsToInitializersPass"}

    def rewrite(self, node: Node, rw: Rewriter) -> Outcome:
        if node.graph.in_function:
            raise Decline("a function has no initializers")
        if rw.model.ir_version < IR_WITH_FREE_INITIALIZERS:
            raise Decline("before IR version 4 an initializer has to be an input")
        tensor = node.constant_tensor()
        if tensor is None:
            raise Decline("the constant is sparse or refers to an attribute")
        return rw.replace(node, [rw.constant(tensor)])
