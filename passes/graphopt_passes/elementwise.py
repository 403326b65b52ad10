"""Operators that compute each element of their result from those of their operands at the same place."""

from onnx import TensorProto as T

from graphopt.ir import Value

UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cast", "Ceil", "Celu", "Clip", "Cos",
    "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Log",
    "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus",
    "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu",
)  # fmt: skip
"""What else they read, like bounds, is a number or two for all elements."""

OF_ONE_TYPE = tuple(name for name in UNARY if name != "Cast")
"""Without `Cast`, which gives types that the runtime reshapes no tensor of, like integers of 4 bits."""

ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "Relu": (), "Sigmoid": (), "Tanh": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"),
}  # fmt: skip
"""Those that fused kernels apply to what they compute, with their parameters in order."""

TOGETHER = (
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mul",
    "Or", "Pow", "Sub", "Sum", "Where", "Xor",
)  # fmt: skip
"""Operators that compute each element from those of several operands, which are broadcast to each other."""

KEEPING = frozenset(
    {"DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze",
     "Tile", "Transpose", "Unsqueeze"}
)  # fmt: skip
"""Operators that choose, repeat and move elements of their first operand, and compute nothing.

Pools that give the largest are none of them, nor is `ReduceMax`: of NaN alone the runtime's give the lowest number.
"""

MOVES = KEEPING | {"Concat"}
"""The same, or of all operands."""

EXPANDED = frozenset({T.BOOL, T.FLOAT, T.FLOAT16, T.DOUBLE, T.INT32, T.INT64})
"""Element types for which all runtimes have an `Expand`."""


def is_constant_number(value: Value) -> bool:
    """Whether a value is a constant of one element, of any rank."""
    tensor = value.constant_tensor
    return tensor is not None and tensor.numel == 1
