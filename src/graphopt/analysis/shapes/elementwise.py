"""Output shapes of elementwise operators, and of operators that keep the shape of their first input."""

from __future__ import annotations

from graphopt.analysis.kernels import Unsupported
from graphopt.analysis.shapes.engine import Rule, Shape, ShapeAnalysis
from graphopt.ir import Node
from graphopt.ir.forms import BROADCASTING

_LIKE_FIRST = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Bernoulli", "BitwiseNot", "Cast", "CastLike",
    "Ceil", "Celu", "Clip", "Cos", "Cosh", "CumProd", "CumSum", "DequantizeLinear", "Elu", "Erf", "Exp",
    "EyeLike", "Floor", "Gelu", "GroupNormalization", "HardSigmoid", "HardSwish", "Hardmax", "Identity",
    "InstanceNormalization", "IsInf", "IsNaN", "LRN", "LeakyRelu", "Log", "LogSoftmax", "LpNormalization",
    "MeanVarianceNormalization", "Mish", "Neg", "Not", "PRelu", "QuantizeLinear", "RMSNormalization",
    "RandomNormalLike", "RandomUniformLike", "Reciprocal", "Relu", "ReverseSequence", "Round", "Scatter",
    "ScatterElements", "ScatterND", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax",
    "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "TensorScatter", "ThresholdedRelu", "Trilu",
    "com.microsoft::BiasGelu", "com.microsoft::DequantizeLinear", "com.microsoft::FastGelu",
    "com.microsoft::Gelu", "com.microsoft::GroupNorm", "com.microsoft::QLinearLeakyRelu",
    "com.microsoft::QLinearSigmoid", "com.microsoft::QLinearSoftmax", "com.microsoft::QuantizeLinear",
    "com.microsoft::BranchwiseRMSNorm", "com.microsoft::QuickGelu",
)  # fmt: skip


def like_first(analysis: ShapeAnalysis, node: Node) -> Shape:
    """The shape of the first input."""
    return analysis.need(node, 0)


def _broadcasting(analysis: ShapeAnalysis, node: Node) -> Shape:
    first = analysis.need(node, 0)
    if len(node.inputs) == 2:
        second = analysis.need(node, 1)
        if first == second:
            return first
    if not node.graph.broadcasts(node.op):
        return first
    return analysis.broadcast([analysis.need(node, i) for i in range(len(node.inputs))])


def _dropout(analysis: ShapeAnalysis, node: Node) -> list[Shape | None]:
    shape = analysis.need(node, 0)
    return [shape, shape]


def _batch_normalization(analysis: ShapeAnalysis, node: Node) -> list[Shape | None]:
    shape = analysis.need(node, 0)
    statistics: Shape | None = shape[1:2] if len(shape) > 1 else None
    return [shape] + [statistics] * 4


def normalized(analysis: ShapeAnalysis, node: Node) -> list[Shape | None]:
    """The shape of the first input, and for statistics the same with normalized axes of size 1."""
    shape = analysis.need(node, 0)
    axis = node.attr("axis", -1)
    if not -len(shape) <= axis < len(shape):
        raise Unsupported(f"axis {axis}")
    axis %= len(shape)
    statistics = shape[:axis] + (1,) * (len(shape) - axis)
    return [shape, statistics, statistics]


def _skip_normalization(analysis: ShapeAnalysis, node: Node) -> list[Shape | None]:
    shape = analysis.need(node, 0)
    return [shape, None, None, shape]


def _quantized_binary(analysis: ShapeAnalysis, node: Node) -> Shape:
    return analysis.broadcast([analysis.need(node, 0), analysis.need(node, 3)])


def _dynamic_quantize(analysis: ShapeAnalysis, node: Node) -> list[Shape | None]:
    return [analysis.need(node, 0), (), ()]


RULES: dict[str, Rule] = {
    **dict.fromkeys(_LIKE_FIRST, like_first),
    **dict.fromkeys(BROADCASTING, _broadcasting),
    "BatchNormalization": _batch_normalization,
    "Dropout": _dropout,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "LayerNormalization": normalized,
    "com.microsoft::QLinearAdd": _quantized_binary,
    "com.microsoft::QLinearMul": _quantized_binary,
    "com.microsoft::SkipLayerNormalization": _skip_normalization,
    "com.microsoft::SkipSimplifiedLayerNormalization": _skip_normalization,
}
