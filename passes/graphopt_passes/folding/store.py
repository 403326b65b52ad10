"""A known result in the place of the node that computes it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphopt.ir import Node, Tensor, Value
from graphopt.rewrite import Outcome, Rewriter


def store(rw: Rewriter, node: Node, results: Sequence[np.ndarray | Tensor | None]) -> Outcome:
    """Replace a node by what its outputs hold: initializers, or `Constant` nodes where a graph puts them out.

    An output that nothing uses may hold None.
    """
    values: list[Value | None] = []
    for value, result in zip(node.outputs, results, strict=True):
        if value is None or result is None or not value.uses:
            values.append(None)
        elif value.output_count:
            values.append(rw.op("Constant", value=result if isinstance(result, Tensor) else Tensor.from_array(result)))
        else:
            values.append(rw.constant(result))
    return rw.replace(node, values)
