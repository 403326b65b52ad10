"""Symbolic shapes: sizes as expressions over symbols, propagated through a whole model."""

from graphopt.analysis.shapes import contrib, control, data, elementwise, linear, models, movement, reduce, sequence
from graphopt.analysis.shapes.dim import Atom, Expr, Size, Symbols, at_least, bounds, divide, equal, less
from graphopt.analysis.shapes.engine import DATA_RULES, MAX_ELEMENTS, SHAPE_RULES, Shape, ShapeAnalysis

for _module in (elementwise, movement, linear, reduce, models, sequence, control, contrib):
    SHAPE_RULES.update(_module.RULES)

DATA_RULES.update({**data.RULES, **control.DATA})

__all__ = [
    "MAX_ELEMENTS", "Atom", "Expr", "Shape", "ShapeAnalysis", "Size", "Symbols", "at_least", "bounds", "divide",
    "equal", "less",
]  # fmt: skip
