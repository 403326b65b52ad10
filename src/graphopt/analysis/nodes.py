"""Output types of single nodes, such as those that rewrites create."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx
from onnx import TensorProto, defs, shape_inference

from graphopt.analysis.alike import may_end_the_process
from graphopt.analysis.disagreements import BROKEN, ENTRIES, Facts, doubts
from graphopt.analysis.propagation import WRONG_SLICE
from graphopt.analysis.shapes import Shape, ShapeAnalysis
from graphopt.analysis.shapes.engine import DECLINED, SHAPE_RULES
from graphopt.analysis.shapes.reduce import REDUCTIONS
from graphopt.analysis.skeleton import is_safe
from graphopt.ir import Node, Tensor, TensorType, Value, ValueType
from graphopt.ir.flush import emit
from graphopt.ir.schema import RUNTIMES_OWN
from graphopt.ir.types import KNOWN_TYPES, decode_type, encode_type

_DATA_LIMIT = 1 << 12
"""Constants up to this many bytes are passed to inference: shapes, axes and scales are that small."""


def infer_node(node: Node) -> list[ValueType | None]:
    """Infer the type of each output of a node from the types of its inputs.

    Common operators have their own rules, which take a tenth of the time; for others, the standard's inference is
    called with the contents of small constant inputs.

    Args:
        node: a node whose inputs have their known types set.

    Returns:
        One entry per output; None if it is not known.
    """
    types = _own(node)
    return _standard(node) if types is None else types


def infer_by_rules(node: Node) -> list[ValueType | None]:
    """Infer the type of each output of a node by our own rules only.

    Args:
        node: a node whose inputs have their known types set.
    """
    return _own(node) or [None] * len(node.outputs)


def is_refused(node: Node) -> bool:
    """Whether the standard's inference raises an error, as do runtimes that infer sizes at load.

    Our own rules raise no such errors: a `Squeeze` removes an axis whatever its size is.

    Args:
        node: a node whose inputs have their known types set; unnamed values have temporary names meanwhile.
    """
    unnamed = [value for value in (*node.inputs, *node.outputs) if value is not None and not value.name]
    for value in unnamed:
        value.name = f"pending {id(value)}"
    try:
        _ask(node)
    except Exception:  # of many types
        return True
    finally:
        for value in unnamed:
            value.name = ""
    return False


def _own(node: Node) -> list[ValueType | None] | None:
    dtype_rule = _DTYPES.get(node.op)
    if dtype_rule is None:
        return None
    analysis = ShapeAnalysis()
    try:
        result = SHAPE_RULES[node.op](analysis, node)
        if result is None:
            return None
        shapes: Sequence[Shape | None] = result if isinstance(result, list) else [result]
        if node.op in ENTRIES:
            shapes = analysis.without_doubts(node, shapes)
        types: list[ValueType | None] = []
        for index, value in enumerate(node.outputs):
            shape = shapes[index] if index < len(shapes) else None
            dtype = dtype_rule(node, index)
            if value is not None and shape is not None and dtype in KNOWN_TYPES:
                types.append(TensorType(dtype, analysis.to_dims(shape)))
            elif value is None or knows(node.op):
                types.append(None)
            else:
                return None
    except (*DECLINED, *BROKEN):
        return None
    return types


def _standard(node: Node) -> list[ValueType | None]:
    try:
        inferred = _ask(node)
    except Exception:
        # Inference raises many types of errors on invalid inputs: then nothing is known.
        inferred = None
    if inferred is None:
        return [None] * len(node.outputs)
    return _without_doubts(node, inferred) if node.op in ENTRIES else inferred


def _ask(node: Node) -> list[ValueType | None] | None:
    """The result of the standard's inference, whose errors propagate; None if it cannot be called."""
    opset = node.graph.opset(node.domain)
    info = node.schema
    if node.op.startswith("malformed "):  # unknown in whole-model inference too: otherwise a second run would know more
        return None
    if info is None or node.subgraphs or may_end_the_process(node) or not is_safe(node, info):
        return None
    if node.op == "Conv" and (alone := _type_alone(node)):
        return [alone]
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    for value in node.inputs:
        if value is None:
            continue
        if value.type is None:
            return None
        types[value.name] = encode_type(value.type)
        _show_contents(value, data)
    if node.op == "Slice" and opset == WRONG_SLICE:
        opset += 1
    schema = defs.get_schema(node.op_type, opset, node.domain)
    imports = [onnx.OperatorSetIdProto(domain=d, version=v) for d, v in node.graph.opsets.items()]
    found = shape_inference.infer_node_outputs(schema, emit(node), types, data, None, imports)
    return [decode_type(found[v.name]) if v is not None and v.name in found else None for v in node.outputs]


def _type_alone(node: Node) -> TensorType | None:
    """The result of inference for a convolution of unknown rank, which takes it 0.3 ms; None if it may raise."""
    x, *others = node.inputs
    if x is None or x.dtype not in _CONVOLVED or x.shape is not None or len(node.outputs) != 1:
        return None
    fits = 1 <= len(others) <= 2 and all(value is not None and value.dtype == x.dtype for value in others)
    return TensorType(x.dtype, None) if fits else None


_CONVOLVED = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE})
"""Element types that `Conv` supports at every opset."""


def _without_doubts(node: Node, types: list[ValueType | None]) -> list[ValueType | None]:
    claims = [found.shape if isinstance(found, TensorType) else None for found in types]
    shapes = [value.shape if value is not None else None for value in node.inputs]
    result = list(types)
    for index, axis in doubts(Facts(node, shapes, claims, {})):
        found = result[index]
        if isinstance(found, TensorType) and found.shape is not None:
            kept = None if axis is None else tuple(None if a == axis else d for a, d in enumerate(found.shape))
            result[index] = TensorType(found.dtype, kept)
    return result


def _show_contents(value: Value, data: dict[str, onnx.TensorProto]) -> None:
    tensor = value.constant_tensor
    if tensor is not None and tensor.nbytes <= _DATA_LIMIT:
        proto = onnx.TensorProto()
        tensor.fill(proto, value.name)
        data[value.name] = proto


# Element types


def _like(index: int) -> Callable[[Node, int], int | None]:
    def rule(node: Node, output: int) -> int | None:
        value = node.input(index)
        return value.dtype if value is not None else None

    return rule


def _always(*dtypes: int) -> Callable[[Node, int], int | None]:
    return lambda node, output: dtypes[output]


def _then(others: int | None) -> Callable[[Node, int], int | None]:
    """The first output has the type of the first input, the others a fixed type."""
    first = _like(0)
    return lambda node, output: first(node, output) if output == 0 else others


def _dequantize(node: Node, output: int) -> int | None:
    return node.attr("output_dtype") or _like(1)(node, output)


def _dropout(node: Node, output: int) -> int | None:
    """Before opset 10 the mask has the type of the data, which the standard's inference does not state."""
    is_truth = output and node.graph.opset() >= _MASK_OF_TRUTH
    return int(TensorProto.BOOL) if is_truth else _like(0)(node, output)


_MASK_OF_TRUTH = 10


def _layer_normalization(node: Node, output: int) -> int | None:
    return int(node.attr("stash_type", 1)) if output else _like(0)(node, output)


def _simplified(node: Node, output: int) -> int | None:
    """Statistics have their own type; data and scale may differ in type, and runtimes return either."""
    x, scale = _like(0)(node, output), _like(1)(node, output)
    return int(node.attr("stash_type", 1)) if output else x if x == scale else None


def _quantize(node: Node, output: int) -> int | None:
    return int(TensorProto.UINT8) if node.input(2) is None else _like(2)(node, output)


def _embedded(node: Node, output: int) -> int | None:
    return int(TensorProto.INT32) if output == 1 else _like(2)(node, output)


def _cast(node: Node, output: int) -> int | None:
    return int(node.attr("to"))


def _of_branches(node: Node, output: int) -> int | None:
    found = {branch.outputs[output].dtype for branch in node.subgraphs.values()}
    return found.pop() if len(found) == 1 else None


def _constant_of_shape(node: Node, output: int) -> int | None:
    value = node.attr("value")
    return value.dtype if isinstance(value, Tensor) else int(TensorProto.FLOAT)


_LIKE_FIRST = (
    "Abs", "Add", "AveragePool", "Ceil", "Clip", "Concat", "Conv", "ConvTranspose", "Cos", "CumSum", "DepthToSpace",
    "Div", "Elu", "Erf", "Exp", "Expand", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Gelu", "Gemm",
    "GlobalAveragePool", "GlobalMaxPool", "HardSigmoid", "HardSwish", "Identity", "InstanceNormalization", "LeakyRelu",
    "Log", "LogSoftmax", "MatMul", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "PRelu", "Pad", "Pow",
    "Range", "Reciprocal", "Relu", "Reshape", "Resize", "Round", "ScatterElements", "ScatterND", "Selu", "Sigmoid",
    "Sign", "Sin", "Slice", "Softmax", "Softplus", "SpaceToDepth", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Swish",
    "Tanh", "Tile", "Transpose", "Trilu", "Unsqueeze", *REDUCTIONS,
    "com.microsoft.nchwc::AveragePool", "com.microsoft.nchwc::Conv", "com.microsoft.nchwc::GlobalAveragePool",
    "com.microsoft.nchwc::GlobalMaxPool", "com.microsoft.nchwc::MaxPool", "com.microsoft.nchwc::ReorderInput",
    "com.microsoft.nchwc::ReorderOutput", "com.microsoft::BiasGelu", "com.microsoft::FastGelu",
    "com.microsoft::FusedConv", "com.microsoft::FusedGemm", "com.microsoft::FusedMatMul", "com.microsoft::Gelu",
    "com.microsoft::BranchwiseRMSNorm", "com.microsoft::QuickGelu", "com.microsoft::Attention",
    "com.microsoft::DecoderMaskedMultiHeadAttention", "com.microsoft::DynamicQuantizeMatMul",
    "com.microsoft::GroupNorm", "com.microsoft::GroupQueryAttention", "com.microsoft::MatMulBnb4",
    "com.microsoft::MatMulNBits", "com.microsoft::MoE", "com.microsoft::MultiHeadAttention",
    "com.microsoft::QLinearAdd", "com.microsoft::QLinearAveragePool", "com.microsoft::QLinearLeakyRelu",
    "com.microsoft::QLinearMul", "com.microsoft::QLinearSigmoid", "com.microsoft::QLinearSoftmax",
    "com.microsoft::QMoE", "com.microsoft::RotaryEmbedding", "com.microsoft::SkipLayerNormalization",
    "com.microsoft::SkipSimplifiedLayerNormalization", "com.microsoft::SparseAttention",
)  # fmt: skip

_BOOLEAN = (
    "And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Or", "Xor",
)  # fmt: skip

_DTYPES: dict[str, Callable[[Node, int], int | None]] = {
    **dict.fromkeys(_LIKE_FIRST, _like(0)),
    **dict.fromkeys(_BOOLEAN, _always(TensorProto.BOOL)),
    **dict.fromkeys(("ArgMax", "ArgMin", "NonZero", "Shape", "Size"), _always(TensorProto.INT64)),
    **dict.fromkeys(("CastLike", "Where"), _like(1)),
    "BatchNormalization": _then(None),
    "Cast": _cast,
    "ConstantOfShape": _constant_of_shape,
    "DequantizeLinear": _dequantize,
    "Dropout": _dropout,
    "If": _of_branches,
    "LayerNormalization": _layer_normalization,
    "MaxPool": _then(TensorProto.INT64),
    "OneHot": _like(2),
    RUNTIMES_OWN: _simplified,
    "com.microsoft::DequantizeLinear": _like(1),
    "com.microsoft::EmbedLayerNormalization": _embedded,
    "com.microsoft::GatherBlockQuantized": _like(2),
    "com.microsoft::MatMulIntegerToFloat": _like(2),
    "com.microsoft::QAttention": _like(3),
    "com.microsoft::QLinearConv": _like(7),
    "com.microsoft::QuantizeLinear": _quantize,
    "TopK": _then(TensorProto.INT64),
}
"""Element types of outputs by operator; each of these has a shape rule."""


def knows(op: str) -> bool:
    """Whether there are type rules for an operator of ONNX Runtime, which the standard's inference does not know."""
    return ("::" in op or op == RUNTIMES_OWN) and op in _DTYPES


def dtype_of_output(node: Node, index: int) -> int | None:
    """The element type of an output, known or derived from the inputs; None if it is unknown."""
    value = node.output(index)
    if value is not None and value.dtype is not None:
        return value.dtype
    rule = _DTYPES.get(node.op)
    try:
        dtype = rule(node, index) if rule is not None else None
        return dtype if dtype in KNOWN_TYPES else None
    except BROKEN:
        return None
