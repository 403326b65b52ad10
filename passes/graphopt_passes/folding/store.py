"""Constants as initializers, the form that every other pass and runtime reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphopt.ir import Tensor, Value
from graphopt.ir.flush import IR_WITH_FREE_INITIALIZERS
from graphopt.rewrite import Decline, Node, OpRule, Outcome, Rewriter


def store(rw: Rewriter, node: Node, results: Sequence[np.ndarray | Tensor | None]) -> Outcome:
    """Replace a node by what its outputs hold: initializers, or `Constant` nodes where a graph puts them out.

    An output that nothing uses may hold None.
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
    """Turn `Constant` nodes into initializers, whichever attribute states the value.

    Kept where there are no initializers (functions, and models before IR version 4), where the constant is a graph
    output, and for sparse constants.
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
