"""A known result in the place of the node that computes it."""

from __future__ import annotations

import numpy as np

from graphopt.ir import Node, Tensor, Value
from graphopt.rewrite import Outcome, Rewriter


def store(rw: Rewriter, node: Node, results: list[np.ndarray | None]) -> Outcome:
    """Replace a node by what its outputs hold: initializers, or `Constant` nodes where a graph puts them out.

    Args:
        rw: the gate, begun at the node.
        node: the node.
        results: one array for each output; None for outputs that nothing uses.
    """
    values: list[Value | None] = []
    for value, array in zip(node.outputs, results, strict=True):
        if value is None or array is None:
            values.append(None)
        elif value.output_count:
            values.append(rw.op("Constant", value=Tensor.from_array(array)))
        else:
            values.append(rw.constant(array))
    return rw.replace(node, values)
