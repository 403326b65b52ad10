"""Operators whose results are no longer, along any axis, than their operands; all others may state a size."""

from __future__ import annotations

_ELEMENTWISE = frozenset({
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BatchNormalization", "Bernoulli",
    "BitCast", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil", "Celu",
    "Clip", "Cos", "Cosh", "CumProd", "CumSum", "DequantizeLinear", "Div", "Dropout", "DynamicQuantizeLinear", "Elu",
    "Equal", "Erf", "Exp", "EyeLike", "Floor", "Gelu", "Greater", "GreaterOrEqual", "GroupNormalization",
    "HardSigmoid", "HardSwish", "Hardmax", "Identity", "InstanceNormalization", "IsInf", "IsNaN", "LRN",
    "LayerNormalization", "LeakyRelu", "Less", "LessOrEqual", "Log", "LogSoftmax", "LpNormalization", "Max", "Mean",
    "MeanVarianceNormalization", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "QuantizeLinear",
    "RMSNormalization", "RandomNormalLike", "RandomUniformLike", "Reciprocal", "RegexFullMatch", "Relu",
    "ReverseSequence", "RotaryEmbedding", "Round", "Scatter", "ScatterElements", "ScatterND", "Selu", "Shrink",
    "Sigmoid", "Sign", "Sin", "Sinh", "Softmax", "Softplus", "Softsign", "Sqrt", "StringConcat", "Sub", "Sum", "Swish",
    "Tan", "Tanh", "TensorScatter", "ThresholdedRelu", "Trilu", "Where", "Xor",
})  # fmt: skip
"""Operators whose results have the shape that their operands broadcast to."""

_SMALLER = frozenset({
    "ArgMax", "ArgMin", "Compress", "Det", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool",
    "NegativeLogLikelihoodLoss", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "SequenceLength", "Shape", "Size", "Slice",
    "SoftmaxCrossEntropyLoss", "Split", "SplitToSequence", "TopK",
})  # fmt: skip
"""Operators that return a part of their operands, or a property of them."""

_UNTOLD = frozenset({"ConcatFromSequence", "NonMaxSuppression", "NonZero", "StringSplit", "Unique"})
"""Operators whose results have lengths that depend on data."""

_REARRANGED = frozenset({
    "Attention", "Concat", "Einsum", "Gather", "GatherElements", "GatherND", "Gemm", "MatMul", "MatMulInteger",
    "QLinearMatMul", "Squeeze", "Transpose", "Unsqueeze", "com.microsoft::FusedGemm", "com.microsoft::FusedMatMul",
})  # fmt: skip
"""Operators whose axes are axes of their operands. `Concat` adds some of them, which is counted elsewhere."""

_HOLDING = frozenset({
    "Constant", "If", "Loop", "Optional", "OptionalGetElement", "OptionalHasElement", "Scan", "SequenceAt",
 "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceMap",
})  # fmt: skip
"""Operators that hold data, weights or graphs, whose sizes are bounded by the file."""

NEVER_LONGER = _ELEMENTWISE | _SMALLER | _UNTOLD | _REARRANGED | _HOLDING
"""Operators whose results contain no vector longer than their operands: a list of safe operators."""

_PADDED = (
    "AveragePool", "Conv", "ConvInteger", "DeformConv", "LpPool", "MaxPool", "QLinearConv",
    "com.microsoft.nchwc::AveragePool", "com.microsoft.nchwc::Conv", "com.microsoft.nchwc::MaxPool",
    "com.microsoft::FusedConv",
)  # fmt: skip

SIZES_IN_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_PADDED, ("pads",)),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), ("hidden_size",)),
    "MaxUnpool": ("strides", "kernel_shape"),
    "Pad": ("pads", "paddings"),
    "Upsample": ("scales",),
}
"""Operators whose results grow by the amounts in some attributes, or in the operands that replaced these."""
