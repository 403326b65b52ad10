"""Operator views: the forms of an operator over all opsets, read into one normal form and written back.

A view's `of` reads a node at any opset, and raises `Decline` if the node is another operator, or a required operand or
size is not constant or not known. Its `write` builds the operator in the form of the target graph's opset. Views also
have a small algebra: `then` composes two operators in a row. `Einsum`, `Pool`, `Scan` and `Window` are read-only.

Operators that are linear in a constant weight have several views: `linear` scales and shifts results, `layer` finds the
channels that are read and computed, `rows` has the terms of each output, `product` treats rows as pixels of an image,
`branch` adds convolutions, and `phases` decomposes transposed convolutions.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphopt.operators.axes import Squeeze, Unsqueeze
    from graphopt.operators.bounds import Bounds
    from graphopt.operators.builder import NodeBuilder
    from graphopt.operators.concat import Concat
    from graphopt.operators.gather import Gather
    from graphopt.operators.pad import Pad
    from graphopt.operators.pool import Pool
    from graphopt.operators.reduce import Reduction
    from graphopt.operators.reshape import Reshape
    from graphopt.operators.resize import Resize
    from graphopt.operators.selection import Selection
    from graphopt.operators.sequence import Elements
    from graphopt.operators.shape import Shape
    from graphopt.operators.slice import Cut, Slice
    from graphopt.operators.softmax import Softmax
    from graphopt.operators.split import Split
    from graphopt.operators.transpose import Transpose
    from graphopt.operators.window import Window

_PLACES = {
    "Bounds": "bounds", "Concat": "concat", "Cut": "slice", "Elements": "sequence", "Gather": "gather",
    "NodeBuilder": "builder", "Pad": "pad", "Pool": "pool", "Reduction": "reduce", "Reshape": "reshape",
    "Resize": "resize", "Selection": "selection", "Shape": "shape", "Slice": "slice", "Softmax": "softmax",
    "Split": "split", "Squeeze": "axes", "Transpose": "transpose", "Unsqueeze": "axes", "Window": "window",
}  # fmt: skip
"""The module of each view: modules are imported on first use, since few models have all of these operators."""

__all__ = [
    "Bounds", "Concat", "Cut", "Elements", "Gather", "NodeBuilder", "Pad", "Pool", "Reduction", "Reshape", "Resize",
    "Selection", "Shape", "Slice", "Softmax", "Split", "Squeeze", "Transpose", "Unsqueeze", "Window",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'graphopt.operators' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"graphopt.operators.{place}"), name)
    return found
