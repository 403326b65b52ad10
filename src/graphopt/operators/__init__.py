"""Operator views: each operator with several forms over the opsets, read into one normal form and written back.

A view's `of` reads a node at whatever opset its graph has and raises `Decline` where the node is none of its kind, or
where something that it needs is not constant or not known. Its `write` makes the operator in the form of the opset of
the graph that it is written into. In between there is small algebra: what two in a row are together.
`Einsum`, `Pool`, `Scan`, `Softmax` and `Window` are only read.

What is linear in a constant weight is seen from several sides: `linear` scales and shifts its results, `layer` counts
the channels that it reads and makes, `rows` sums up the terms of each output, `product` has rows as pixels of an image,
`branch` adds convolutions up, and `phases` makes convolutions of transposed ones.
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
"""The module of each: a model seldom has all of these operators, and only what it has is imported."""

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
