"""Optionals: replaced if it is known whether they have an element."""

from __future__ import annotations

import numpy as np

from graphopt.errors import Decline
from graphopt.ir import Node, Tensor
from graphopt.opsets import automatic
from graphopt.opsets.changes import Change
from graphopt.opsets.meanings.registry import Step, down
from graphopt.opsets.types import text
from graphopt.rewrite import Rewriter


@down(15, "OptionalGetElement", "OptionalHasElement")
@down(18, "OptionalGetElement", "OptionalHasElement")
def there_or_not(node: Node, change: Change, rw: Rewriter) -> Step:
    """Resolve the node for a tensor, a sequence, or a missing input; an optional itself needs opset 15."""
    x = node.input(0)
    kind = "nothing" if x is None else text(x.type)
    if x is not None and kind is None and not node.graph.in_function:  # there, types are checked for all calls
        raise Decline("the type of {} is not known", x.name)
    if kind is None or kind.startswith("optional"):
        if change.before is None:
            raise Decline("there is no {} before opset {}", node.op_type, change.version)
        return automatic.down(node, change, rw)
    if node.op_type == "OptionalGetElement":
        given = node.operand(0)
        if given.is_const:  # kept hidden from readers: the runtime refuses to load a division by a constant 0
            rw.replace(node, [rw.op("Identity", given)])
        else:
            rw.pass_on(node, given)
    else:
        rw.replace(node, [rw.op("Constant", value=Tensor.from_array(np.asarray(x is not None)))])
    return None
