"""Static analysis of graphs: types, symbolic shapes, constant values, purity."""

from graphopt.analysis.nodes import infer_node
from graphopt.analysis.purity import QDQ, has_side_effects, is_deterministic, is_removable, may_fold, why_not_fold
from graphopt.analysis.shapes import Expr, Shape, ShapeAnalysis, Size
from graphopt.analysis.types import infer_types

__all__ = [
    "QDQ", "Expr", "Shape", "ShapeAnalysis", "Size", "has_side_effects", "infer_node", "infer_types",
    "is_deterministic", "is_removable", "may_fold", "why_not_fold",
]  # fmt: skip
